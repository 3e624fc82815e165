import gc
from types import SimpleNamespace

import pytest

from publishers.spark.errors import SinkNameTaken
from publishers.spark.queries import Claims, QueryBatch, gate_of


class Log:
    pass


BATCH = QueryBatch("query", "run", None, 4)


def test_the_same_batch_of_another_run_is_a_re_run():
    claims, log = Claims(), Log()
    claims.take(log, "p", "n", BATCH, 1)
    claims.take(log, "p", "n", BATCH, 1)
    claims.take(log, "p", "n", BATCH._replace(run_id="another"), 2)
    claims.take(log, "p", "n", BATCH._replace(run_id="another", batch_id=5), 3)


def test_the_same_batch_of_the_same_run_by_another_sink_is_refused():
    claims, log = Claims(), Log()
    claims.take(log, "p", "n", BATCH, 1)
    with pytest.raises(SinkNameTaken, match="named 'n' takes part in batch 4") as raised:
        claims.take(log, "p", "n", BATCH, 2)
    assert (raised.value.name, raised.value.batch_id) == ("n", 4)


def test_other_logs_and_other_producers_do_not_meet():
    claims, log = Claims(), Log()
    claims.take(log, "p", "n", BATCH, 1)
    claims.take(Log(), "p", "n", BATCH, 2)
    claims.take(log, "q", "m", BATCH, 2)


def test_what_was_given_back_is_free_and_only_its_owner_gives_it_back():
    claims, log = Claims(), Log()
    claims.take(log, "p", "n", BATCH, 1)
    claims.give_back(log, "p", 2)
    with pytest.raises(SinkNameTaken):
        claims.take(log, "p", "n", BATCH, 2)
    claims.give_back(log, "p", 1)
    claims.take(log, "p", "n", BATCH, 2)


def test_a_log_that_is_gone_is_forgotten():
    claims, log = Claims(), Log()
    claims.take(log, "p", "n", BATCH, 1)
    del log
    gc.collect()
    assert not claims._held


def test_sinks_of_a_query_share_a_gate_for_as_long_as_one_has_it():
    gate = gate_of("some query")
    assert gate_of("some query") is gate
    assert gate_of("another query") is not gate
    gate.set()
    del gate
    gc.collect()
    assert not gate_of("some query").is_set()


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("people\nid = 1\nbatch = 0", "people"),
        ("people<br/>id = 1", "people"),
        ("id = 1\nrunId = 2", None),
        (None, None),
    ],
)
def test_the_name_of_a_query_is_read_from_the_description_of_its_jobs(description, name):
    properties = {
        "sql.streaming.queryId": "q",
        "spark.jobGroup.id": "r",
        "spark.job.description": description,
    }

    context = SimpleNamespace(getLocalProperty=properties.get)
    frame = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    assert QueryBatch.of(frame, 3) == ("q", "r", name, 3)

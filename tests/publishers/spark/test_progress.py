import json
import math
from threading import Event
from types import SimpleNamespace
from uuid import UUID

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

from penstock_cdc.errors import InvalidOption
from publishers import upsert
from publishers.spark import ChangeSink, ProgressListener, QueryProgress, QueryState

pytestmark = pytest.mark.timeout(600)


def query(number):
    return UUID(int=number)


def started(listener, number, name=None):
    listener.onQueryStarted(SimpleNamespace(id=query(number), name=name))


def ended(listener, number, exception=None):
    listener.onQueryTerminated(SimpleNamespace(id=query(number), exception=exception))


def progressed(listener, number, *, rows=5, rate=2.0, offsets=()):
    sources = [SourceProgress("", None, end, latest, rows, rate, rate, {}) for end, latest in offsets]
    told = StreamingQueryProgress(
        query(number),
        query(99),
        None,
        "",
        3,
        0,
        {"addBatch": 1500},
        {},
        [],
        sources,
        None,
        rows,
        rate,
        rate,
        {},
    )
    listener.onQueryProgress(SimpleNamespace(progress=told))


def test_the_last_progress_of_each_query_is_kept_and_rows_are_added_up():
    """F152: those heard of last at the end; a query that is started again is the same."""
    listener = ProgressListener()
    started(listener, 1, "one")
    started(listener, 2)
    assert str(listener.queries()[0]) == "one RUNNING, no batch yet"
    progressed(listener, 1)
    progressed(listener, 1, rate=math.nan)
    (two, one) = listener.queries()
    assert (two.query_id, two.batch_id, two.rows) == (str(query(2)), None, 0)
    assert (one.batches, one.rows, one.batch_rows, one.rate, one.input_rate, one.behind) == (
        2,
        10,
        5,
        0.0,
        0.0,
        None,
    )
    assert one.seconds == {"addBatch": 1.5}
    ended(listener, 1, "it failed\nat Java")
    assert (listener.queries()[-1].state, listener.queries()[-1].error) == (QueryState.FAILED, "it failed")
    started(listener, 1, "one")
    ended(listener, 1)
    assert (listener.queries()[-1].state, listener.queries()[-1].error) == (QueryState.STOPPED, None)
    assert json.loads(json.dumps(listener.statistics()))["one"]["rows"] == 10


def test_what_a_log_has_beyond_what_was_read_is_told(log):
    """F152: and not of sources that are none."""
    for _ in range(5):
        log.commit([upsert("n", "1", {})])
    offsets = [json.dumps({"position": str(log.token(place))}) for place in (log.oldest, log.head)]
    listener = ProgressListener()
    progressed(
        listener,
        1,
        offsets=[offsets, [offsets[0], None], ['{"t":[1]}', "7"], ['{"position":"x"}', offsets[0]]],
    )
    assert listener.queries()[0].behind == 5
    assert str(listener.queries()[0]).endswith("RUNNING, batch 3 of 5 rows at 2/s, 5 versions behind")
    listener.onQueryIdle(SimpleNamespace(id=query(1)))
    assert (listener.queries()[0].state, listener.queries()[0].behind) == (QueryState.IDLE, 0)
    progressed(listener, 2)
    listener.onQueryIdle(SimpleNamespace(id=query(2)))
    assert listener.queries()[1].behind is None


def test_no_more_queries_are_kept_than_were_allowed():
    """Those that have ended go first, then those heard of least."""
    listener = ProgressListener(queries_max=2)
    for number in (1, 2):
        started(listener, number)
    ended(listener, 2)
    started(listener, 3)
    assert [one.query_id for one in listener.queries()] == [str(query(1)), str(query(3))]
    started(listener, 4)
    assert [one.query_id for one in listener.queries()] == [str(query(3)), str(query(4))]


def test_a_function_that_fails_hurts_nothing(caplog):
    def fail(progress):
        raise RuntimeError(progress.name)

    listener = ProgressListener(fail)
    started(listener, 1, "one")
    assert listener.queries() == (QueryProgress(str(query(1)), "one"),)
    assert "on_progress failed with the progress of one" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_progress": 1}, "on_progress is 1, but must be a function of one QueryProgress"),
        ({"queries_max": 0}, "queries_max is 0, but must be a whole number from 1"),
        ({"queries_max": True}, "queries_max is True"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(InvalidOption, match=message):
        ProgressListener(**arguments)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("java.io.IOException: gone\n\tat org", "java.io.IOException: gone"),
        (
            "py4j: Traceback (most recent call last):\n  File 1\n    raise\nValueError: so\nand on\n\n\tat py4j",
            "ValueError: so",
        ),
        ("py4j: Traceback (most recent call last):\n  File 1", "py4j: Traceback (most recent call last):"),
        ("", ""),
    ],
)
def test_of_what_ended_a_query_the_line_that_says_why_is_kept(text, reason):
    listener = ProgressListener()
    ended(listener, 1, text)
    assert (listener.queries()[0].state, listener.queries()[0].error) == (QueryState.FAILED, reason)


def test_a_listener_hears_of_a_query_until_it_fails(spark, source, log):
    """F152: what Spark itself tells."""
    failed, heard = Event(), []

    def hear(progress):
        heard.append(progress)
        if progress.state is QueryState.FAILED:
            failed.set()

    listener = ProgressListener(hear)
    spark.streams.addListener(listener)
    try:
        source.add_numbers(3, 4)
        sink = ChangeSink(log, entity_type="n", key="id")
        query = source.start(
            lambda frame, batch: sink(frame if batch < 2 else frame.drop("id"), batch), name="numbers"
        )
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(180)
        assert failed.wait(60)
    finally:
        spark.streams.removeListener(listener)
    told = listener.statistics()["numbers"]
    assert (told["state"], told["batches"], told["rows"], told["behind"]) == ("FAILED", 2, 8, None)
    assert told["seconds"]["addBatch"] > 0
    assert told["error"].startswith("publishers.spark.errors.SchemaRefused: column 'id' is not in the batch")
    assert [(one.batch_id, one.rows) for one in heard] == [(None, 0), (0, 4), (1, 8), (1, 8)]

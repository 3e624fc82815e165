"""What a server takes of what streaming queries say."""

import json
import logging

import pytest

from tests.transports.telemetry.test_prometheus import query
from transports.telemetry.queries import QUERIES_MOST, SparkQueries


def test_only_so_much_is_taken_as_is_bounded():
    """F152, F161: those that were heard of last, with short names and errors."""
    queries = {f"{number} {'x' * 300}": query(error="y" * 900, extra=1) for number in range(QUERIES_MOST + 9)}
    queries["last"] = query(seconds={str(part): 0.5 for part in range(99)})
    told = SparkQueries(lambda: queries).statistics()["sparkQueries"]
    assert len(told) == QUERIES_MOST
    assert next(iter(told)) == "10 " + "x" * 197
    assert (len(next(iter(told.values()))["error"]), len(told["last"]["seconds"])) == (500, 16)
    assert all(one.keys() == query().keys() for one in told.values())


def test_who_fails_to_tell_is_left_out_and_logged_once(caplog):
    """F152: the rest of the statistics is there all the same."""
    answers = [{"a": 7}, None, {}, {"a": query(state="LOST")}]
    queries = SparkQueries(lambda: answers[0])
    with caplog.at_level(logging.ERROR, "penstock.transports"):
        found = []
        while answers:
            found.append(queries.statistics())
            del answers[0]
    assert found == [{}, {}, {"sparkQueries": {}}, {}]
    assert len(caplog.records) == 2
    assert SparkQueries(None).statistics() == {}


def test_a_listener_tells_what_a_server_takes():
    """F152: named as the query is, or by its id."""
    pytest.importorskip("pyspark")
    from publishers.spark import ProgressListener
    from tests.publishers.spark.test_progress import ended, progressed, started

    listener = ProgressListener()
    progressed(listener, 2, offsets=[("{}", "{}")])
    started(listener, 1, "one")
    ended(listener, 1, "it failed")
    told = SparkQueries(listener.statistics).statistics()["sparkQueries"]
    assert json.loads(json.dumps(told))["one"]["error"] == "it failed"
    assert told == listener.statistics()

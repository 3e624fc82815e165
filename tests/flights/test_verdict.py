from dataclasses import replace

import pytest

from penstock_flights.digest import StreamDigest
from penstock_flights.plan import SLOW, SUBSCRIBERS, WEBSOCKET
from penstock_flights.reception import ReceptionPlace
from penstock_flights.verdict import VerdictLine, judge

EXPECTED = StreamDigest(10, 1000, 2000)
RIGHT = ReceptionPlace(cursor="c", count=10, ordered=1000, content=2000, resyncs=1, returns=1)


def found(**other):
    return VerdictLine(WEBSOCKET, replace(RIGHT, **other), EXPECTED)


def test_what_spark_computes_is_right():
    finding = found()
    assert finding.holds
    assert finding.complete
    assert finding.ordered
    assert finding.once
    assert finding.equal


@pytest.mark.parametrize(
    ("other", "ordered", "once", "said"),
    [
        ({"count": 9}, True, False, "9 changes came, but Spark counts 10"),
        ({"ordered": 1001}, False, True, "the digest is"),
        ({"content": 1, "ordered": 1}, False, False, "the digest is"),
        ({"misplaced": 2}, False, False, "2 changes came twice or too late"),
    ],
)
def test_whatever_differs_is_told_with_both_values(other, ordered, once, said):
    finding = found(**other)
    assert not finding.holds
    assert (finding.ordered, finding.once) == (ordered, once)
    assert any(said in difference for difference in finding.differences)
    assert all(difference.startswith(WEBSOCKET.title) for difference in finding.differences)


@pytest.mark.parametrize(("resyncs", "returns"), [(0, 0), (1, 0)])
def test_the_slow_one_must_have_been_overtaken_and_come_back(resyncs, returns):
    place = replace(RIGHT, resyncs=resyncs, returns=returns)
    assert not VerdictLine(SLOW, place, EXPECTED, must_lag=True).holds
    assert VerdictLine(SLOW, place, EXPECTED).holds


@pytest.mark.parametrize("overtakes", [True, False])
def test_only_slow_ones_must_lag_and_only_in_runs_that_are_long_enough(overtakes):
    places = dict.fromkeys((one.name for one in SUBSCRIBERS), replace(RIGHT, resyncs=0, returns=0))
    findings = judge(SUBSCRIBERS, places, dict.fromkeys(places, EXPECTED), overtakes=overtakes)
    assert [finding.wanted for finding in findings] == list(SUBSCRIBERS)
    assert [finding.holds for finding in findings] == [True, True, not overtakes]


def test_a_finding_is_stored_with_both_digests():
    assert found().to_json() == {
        "wants": "*/JFK",
        "received": 10,
        "digest": "10:3e8:7d0",
        "expected": "10:3e8:7d0",
        "resyncs": 1,
        "differences": [],
    }

"""Every queue that may lose elements, or grow, can be looked at."""

import pytest

import flow
from flow import operators as op
from tests.flow.operators.helpers import Upstream
from tests.flow.probes import Probe


def metered(make, count, first=0):
    meter, upstream, probe = flow.Meter(), Upstream(), Probe(first=first)
    make(meter)(upstream).subscribe(probe)
    upstream.send(*range(count))
    return meter, upstream, probe


@pytest.mark.parametrize(
    ("make", "dropped", "buffered"),
    [
        (lambda meter: op.on_backpressure_buffer(3, flow.Overflow.DROP_OLDEST, meter=meter), 4, 3),
        (lambda meter: op.on_backpressure_buffer(3, flow.Overflow.DROP_LATEST, meter=meter), 4, 3),
        (lambda meter: op.on_backpressure_buffer(1, flow.Overflow.BUFFER, meter=meter), 0, 7),
        (lambda meter: op.on_backpressure_latest(meter=meter), 6, 1),
        (lambda meter: op.on_backpressure_drop(meter=meter), 7, 0),
    ],
    ids=["drop oldest", "drop latest", "buffer", "latest", "drop"],
)
def test_what_came_waits_and_went_is_counted(make, dropped, buffered):
    meter, upstream, probe = metered(make, 7)
    assert meter.statistics() == flow.OverflowStatistics(7, dropped, buffered, buffered)
    probe.request(9)
    assert len(probe.items) == buffered
    assert meter.statistics() == flow.OverflowStatistics(7, dropped, 0, buffered)
    upstream.send(8)
    assert meter.statistics().received == 8
    assert meter.statistics().dropped == dropped


def test_an_overflow_that_ends_the_stream_leaves_nothing_waiting():
    meter, _, probe = metered(lambda meter: op.on_backpressure_buffer(2, meter=meter), 3)
    assert isinstance(probe.error, flow.Overflowed)
    assert meter.statistics() == flow.OverflowStatistics(3, 1, 0, 2)


def test_the_element_that_ends_a_stream_is_counted():
    meter, _, probe = metered(lambda meter: op.on_backpressure_error(meter=meter), 1)
    assert isinstance(probe.error, flow.Overflowed)
    assert meter.statistics() == flow.OverflowStatistics(1, 1, 0, 0)


def test_who_leaves_takes_what_waits_along():
    meter, _, probe = metered(lambda meter: op.on_backpressure_buffer(5, meter=meter), 4)
    probe.cancel()
    assert meter.statistics() == flow.OverflowStatistics(4, 0, 0, 4)


def test_one_meter_counts_for_all_subscribers():
    meter = flow.Meter()
    numbers = flow.Flow(flow.from_iterable(range(3))).on_backpressure_buffer(5, meter=meter)
    for _ in range(2):
        numbers.subscribe(Probe())
    assert meter.statistics() == flow.OverflowStatistics(6, 0, 6, 6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: op.on_backpressure_buffer(1, meter=5),
        lambda: op.on_backpressure_drop(meter=5),
        lambda: op.on_backpressure_error(meter=5),
        lambda: op.on_backpressure_latest(meter=5),
    ],
)
def test_what_is_no_meter_is_refused(make):
    with pytest.raises(TypeError, match=r"meter: 5; a flow\.Meter or None"):
        make()


def test_what_an_observable_pushes_is_counted_too():
    reactivex = pytest.importorskip("reactivex")
    meter, probe = flow.Meter(), Probe()
    flow.from_observable(
        reactivex.range(0, 6), overflow=flow.Overflow.DROP_OLDEST, capacity=2, meter=meter
    ).subscribe(probe)
    assert meter.statistics() == flow.OverflowStatistics(6, 4, 2, 2)

"""Behind operators without a queue a batch stays one, and signals beside the stream arrive."""

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from flow import operators as op
from flow.operators.link import one_by_one
from tests.flow.operators.helpers import Upstream, run
from tests.flow.probes import BatchProbe, Probe

SAME = {
    "map": op.map(lambda n: n),
    "filter": op.filter(lambda _: True),
    "scan": op.scan(lambda _, n: n),
    "distinct_until_changed": op.distinct_until_changed(),
    "take": op.take(100),
    "take_while": op.take_while(lambda _: True),
    "skip": op.skip(0),
    "tap": op.tap(lambda _: None),
}
ANY = {
    "map": op.map(lambda n: n + 1),
    "filter": op.filter(lambda n: n % 2),
    "scan": op.scan(lambda a, b: a + b, 0),
    "distinct_until_changed": op.distinct_until_changed(lambda n: n // 3),
    "take": op.take(5),
    "take_while": op.take_while(lambda n: n < 7),
    "skip": op.skip(3),
    "tap": op.tap(lambda _: None),
    "raising map": op.map(lambda n: 1 // (6 - n) + 9),
    "map to None": op.map(lambda n: None if n == 6 else n),
    "raising filter": op.filter(lambda n: 1 // (6 - n) or True),
    "raising take_while": op.take_while(lambda n: 1 // (6 - n) or True),
    "raising tap": op.tap(lambda n: 1 // (6 - n)),
    "map that stops": op.map(lambda n: n if n != 6 else next(iter(()))),
    "filter that stops": op.filter(lambda n: n != 6 or next(iter(()))),
    "take_while that stops": op.take_while(lambda n: n != 6 or next(iter(()))),
    "tap that stops": op.tap(lambda n: n != 6 or next(iter(()))),
}


def given_in_batches(operator, batches):
    upstream, probe = Upstream(), BatchProbe(first=flow.UNBOUNDED)
    operator(upstream).subscribe(probe)
    for batch in batches:
        if upstream.cancelled:
            break
        upstream.subscriber.on_next_batch(batch)
    return upstream, probe


@pytest.mark.parametrize("operator", SAME.values(), ids=SAME)
def test_a_batch_stays_one_call(operator):
    _, probe = given_in_batches(operator, [[1, 2, 3], (4, 5)])
    assert [list(batch) for batch in probe.batches] == [[1, 2, 3], [4, 5]]
    assert set(probe.signals) == {"subscribe", "batch"}


@pytest.mark.parametrize("operator", SAME.values(), ids=SAME)
def test_of_an_upstream_without_batches_each_element_is_a_batch_of_one(operator):
    upstream, probe = given_in_batches(operator, [])
    upstream.send(1, 2)
    assert [list(batch) for batch in probe.batches] == [[1], [2]]
    with pytest.raises(TypeError, match=r"rule 2\.13"):
        upstream.send(None)


def test_what_loses_nothing_passes_on_the_very_batch():
    batch = [1, 2]
    for name in ("filter", "take_while", "tap", "take", "skip"):
        assert given_in_batches(SAME[name], [batch])[1].batches[0] is batch, name


@pytest.mark.parametrize("name", ANY)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), demand=st.integers(1, 12))
def test_batches_bring_what_single_elements_do(name, sizes, demand):
    """F67: at most what was requested, also in batches."""
    numbers = list(range(1, sum(sizes) + 1))
    single = run(numbers, ANY[name], first=demand)
    batched = BatchProbe(first=demand)
    ANY[name](flow.from_iterable(numbers)).subscribe(batched)
    assert batched.items == single.items
    assert batched.completed == single.completed
    assert type(batched.error) is type(single.error)
    assert all(batched.batches)


def test_for_all_that_is_left_out_of_a_batch_as_much_is_requested():
    upstream, probe = given_in_batches(op.filter(lambda n: n > 2), [[1, 2, 3]])
    assert probe.items == [3]
    assert upstream.requests[1:] == [2]


def test_take_cancels_in_the_midst_of_a_batch():
    upstream, probe = given_in_batches(op.take(2), [[1, 2, 3], [4]])
    assert (probe.batches, probe.completed, upstream.cancelled) == ([[1, 2]], True, 1)


@pytest.mark.parametrize("operator", SAME.values(), ids=SAME)
def test_a_batch_with_none_is_refused(operator):
    upstream, _ = given_in_batches(operator, [])
    with pytest.raises(TypeError, match=r"rule 2\.13"):
        upstream.subscriber.on_next_batch([1, None])


@pytest.mark.parametrize("operator", SAME.values(), ids=SAME)
def test_a_batch_subscriber_that_raises_is_forgotten(operator, dropped):
    class Raising(BatchProbe):
        def on_next_batch(self, items, /):
            raise OSError

    probe = Raising(first=9)
    operator(flow.from_iterable([1, 2])).subscribe(probe)
    assert [type(error) for error in dropped.errors] == [OSError]
    reference = weakref.ref(probe)
    dropped.errors.clear()
    del probe
    gc.collect()
    assert reference() is None


def test_a_queue_takes_a_batch_at_once():
    upstream, probe = Upstream(), Probe(first=3)
    op.limit_rate(4)(upstream).subscribe(probe)
    upstream.subscriber.on_next_batch([1, 2, 3, 4])
    assert probe.items == [1, 2, 3]


def test_of_a_batch_that_a_bounded_queue_has_no_room_for_the_policy_lets_elements_go():
    gone = []
    upstream, probe = Upstream(), Probe(first=1)
    op.on_backpressure_buffer(2, flow.Overflow.DROP_OLDEST, gone.append)(upstream).subscribe(probe)
    upstream.subscriber.on_next_batch([1, 2, 3, 4, 5])
    assert (probe.items, gone) == ([1], [2, 3])
    probe.request(5)
    assert probe.items == [1, 4, 5]


def test_a_batch_that_overflows_ends_the_stream_at_the_first_element_too_many():
    upstream, probe = Upstream(), Probe(first=0)
    meter = flow.Meter()
    op.on_backpressure_buffer(2, meter=meter)(upstream).subscribe(probe)
    upstream.subscriber.on_next_batch([1, 2, 3, 4, 5])
    assert isinstance(probe.error, flow.Overflowed)
    assert upstream.cancelled == 1
    assert meter.statistics() == flow.OverflowStatistics(3, 1, 0, 2)


def test_an_element_that_meets_a_batch_subscriber_leaving_is_dropped():
    probe = BatchProbe(first=1)
    link = one_by_one(probe)
    link.on_subscribe(Upstream())
    link.on_next(1)
    probe.cancel()
    link.on_next(2)
    assert probe.items == [1]


class Told(Probe):
    def __init__(self, **demand):
        super().__init__(**demand)
        self.told = []

    def on_lagged(self, missed, /):
        self.told.append(("lagged", missed))

    def on_state(self, state, /):
        self.told.append(("state", state))


@pytest.mark.parametrize("operator", SAME.values(), ids=SAME)
def test_signals_beside_the_stream_pass_through(operator):
    upstream, probe = Upstream(), Told(first=1)
    operator(op.map(lambda n: n)(upstream)).subscribe(probe)
    upstream.subscriber.on_lagged(7)
    upstream.subscriber.on_state("RESYNC")
    assert probe.told == [("lagged", 7), ("state", "RESYNC")]


@pytest.mark.parametrize("operator", SAME.values(), ids=SAME)
def test_a_link_has_no_signal_that_nobody_below_listens_to(operator):
    upstream, probe = Upstream(), Probe(first=1)
    operator(upstream).subscribe(probe)
    assert not hasattr(upstream.subscriber, "on_lagged")
    assert not hasattr(upstream.subscriber, "on_state")


def test_a_loss_of_a_broadcast_is_told_behind_operators_before_the_next_element():
    numbers = flow.Broadcast(2, lag=flow.Lag.DROP_OLDEST)
    probe = Told()
    probe.on_item = probe.told.append
    flow.Flow(numbers).map(lambda n: n * 10).tap().subscribe(probe)
    for number in range(5):
        numbers.submit(number)
    probe.request(2)
    assert probe.told == [("lagged", 3), 30, 40]


def test_who_raises_when_told_of_a_loss_is_cancelled():
    class Raising(Told):
        def on_lagged(self, missed, /):
            raise ZeroDivisionError

    upstream = Upstream()
    op.tap()(upstream).subscribe(Raising(first=1))
    with pytest.raises(ZeroDivisionError):  # the drain above reports it
        upstream.subscriber.on_lagged(1)
    assert upstream.cancelled == 1

import asyncio
import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from flow import UNBOUNDED, Overflow
from flow import operators as op
from tests.flow.operators.helpers import Upstream, collect, run
from tests.flow.probes import ManualExecutor, Probe, wait_until


@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 5))
def test_a_queue_passes_everything_in_order_at_any_pace(count, prefetch, each):
    executor = ManualExecutor()
    probe = run(range(count), op.publish_on(executor, prefetch=prefetch), first=each, each=each)
    executor.run_all()
    assert probe.items == list(range(count))
    assert probe.completed
    assert run(range(count), op.limit_rate(prefetch), first=1, each=each).items == list(range(count))


@given(st.integers(1, 9), st.lists(st.integers(1, 4), max_size=20))
def test_never_more_than_prefetch_is_ahead_of_the_subscriber(prefetch, requests):
    upstream = Upstream()
    executor = ManualExecutor()
    probe = collect(flow.pipe(upstream, op.publish_on(executor, prefetch=prefetch)), first=0)
    executor.run_all()
    sent = 0
    for n in requests:
        probe.request(n)
        executor.run_all()
        assert upstream.requested - len(probe.items) <= prefetch
        upstream.send(*range(upstream.requested - sent))
        sent = upstream.requested
        executor.run_all()
        assert upstream.requested - len(probe.items) <= prefetch


def test_prefetch_and_low_tide_say_what_is_requested_when():
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.limit_rate(4, 2)), first=0)
    assert upstream.requests == [4]
    upstream.send(1, 2, 3, 4)
    probe.request(1)
    assert upstream.requests == [4]
    probe.request(1)
    assert upstream.requests == [4, 2]
    assert probe.items == [1, 2]


def test_a_subscriber_with_unbounded_demand_still_has_a_limited_rate():
    upstream = Upstream()
    collect(flow.pipe(upstream, op.limit_rate(8)))
    assert upstream.requests == [8]
    upstream.send(*range(6))
    assert upstream.requests == [8, 6]


def test_signals_come_on_the_executor_that_was_named():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2, thread_name_prefix="there") as pool:
        probe = run(range(5000), op.publish_on(pool))
        assert probe.ended.wait(60)
        assert probe.items == list(range(5000))
        assert probe.overlaps == 0
        assert all(name.startswith("there") for name in probe.threads)


async def test_signals_come_on_the_event_loop_that_was_named():
    ended = asyncio.Event()
    probe = Probe(first=UNBOUNDED)
    probe.on_item = lambda item: item == 9 and ended.set()
    source = flow.pipe(flow.from_iterable(range(10)), op.publish_on(asyncio.get_running_loop()))
    thread = threading.Thread(target=source.subscribe, args=(probe,))
    thread.start()
    await ended.wait()
    thread.join()
    assert probe.threads == {threading.current_thread().name}


def test_an_error_overtakes_what_is_buffered_unless_it_is_delayed():
    for delay, signals in ((False, ["subscribe", "error"]), (True, ["subscribe", "next", "next", "error"])):
        upstream = Upstream()
        executor = ManualExecutor()
        probe = collect(flow.pipe(upstream, op.publish_on(executor, delay_error=delay)))
        upstream.send(1, 2)
        upstream.fail(OSError())
        executor.run_all()
        assert probe.signals == signals


def test_completion_waits_for_what_is_buffered_and_not_for_demand():
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.limit_rate(4)), first=1)
    upstream.send(1, 2)
    upstream.complete()
    assert probe.signals == ["subscribe", "next"]
    probe.request(1)
    assert probe.signals == ["subscribe", "next", "next", "complete"]


@pytest.mark.parametrize("bad", [{"prefetch": 0}, {"prefetch": True}, {"prefetch": 3, "low_tide": 4}])
def test_numbers_out_of_bounds_are_refused(bad):
    with pytest.raises(ValueError, match=r"prefetch: |low_tide: "):
        op.publish_on(flow.INLINE, **bad)


def test_what_is_no_executor_is_refused():
    with pytest.raises(TypeError):
        op.publish_on(3)


# on_backpressure_*


@pytest.mark.parametrize(
    ("overflow", "kept", "gone"),
    [
        (Overflow.DROP_OLDEST, [2, 3, 4], [0, 1]),
        (Overflow.DROP_LATEST, [0, 1, 2], [3, 4]),
        (Overflow.LATEST, [4], [0, 1, 2, 3]),
        (Overflow.BUFFER, [0, 1, 2, 3, 4], []),
    ],
)
def test_each_policy_lets_the_element_go_that_its_name_says(overflow, kept, gone):
    dropped = []
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.on_backpressure_buffer(3, overflow, dropped.append)), first=0)
    assert upstream.requests == [UNBOUNDED]
    upstream.send(*range(5))
    upstream.complete()
    assert not probe.completed
    probe.request(5)
    assert probe.items == kept
    assert dropped == gone
    assert probe.completed
    assert upstream.cancelled == 0


def test_by_default_one_element_too_many_ends_the_stream():
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.on_backpressure_buffer(2)), first=0)
    upstream.send(0, 1, 2, 3)
    assert isinstance(probe.error, flow.Overflowed)
    assert (probe.error.missed, probe.error.capacity) == (3, 2)
    assert upstream.cancelled == 1


def test_an_upstream_that_is_too_fast_is_cancelled_before_a_busy_subscriber_is_told():
    upstream = Upstream()
    entered, leave = threading.Event(), threading.Event()
    probe = Probe(first=1, on_item=lambda _: (entered.set(), leave.wait(60)))
    flow.pipe(upstream, op.on_backpressure_buffer(1)).subscribe(probe)
    thread = threading.Thread(target=upstream.send, args=(0,))
    thread.start()
    assert entered.wait(60)
    upstream.send(1, 2, 3)
    assert upstream.cancelled == 1
    assert probe.error is None
    leave.set()
    thread.join()
    wait_until(lambda: isinstance(probe.error, flow.Overflowed))
    assert probe.overlaps == 0


def test_latest_keeps_the_newest():
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.on_backpressure_latest()), first=1)
    upstream.send(0, 1, 2)
    probe.request(1)
    assert probe.items == [0, 2]


def test_drop_lets_go_of_what_nobody_has_asked_for():
    dropped = []
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.on_backpressure_drop(dropped.append)), first=1)
    upstream.send(0, 1)
    probe.request(1)
    upstream.send(2, 3)
    upstream.complete()
    assert upstream.requests == [UNBOUNDED]
    assert probe.items == [0, 2]
    assert dropped == [1, 3]
    assert probe.completed


def test_error_ends_at_the_first_element_that_nobody_has_asked_for():
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.on_backpressure_error()), first=1)
    upstream.send(0, 1, 2)
    assert probe.items == [0]
    assert isinstance(probe.error, flow.Overflowed)
    assert upstream.cancelled == 1


@pytest.mark.parametrize("make", [op.on_backpressure_drop, op.on_backpressure_latest])
def test_an_on_drop_that_raises_ends_the_stream(make):
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, make(lambda _: 1 // 0)), first=0)
    upstream.send(1, 2)
    assert isinstance(probe.error, ZeroDivisionError)
    assert upstream.cancelled == 1


def test_an_endless_source_is_stopped_by_its_overflow():
    probe = run(itertools.count(), op.on_backpressure_buffer(10), first=5)
    assert probe.items == [0, 1, 2, 3, 4]
    assert isinstance(probe.error, flow.Overflowed)


@pytest.mark.parametrize("capacity", [0, True, None])
def test_a_capacity_is_a_positive_integer(capacity):
    with pytest.raises(ValueError, match="capacity: "):
        op.on_backpressure_buffer(capacity)

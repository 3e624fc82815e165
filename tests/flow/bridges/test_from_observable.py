"""Observables of reactivex as publishers."""

import asyncio
import gc
import itertools
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import reactivex as rx
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops
from reactivex.disposable import Disposable
from reactivex.scheduler import ImmediateScheduler, NewThreadScheduler
from reactivex.subject import Subject

import flow
from flow import Overflow
from tests.flow.probes import ManualExecutor, Probe, wait_until


def test_a_subscriber_gets_what_it_asks_for_and_completion():
    probe = Probe(first=2)
    flow.from_observable(rx.from_iterable([1, 2, 3])).subscribe(probe)
    assert probe.items == [1, 2]
    assert not probe.completed
    probe.request(1)
    assert probe.items == [1, 2, 3]
    assert probe.completed
    assert probe.signals[0] == "subscribe"


def test_it_is_cold():
    publisher = flow.from_observable(rx.from_iterable("ab"))
    assert isinstance(publisher, flow.Publisher)
    for _ in range(2):
        probe = Probe(first=10)
        publisher.subscribe(probe)
        assert probe.items == ["a", "b"]


def test_completion_needs_no_demand():
    probe = Probe()
    flow.from_observable(rx.empty()).subscribe(probe)
    assert probe.signals == ["subscribe", "complete"]


def test_an_error_overtakes_what_waits():
    failure = OSError("network")
    subject = Subject()
    probe = Probe()
    flow.from_observable(subject).subscribe(probe)
    subject.on_next(1)
    subject.on_error(failure)
    assert probe.signals == ["subscribe", "error"]
    assert probe.error is failure


def test_an_observable_whose_subscribe_raises_ends_in_on_error():
    def subscribe(observer, scheduler=None):
        raise OSError("refused")

    probe = Probe(first=1)
    flow.from_observable(rx.create(subscribe)).subscribe(probe)
    assert isinstance(probe.error, OSError)
    assert probe.signals == ["subscribe", "error"]


async def test_a_cancelled_future_is_an_error_that_says_so():
    future = asyncio.get_running_loop().create_future()
    probe = Probe(first=1)
    flow.from_observable(rx.from_future(future)).subscribe(probe)
    future.cancel()
    with suppress(asyncio.CancelledError):
        await future
    await asyncio.sleep(0)
    assert isinstance(probe.error, RuntimeError)
    assert "CancelledError" in str(probe.error)


def test_rule_109_a_subscriber_that_is_none_is_refused():
    with pytest.raises(TypeError, match=r"rule 1\.9"):
        flow.from_observable(rx.never()).subscribe(None)


def test_overflow_is_an_error_that_names_capacity_and_remedy():
    subject = Subject()
    probe = Probe(first=1)
    flow.from_observable(subject, capacity=3).subscribe(probe)
    for item in range(4):
        subject.on_next(item)
    assert probe.error is None
    subject.on_next(4)
    assert probe.items == [0]
    assert isinstance(probe.error, flow.Overflowed)
    assert isinstance(probe.error, flow.Lagged)
    assert (probe.error.missed, probe.error.capacity) == (4, 3)
    assert "3 elements waited and one more came" in str(probe.error)
    assert "raise capacity=" in str(probe.error)
    assert not subject.observers, "the observable was disposed of"


def test_the_source_of_an_overflow_is_stopped_though_the_executor_is_busy():
    subject = Subject()
    where = ManualExecutor()
    probe = Probe(first=1)
    flow.from_observable(subject, capacity=1).subscribe(probe, executor=where)
    subject.on_next(1)
    subject.on_next(2)
    assert not subject.observers
    where.run_all()
    assert isinstance(probe.error, flow.Overflowed)


@pytest.mark.parametrize(
    ("overflow", "delivered", "lost"),
    [
        (Overflow.DROP_OLDEST, [0, 4, 5], [1, 2, 3]),
        (Overflow.DROP_LATEST, [0, 1, 2], [3, 4, 5]),
        (Overflow.LATEST, [0, 5], [1, 2, 3, 4]),
        (Overflow.BUFFER, [0, 1, 2, 3, 4, 5], []),
    ],
)
def test_each_policy_loses_what_its_name_says_and_tells_it(overflow, delivered, lost):
    told = []
    probe = Probe(first=1)
    subject = Subject()
    flow.from_observable(subject, overflow=overflow, capacity=2, on_drop=told.append).subscribe(probe)
    for item in range(6):
        subject.on_next(item)
    subject.on_completed()
    assert not probe.completed
    probe.request(100)
    assert probe.items == delivered
    assert told == lost
    assert probe.completed


@given(
    st.sampled_from([Overflow.DROP_OLDEST, Overflow.DROP_LATEST, Overflow.LATEST, Overflow.BUFFER]),
    st.integers(1, 5),
    st.lists(st.one_of(st.just("push"), st.integers(1, 4)), max_size=60),
)
def test_every_element_is_delivered_in_order_or_told_as_dropped(overflow, capacity, steps):
    told = []
    probe = Probe()
    subject = Subject()
    flow.from_observable(subject, overflow=overflow, capacity=capacity, on_drop=told.append).subscribe(probe)
    pushed = requested = 0
    for step in steps:
        if step == "push":
            subject.on_next(pushed)
            pushed += 1
        else:
            requested += step
            probe.request(step)
        assert len(probe.items) <= requested
        waiting = pushed - len(probe.items) - len(told)
        assert overflow is Overflow.BUFFER or waiting <= (1 if overflow is Overflow.LATEST else capacity)
    subject.on_completed()
    probe.request(1000)
    assert probe.completed
    assert probe.items == sorted(probe.items)
    assert sorted(probe.items + told) == list(range(pushed))


def test_what_on_drop_raises_ends_the_stream():
    def refuse(item):
        raise KeyError(item)

    subject = Subject()
    probe = Probe()
    flow.from_observable(subject, overflow=Overflow.LATEST, on_drop=refuse).subscribe(probe)
    subject.on_next(1)
    subject.on_next(2)
    assert isinstance(probe.error, KeyError)
    assert not subject.observers


def test_none_is_an_error_or_is_skipped():
    probe = Probe(first=5)
    flow.from_observable(rx.from_iterable([1, None, 2])).subscribe(probe)
    assert probe.items == [1]
    assert isinstance(probe.error, TypeError)
    assert "none='drop' skips it" in str(probe.error)
    probe = Probe(first=5)
    flow.from_observable(rx.from_iterable([1, None, 2]), none="drop").subscribe(probe)
    assert probe.items == [1, 2]
    assert probe.completed


def naive(observer, scheduler=None):
    for number in itertools.count():
        observer.on_next(number)
    return Disposable()


def silent(observer, scheduler=None):
    while True:
        observer.on_next(None)


@pytest.mark.parametrize(
    "source",
    [
        rx.from_iterable(itertools.count()),
        rx.create(naive),
        rx.create(naive).pipe(ops.map(lambda n: n)),
        rx.from_iterable(itertools.count(), scheduler=ImmediateScheduler()),
        rx.generate(0, lambda _: True, lambda n: n + 1),
    ],
    ids=["from_iterable", "naive", "naive with an operator", "immediate", "generate"],
)
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside another subscription"])
def test_an_infinite_synchronous_observable_is_stopped_after_n(source, inside):
    seen = []

    def keep(item):
        seen.append(item)
        if len(seen) == 5:
            probe.cancel()

    probe = Probe(first=flow.UNBOUNDED, on_item=keep)
    publisher = flow.from_observable(source)
    if inside:
        after = []
        rx.from_iterable("a").subscribe(
            lambda _: publisher.subscribe(probe), on_completed=lambda: after.append(1)
        )
        assert after == [1]
    else:
        publisher.subscribe(probe)
    assert len(seen) == 5
    assert probe.signals == ["subscribe"] + ["next"] * 5


def test_an_infinite_synchronous_observable_overflows_where_nobody_asks():
    probe = Probe()
    flow.from_observable(rx.create(naive), capacity=7).subscribe(probe)
    assert isinstance(probe.error, flow.Overflowed)


def test_a_source_is_left_although_all_that_it_pushes_is_skipped():
    where = ManualExecutor()
    probe = Probe(first=1)
    publisher = flow.from_observable(rx.create(silent), none="drop")
    thread = threading.Thread(target=lambda: publisher.subscribe(probe, executor=where), daemon=True)
    thread.start()
    wait_until(lambda: where.tasks)
    where.run_all()
    probe.cancel()
    thread.join(60)
    assert not thread.is_alive()


def test_cancelled_in_on_subscribe_the_observable_is_not_subscribed_to():
    class Refusing(Probe):
        def on_subscribe(self, subscription, /):
            subscription.cancel()

    flow.from_observable(rx.create(lambda *_: pytest.fail("subscribed"))).subscribe(Refusing())


def test_cancelling_disposes_of_the_subscription():
    subject = Subject()
    probe = Probe(first=5)
    flow.from_observable(subject).subscribe(probe)
    subject.on_next(1)
    probe.cancel()
    assert not subject.observers
    subject.on_next(2)
    assert probe.items == [1]


def test_a_source_on_a_thread_of_its_own_is_left_alone_after_cancel():
    pushed, stop = [], threading.Event()

    def subscribe(observer, scheduler=None):
        def run():
            for number in itertools.count():
                observer.on_next(number)
                pushed.append(number)
                if stop.is_set():
                    return

        thread = threading.Thread(target=run)
        thread.start()
        return Disposable(stop.set)

    probe = Probe(first=3, on_item=lambda item: item == 2 and probe.cancel())
    flow.from_observable(rx.create(subscribe), overflow=Overflow.LATEST).subscribe(probe)
    wait_until(stop.is_set)
    assert probe.items == [0, 1, 2]


def test_a_scheduler_takes_the_observable_elsewhere():
    probe = Probe(first=100)
    flow.from_observable(rx.from_iterable(range(100)), scheduler=NewThreadScheduler()).subscribe(probe)
    assert probe.ended.wait(60)
    assert probe.items == list(range(100))
    assert threading.current_thread().name not in probe.threads - {threading.main_thread().name}


def test_signals_from_many_threads_stay_serial():
    subject = Subject()
    probe = Probe(first=flow.UNBOUNDED)
    flow.from_observable(subject, overflow=Overflow.BUFFER).subscribe(probe)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(subject.on_next, range(400)))
    subject.on_completed()
    assert sorted(probe.items) == list(range(400))
    assert probe.overlaps == 0
    assert probe.completed


def test_an_executor_delivers_and_the_capacity_bounds_what_it_has_not_come_to():
    where = ManualExecutor()
    probe = Probe(first=10)
    flow.from_observable(rx.from_iterable(range(4)), capacity=4).subscribe(probe, executor=where)
    assert probe.items == []
    where.run_all()
    assert probe.items == [0, 1, 2, 3]
    assert probe.completed


def test_rule_313_the_subscriber_is_forgotten_after_cancel_though_the_source_keeps_its_observer():
    kept = []
    publisher = flow.from_observable(rx.create(lambda observer, _: kept.append(observer)))
    probe = Probe(first=1)
    reference = weakref.ref(probe)
    publisher.subscribe(probe)
    kept[0].on_next(1)
    kept[0].on_next(2)
    probe.cancel()
    del probe
    gc.collect()
    assert reference() is None
    kept[0].on_next(3)


def test_a_program_that_interrupts_is_let_through():
    def interrupt(observer, scheduler=None):
        raise KeyboardInterrupt

    probe = Probe(first=1)
    with pytest.raises(KeyboardInterrupt):
        flow.from_observable(rx.create(interrupt)).subscribe(probe)
    assert probe.signals == ["subscribe"]


def test_arguments_are_checked_before_anybody_subscribes():
    with pytest.raises(TypeError, match=r"observable: \[1\]; a reactivex\.Observable"):
        flow.from_observable([1])
    with pytest.raises(ValueError, match="capacity: 0"):
        flow.from_observable(rx.never(), capacity=0)
    with pytest.raises(ValueError, match="overflow: 'drop'"):
        flow.from_observable(rx.never(), overflow="drop")
    with pytest.raises(ValueError, match="none: 'skip'"):
        flow.from_observable(rx.never(), none="skip")

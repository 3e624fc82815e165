import asyncio
import gc
import itertools
import subprocess
import sys
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
from flow import Drain, Overflow
from publishers import ChangeLog, Content
from tests.flow.probes import ManualExecutor, On, Probe, QueueFeed, wait_until


class Hand:
    """A publisher filled by hand, which notes what is asked of it."""

    def __init__(self, executor=None):
        self.feed = QueueFeed()
        self.executor = executor
        self.drain = None
        self.requests = []

    def subscribe(self, subscriber, /):
        self.drain = Drain(subscriber, self.feed, executor=self.executor)
        self.drain.start(self)

    def request(self, n, /):
        self.requests.append(n)
        self.drain.request(n)

    def cancel(self):
        self.drain.cancel()

    def push(self, *items):
        self.feed.push(*items)
        self.drain.signal()

    def end(self, outcome):
        self.feed.end(outcome)
        self.drain.signal()


class Recorder:
    """What an observer was told."""

    def __init__(self, on_item=None):
        self.signals = []
        self.on_item = on_item

    def on_next(self, item):
        self.signals.append(item)
        if self.on_item is not None:
            self.on_item(item)

    def on_error(self, error):
        self.signals.append(error)

    def on_completed(self):
        self.signals.append("complete")


# To observables.


def test_an_observer_gets_elements_and_completion():
    seen = Recorder()
    flow.to_observable(flow.from_iterable([1, 2, 3])).subscribe(seen)
    assert seen.signals == [1, 2, 3, "complete"]
    flow.to_observable(flow.empty()).subscribe(seen)
    assert seen.signals[4:] == ["complete"]


def test_each_observer_is_a_subscriber_of_its_own():
    observable = flow.to_observable(flow.from_iterable([1, 2]))
    for _ in range(2):
        seen = Recorder()
        observable.subscribe(seen)
        assert seen.signals == [1, 2, "complete"]


def test_operators_apply():
    seen = Recorder()
    flow.to_observable(flow.from_iterable(range(7))).pipe(
        ops.filter(lambda n: n != 3), ops.scan(lambda a, b: a + b), ops.buffer_with_count(2)
    ).subscribe(seen)
    assert seen.signals == [[0, 1], [3, 7], [12, 18], "complete"]


def test_an_error_reaches_the_observer_as_it_is():
    failure = OSError("disk")
    seen = Recorder()
    flow.to_observable(flow.error(failure)).subscribe(seen)
    assert seen.signals == [failure]


def test_an_error_that_no_observer_wants_is_reported(dropped):
    failure = OSError("disk")
    flow.to_observable(flow.error(failure)).subscribe(print)
    assert dropped.errors == [failure]


def test_demand_is_refilled_as_calls_of_on_next_return():
    hand = Hand()
    ahead = []

    def watch(item):
        ahead.append(sum(hand.requests) - item)

    flow.to_observable(hand, prefetch=8).subscribe(watch)
    hand.push(*range(100))
    assert hand.requests[:3] == [8, 6, 6]
    assert len(ahead) == 100
    assert max(ahead) == 8, "never more than prefetch was asked for ahead of the observer"


@given(st.integers(1, 40), st.data(), st.lists(st.integers(1, 30), max_size=8))
def test_no_more_than_prefetch_is_ever_ahead_of_the_observer(prefetch, data, pushes):
    low_tide = data.draw(st.none() | st.integers(0, prefetch))
    hand = Hand()
    returned = 0

    def watch(_):
        nonlocal returned
        assert sum(hand.requests) - returned <= prefetch
        returned += 1

    flow.to_observable(hand, prefetch=prefetch, low_tide=low_tide).subscribe(watch)
    for count in pushes:
        hand.push(*range(count))
        assert sum(hand.requests) - returned <= prefetch
    assert returned == sum(pushes)


def test_a_slow_observer_is_asked_for_nothing_more():
    with ThreadPoolExecutor(1) as pool:
        hand = Hand(pool)
        entered, leave = threading.Event(), threading.Event()

        def slow(_):
            entered.set()
            assert leave.wait(60)

        flow.to_observable(hand, prefetch=4).subscribe(slow)
        hand.push(*range(1000))
        assert entered.wait(60)
        assert hand.requests == [4]
        leave.set()
        wait_until(lambda: sum(hand.requests) > 1000)


def test_the_lag_of_a_slow_observer_is_visible_in_the_statistics_of_the_log(tmp_path):
    with ChangeLog.open(tmp_path / "log") as log:
        entered, leave, done = threading.Event(), threading.Event(), threading.Event()
        keys = []

        def slow(change):
            entered.set()
            assert leave.wait(60)
            keys.append(change.key)

        feed = log.changes(until=51, content=Content.BODY)
        flow.to_observable(feed, prefetch=4).pipe(ops.filter(lambda change: change.index > 0)).subscribe(
            slow, on_completed=done.set
        )
        for number in range(51):
            with log.transaction() as tx:
                tx.upsert("order", str(number), {"n": number})
        assert entered.wait(60)
        (subscription,) = log.statistics().subscriptions
        assert subscription.name == "RxSubscriber"
        assert subscription.lag > 40
        assert subscription.demand <= 4
        leave.set()
        assert done.wait(60)
        assert keys == [str(number) for number in range(51)]
        wait_until(lambda: not log.statistics().subscriptions)


def test_disposing_cancels_also_from_another_thread():
    hand = Hand()
    seen = Recorder()
    subscription = flow.to_observable(hand).subscribe(seen)
    hand.push(1)
    thread = threading.Thread(target=subscription.dispose)
    thread.start()
    thread.join()
    hand.push(2)
    subscription.dispose()
    assert seen.signals == [1]
    assert hand.feed.released == 1


def test_take_stops_an_infinite_publisher_that_delivers_inside_request():
    seen = Recorder()
    closed = []

    def numbers():
        try:
            yield from itertools.count()
        finally:
            closed.append(True)

    flow.to_observable(flow.generate(numbers), prefetch=2).pipe(ops.take(5)).subscribe(seen)
    assert seen.signals == [0, 1, 2, 3, 4, "complete"]
    assert closed == [True]


def test_disposed_before_the_publisher_gives_its_subscription_nothing_is_requested():
    where = ManualExecutor()
    seen = Recorder()
    flow.to_observable(On(flow.from_iterable([1]), where)).subscribe(seen).dispose()
    where.run_all()
    assert seen.signals == []


def test_a_subscription_that_comes_late_is_requested_from_at_once():
    where = ManualExecutor()
    seen = Recorder()
    flow.to_observable(On(flow.from_iterable([1, 2]), where)).subscribe(seen)
    assert seen.signals == []
    where.run_all()
    assert seen.signals == [1, 2, "complete"]


def test_the_publisher_is_subscribed_to_at_once_even_from_inside_a_signal():
    hand = Hand()
    started = []

    def begin(_):
        flow.to_observable(hand).subscribe(print)
        started.append(hand.drain is not None)

    rx.from_iterable([1]).subscribe(begin)
    assert started == [True]
    assert hand.requests == [256]


def test_the_scheduler_given_to_subscribe_makes_the_first_request():
    threads, done = set(), threading.Event()
    flow.to_observable(flow.from_iterable([1, 2])).subscribe(
        lambda _: threads.add(threading.current_thread()),
        on_completed=done.set,
        scheduler=NewThreadScheduler(),
    )
    assert done.wait(60)
    assert threading.current_thread() not in threads


def test_a_raising_observer_is_cancelled_and_reported(dropped):
    hand = Hand()
    flow.to_observable(hand).subscribe(lambda item: 1 / item, lambda _: pytest.fail("told"))
    hand.push(1, 0, 1)
    assert [type(error) for error in dropped.errors] == [ZeroDivisionError]
    assert hand.feed.released == 1


def test_an_operator_that_fails_cancels_and_tells_the_observer():
    hand = Hand()
    seen = Recorder()
    flow.to_observable(hand).pipe(ops.map(lambda item: 1 / item)).subscribe(seen)
    hand.push(1, 0, 1)
    assert seen.signals[0] == 1
    assert [type(signal) for signal in seen.signals] == [float, ZeroDivisionError]
    assert hand.feed.released == 1


def test_a_second_subscription_is_cancelled():
    class Twice(Hand):
        def subscribe(self, subscriber, /):
            super().subscribe(subscriber)
            self.second = Hand()
            self.second.subscribe(subscriber)

    twice = Twice()
    flow.to_observable(twice).subscribe(print)
    assert twice.second.drain.ended
    assert not twice.drain.ended


def test_after_disposal_the_publisher_keeps_nothing_of_the_observer():
    class Callback:
        def __call__(self, item):
            pass

    callback = Callback()
    reference = weakref.ref(callback)
    hand = Hand()
    subscription = flow.to_observable(hand).subscribe(callback)
    subscription.dispose()
    del callback, subscription
    gc.collect()
    assert reference() is None
    assert hand.drain is not None


def test_bounds_are_checked_before_anybody_subscribes():
    with pytest.raises(ValueError, match="prefetch: 0"):
        flow.to_observable(flow.never(), prefetch=0)
    with pytest.raises(ValueError, match="low_tide: 9"):
        flow.to_observable(flow.never(), prefetch=8, low_tide=9)


# From observables.


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


def test_there_and_back_again():
    publisher = flow.from_observable(flow.to_observable(flow.from_iterable(range(1000)), prefetch=16))
    with flow.iter_blocking(publisher, prefetch=2000) as items:
        assert list(items) == list(range(1000))


# Without reactivex.


def test_importing_flow_does_not_import_reactivex():
    code = "import flow, sys; assert flow.to_observable and 'reactivex' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["to_observable", "from_observable"])
def test_without_reactivex_one_line_says_what_to_install(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "reactivex", None)
    with pytest.raises(
        ModuleNotFoundError, match=rf"^flow\.{name} needs reactivex: pip install 'penstock-cdc\[rx\]'$"
    ):
        getattr(flow, name)(flow.never())

import gc
import itertools
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import reactivex as rx
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops
from reactivex.scheduler import NewThreadScheduler

import flow
from flow import Drain
from publishers import ChangeLog, Content
from tests.flow.probes import ManualExecutor, On, QueueFeed, wait_until


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

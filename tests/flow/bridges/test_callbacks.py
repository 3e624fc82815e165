import gc
import weakref

import pytest

import flow
from flow import UNBOUNDED, Drain
from tests.flow.probes import ManualExecutor, On, QueueFeed


class Hand:
    def __init__(self):
        self.feed = QueueFeed()
        self.drain = None
        self.requests = []

    def subscribe(self, subscriber, /):
        self.drain = Drain(subscriber, self.feed)
        self.drain.start(self)

    def request(self, n, /):
        self.requests.append(n)
        self.drain.request(n)

    def cancel(self):
        self.drain.cancel()

    def push(self, *items):
        self.feed.push(*items)
        self.drain.signal()


def test_the_callbacks_are_called():
    signals = []
    handle = flow.subscribe(
        flow.from_iterable([1, 2]), signals.append, signals.append, lambda: signals.append("complete")
    )
    assert signals == [1, 2, "complete"]
    assert not handle.active
    failure = OSError()
    flow.subscribe(flow.error(failure), signals.append, signals.append)
    assert signals[-1] is failure


def test_by_default_demand_is_unbounded_and_asked_for_once():
    hand = Hand()
    seen = []
    flow.subscribe(hand, seen.append)
    hand.push(*range(1000))
    assert seen == list(range(1000))
    assert hand.requests == [UNBOUNDED]


def test_a_prefetch_is_refilled_as_calls_return():
    hand = Hand()
    seen = []
    flow.subscribe(hand, seen.append, prefetch=8)
    hand.push(*range(100))
    assert seen == list(range(100))
    assert hand.requests[:3] == [8, 6, 6]
    assert sum(hand.requests) <= 108
    with pytest.raises(ValueError, match="prefetch: 0"):
        flow.subscribe(hand, seen.append, prefetch=0)


def test_cancel_ends_it_also_from_inside_a_callback():
    hand = Hand()
    seen = []
    handle = flow.subscribe(
        hand, lambda item: (seen.append(item), item == 2 and handle.cancel()), prefetch=50
    )
    hand.push(*range(10))
    assert seen == [0, 1, 2]
    handle.cancel()
    assert hand.feed.released == 1


def test_cancelled_before_on_subscribe_nothing_is_called():
    where = ManualExecutor()
    seen = []
    handle = flow.subscribe(On(flow.from_iterable([1]), where), seen.append)
    handle.cancel()
    where.run_all()
    assert seen == []


def test_a_raising_callback_ends_the_subscription_and_is_reported(dropped):
    hand = Hand()
    handle = flow.subscribe(hand, lambda item: 1 / item, lambda error: pytest.fail("told"))
    hand.push(1, 0, 1)
    assert [type(error) for error in dropped.errors] == [ZeroDivisionError]
    assert not handle.active
    assert hand.feed.released == 1


def test_an_error_nobody_wants_to_know_of_is_reported(dropped):
    failure = OSError()
    flow.subscribe(flow.error(failure), print)
    assert dropped.errors == [failure]


def test_rule_205_a_second_subscription_is_cancelled():
    first, second = Hand(), Hand()
    handle = flow.subscribe(first, print)
    second.subscribe(handle)
    assert second.drain.ended
    assert not first.drain.ended


def test_rule_313_the_callbacks_are_forgotten_after_cancel():
    class Callback:
        def __call__(self, item):
            pass

    callback = Callback()
    reference = weakref.ref(callback)
    handle = flow.subscribe(flow.never(), callback, callback, callback)
    handle.cancel()
    del callback
    gc.collect()
    assert reference() is None


def test_rule_208_signals_after_cancel_are_harmless():
    seen = []
    handle = flow.subscribe(flow.never(), seen.append, seen.append, lambda: seen.append("complete"))
    handle.cancel()
    handle.on_next(1)
    handle.on_error(OSError())
    handle.on_complete()
    assert seen == []

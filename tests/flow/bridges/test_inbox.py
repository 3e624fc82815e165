import pytest

import flow
from flow.bridges.callbacks import CallbackSubscription
from flow.bridges.inbox import EMPTY, Inbox
from flow.demand import Tide


class Subscription:
    def __init__(self):
        self.requested = []
        self.cancelled = 0

    def request(self, n, /):
        self.requested.append(n)

    def cancel(self):
        self.cancelled += 1


def make(prefetch=4, on_lag="fail"):
    woken = []
    inbox = Inbox(Tide(prefetch), lambda: woken.append(True), on_lag)
    return inbox, woken


def subscribers():
    return [make()[0], CallbackSubscription(print, print, print, Tide(1))]


@pytest.mark.parametrize("subscriber", subscribers(), ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("method", ["on_subscribe", "on_next", "on_error"])
def test_rule_213_none_raises_a_type_error(subscriber, method):
    with pytest.raises(TypeError, match=r"rule 2\.13"):
        getattr(subscriber, method)(None)


def test_rule_205_a_second_subscription_is_cancelled_and_the_first_goes_on():
    inbox, _ = make()
    first, second = Subscription(), Subscription()
    inbox.on_subscribe(first)
    inbox.on_subscribe(second)
    assert (first.cancelled, second.cancelled) == (0, 1)
    inbox.on_next(1)
    assert inbox.take() == 1


def test_rule_203_no_call_to_the_subscription_from_a_terminal_signal():
    for signal in ("on_complete", "on_error"):
        inbox, _ = make(prefetch=1)
        subscription = Subscription()
        inbox.on_subscribe(subscription)
        inbox.on_next(1)
        if signal == "on_complete":
            inbox.on_complete()
            assert inbox.take() == 1
        else:
            inbox.on_error(OSError())
        inbox.close()
        assert subscription.requested == [1]
        assert subscription.cancelled == 0


def test_rule_208_an_element_after_close_is_harmless():
    inbox, _ = make()
    subscription = Subscription()
    inbox.on_subscribe(subscription)
    inbox.close()
    inbox.close()
    inbox.on_next(1)
    inbox.on_next_batch([2, 3])
    inbox.on_lagged(4)
    inbox.on_error(OSError())
    inbox.on_complete()
    assert inbox.take() is EMPTY
    assert inbox.finished
    assert subscription.cancelled == 1
    late = Subscription()
    inbox.on_subscribe(late)
    assert (late.requested, late.cancelled) == ([], 1)


def test_it_wakes_once_for_each_empty_take():
    inbox, woken = make()
    inbox.on_subscribe(Subscription())
    inbox.on_next(1)
    assert woken == []
    assert inbox.take() == 1
    assert inbox.take() is EMPTY
    assert not inbox.finished
    inbox.on_next(2)
    inbox.on_next(3)
    assert woken == [True]
    inbox.take()
    inbox.take()
    assert inbox.take() is EMPTY
    inbox.on_complete()
    assert woken == [True, True]
    assert inbox.finished


def test_a_batch_that_cannot_be_unpacked_fails_the_stream():
    def corrupt():
        yield 1
        raise OSError("corrupt")

    inbox, _ = make()
    subscription = Subscription()
    inbox.on_subscribe(subscription)
    inbox.on_next_batch(corrupt())
    assert subscription.cancelled == 1
    with pytest.raises(OSError, match="corrupt"):
        inbox.take()
    assert inbox.finished


def test_elements_of_a_batch_count_one_by_one():
    inbox, _ = make(prefetch=4)
    subscription = Subscription()
    inbox.on_subscribe(subscription)
    inbox.on_next_batch([1, 2, 3, 4])
    for _ in range(3):
        inbox.take()
    assert subscription.requested == [4, 3]


def test_a_callback_for_lag_that_raises_reaches_the_consumer():
    def explode(missed):
        raise LookupError(missed)

    inbox, _ = make(on_lag=explode)
    inbox.on_subscribe(Subscription())
    inbox.on_lagged(3)
    inbox.on_next(1)
    with pytest.raises(LookupError):
        inbox.take()
    assert inbox.take() == 1
    assert isinstance(inbox, flow.BatchSubscriber)

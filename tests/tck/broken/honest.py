"""Small honest parts: those that break rules differ from them in one thing each."""

import threading
from collections.abc import Callable
from typing import Any

from flow import hooks
from flow.contracts import UNBOUNDED, Subscriber, Subscription
from flow.errors import IllegalRequestError

__all__ = ["HonestPublisher", "HonestSubscriber", "HonestSubscription"]


class HonestSubscription:
    """Counts up to a number, on whoever requests.

    Attributes:
        subscriber: Whom it serves, or None at the end.
        left: Elements that are still to come.
        demand: Elements requested and not delivered.
        busy: Whether somebody delivers; at first that is ``subscribe``.
        done: Whether no further signal comes.
        error: What to fail with.
    """

    def __init__(self, subscriber: Subscriber[Any], count: int, error: Exception | None) -> None:
        self.lock = threading.Lock()
        self.subscriber: Any = subscriber
        self.count = count
        self.left = count
        self.demand = 0
        self.busy = True
        self.done = False
        self.error = error

    def begin(self) -> None:
        """Greet the subscriber, then deliver."""
        self.call(lambda: self.subscriber.on_subscribe(self))
        self.run()

    def refusal(self, n: Any) -> Exception | None:
        """What to fail with for a request, or None."""
        return None if type(n) is int and n > 0 else IllegalRequestError(n)

    def added(self, demand: int, n: Any) -> int:
        """The new demand."""
        return min(demand + int(n), UNBOUNDED)

    def request(self, n: Any, /) -> None:
        """Record, and deliver if nobody does."""
        refusal = self.refusal(n)
        with self.lock:
            if self.done:
                return
            if refusal is None:
                self.demand = self.added(self.demand, n)
            else:
                self.error = refusal
            if self.busy:
                return
            self.busy = True
        self.run()

    def cancel(self) -> None:
        """End in silence."""
        with self.lock:
            self.done = True
            if not self.busy:
                self.subscriber = None

    def run(self) -> None:
        """Deliver what there is; the caller holds ``busy``."""
        while True:
            with self.lock:
                if self.done:
                    self.subscriber = None
                    self.busy = False
                    return
                if self.error is None and self.left and not self.demand:
                    self.busy = False
                    return
            self.step()

    def step(self) -> None:
        """Give one signal."""
        if self.error is not None:
            self.fail()
        elif not self.left:
            self.complete()
        else:
            self.emit()

    def emit(self) -> None:
        """Give one element."""
        with self.lock:
            self.demand -= self.demand < UNBOUNDED
            self.left -= 1
        item = self.count - self.left
        self.call(lambda: self.subscriber.on_next(item))

    def complete(self) -> None:
        """Give the completion."""
        self.done = True
        self.call(self.subscriber.on_complete)

    def fail(self) -> None:
        """Give the failure."""
        self.done = True
        self.call(lambda: self.subscriber.on_error(self.error))

    def call(self, signal: Callable[[], object]) -> None:
        """Signal; who raises is cancelled and reported (rule 2.13)."""
        try:
            signal()
        except Exception as error:
            self.done = True
            hooks.report(error, self.subscriber)


class HonestPublisher:
    """Serves each subscriber all numbers from 1 to ``count``, or fails at once."""

    subscription: type[HonestSubscription] = HonestSubscription

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.count = count
        self.error = error

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Begin a subscription."""
        if subscriber is None:
            raise TypeError("rule 1.9: the subscriber is None")
        self.serve(subscriber)

    def serve(self, subscriber: Subscriber[Any]) -> None:
        """Begin a subscription of one that is there."""
        self.subscription(subscriber, self.count, self.error).begin()


class HonestSubscriber:
    """Takes everything, a few elements ahead, and reports each signal to a probe if there is one.

    With a probe it requests nothing by itself: the probe is given the subscription to do that.
    """

    prefetch = 4

    def __init__(self, probe: Any = None) -> None:
        self.probe = probe
        self.subscription: Subscription | None = None
        self.over = False
        self.taken = 0

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Accept the first, and request."""
        if subscription is None:
            raise TypeError("rule 2.13: the subscription is None")
        if self.subscription is not None or self.over:
            self.refuse(subscription)
            return
        self.subscription = subscription
        if self.probe is None:
            self.ask(self.prefetch)
        else:
            self.probe.on_subscribe(subscription)

    def refuse(self, subscription: Subscription) -> None:
        """Cancel a second subscription (rule 2.5)."""
        subscription.cancel()

    def ask(self, n: int) -> None:
        """Request."""
        if self.subscription is not None:
            self.subscription.request(n)

    def on_next(self, item: Any, /) -> None:
        """Take an element, and request more when all have come."""
        if item is None:
            raise TypeError("rule 2.13: the element is None")
        self.take(item)
        self.taken += 1
        if self.probe is None and self.taken % self.prefetch == 0 and not self.over:
            self.ask(self.prefetch)

    def take(self, item: Any) -> None:
        """Report an element."""
        if self.probe is not None:
            self.probe.on_next(item)

    def on_error(self, error: Exception, /) -> None:
        """End."""
        if error is None:
            raise TypeError("rule 2.13: the error is None")
        self.over, self.subscription = True, None
        if self.probe is not None:
            self.probe.on_error(error)

    def on_complete(self) -> None:
        """End."""
        self.over, self.subscription = True, None
        if self.probe is not None:
            self.probe.on_complete()

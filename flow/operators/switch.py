"""The common part of operators that subscribe to one publisher after another, without a queue."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from flow import hooks
from flow.contracts import Publisher, Subscriber, Subscription
from flow.demand import add, refusal, subtract
from flow.drain.feed import GONE
from flow.misuse import require_publisher
from flow.operators.link import Lifted, Link, Operator, one_by_one, present

__all__ = ["Switch", "switched"]

T = TypeVar("T")


def switched(begin: Callable[[Publisher[T], Subscriber[T]], "Switch[T]"]) -> Operator[T, T]:
    """Make an operator from a function that makes a switch for each subscriber, of the source and the subscriber."""
    return lambda source: Lifted(lambda below: begin(source, one_by_one(below)).switch(source))


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Switch(Generic[T]):
    """The subscription of its downstream, and the subscriber to one publisher after another.

    Demand that is not yet delivered is requested again of the next publisher. Only one publisher signals at a
    time, so signals are serial. A subclass decides in `_follow` what happens after the end of a publisher.

    Args:
        below: The downstream; receives ``on_subscribe`` when the first publisher has signalled it.
    """

    _below: Subscriber[T]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _upstream: Subscription | None = None
    _demand: int = 0  # requested and not delivered
    _next: Publisher[T] | None = None
    # The error of an illegal request that was passed on: it is no failure of upstream.
    _refusal: Exception | None = None
    _subscribing: bool = False
    _greeted: bool = False
    _delivered: bool = False  # an element of the current publisher
    _ended: bool = False

    def _follow(self, error: Exception | None) -> None:
        """Continue after a publisher completed, or failed: `switch`, or `finish`."""
        raise NotImplementedError

    def switch(self, publisher: Publisher[T]) -> None:
        """Subscribe to the next publisher, after a ``subscribe`` in progress has returned (rule 3.3).

        Raises:
            TypeError: If it is ``None``.
        """
        if publisher is None:
            raise TypeError("None is no publisher")
        with self._lock:
            self._next = publisher
            if self._subscribing:
                return
            self._subscribing = True
        while (following := self._take_next()) is not None:
            try:
                require_publisher("the publisher to resume with", following)
                following.subscribe(_Leg(self))
            except Exception as error:  # noqa: BLE001 - not a publisher: rule 1.4
                self._greet()
                self.finish(error)

    def finish(self, error: Exception | None) -> None:
        """Send the terminal signal, unless the switch has already ended; called after upstream has ended."""
        below = self._forget()
        if error is None:
            below.on_complete()
        else:
            below.on_error(error)

    def request(self, n: int, /) -> None:
        """Request elements of the current publisher, or of the next."""
        error = refusal(n)
        with self._lock:
            if self._ended:
                return
            if error is None:
                self._demand = add(self._demand, n)
            else:
                self._refusal = error
            upstream = self._upstream
            if error is not None and upstream is None:
                # No publisher signals now, and a later one finds the switch ended: so the error is serial here (rule 3.9).
                self._ended = True
        if upstream is not None:
            upstream.request(n)
        elif error is not None:
            try:
                self.finish(error)
            except Exception as failure:  # noqa: BLE001 - rules 2.13 and 3.16
                hooks.report(failure, self)

    def cancel(self) -> None:
        """Cancel the current publisher, and switch to no other."""
        with self._lock:
            upstream = self._upstream
        self._forget()
        if upstream is not None:
            upstream.cancel()

    def _take_next(self) -> Publisher[T] | None:
        with self._lock:
            publisher, self._next = self._next, None
            if publisher is None or self._ended:
                self._subscribing = False
                return None
            return publisher

    def _forget(self) -> Subscriber[T]:
        with self._lock:
            below, self._below = self._below, GONE
            self._upstream = self._next = None
            self._ended = True
        return below

    def _greet(self) -> None:
        if not self._greeted:
            self._greeted = True
            try:
                self._below.on_subscribe(self)
            except BaseException:
                self.cancel()
                raise

    # Signals of the publishers.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Request the remaining demand of a new publisher."""
        with self._lock:
            refused = self._ended
            demand = self._demand
            if not refused:
                self._upstream = subscription
                self._delivered = False
        if refused:
            subscription.cancel()
        elif not self._greeted:
            self._greet()
        elif demand:
            subscription.request(demand)

    def on_next(self, item: T, /) -> None:
        """Pass an element on."""
        with self._lock:
            if self._ended:
                return
            self._delivered = True
            self._demand = subtract(self._demand, 1)
        try:
            self._below.on_next(item)
        except BaseException:
            self.cancel()
            raise

    def on_complete(self) -> None:
        """Continue after a completion."""
        self.on_error(None)

    def on_error(self, error: Exception | None, /) -> None:
        """Continue after a failure."""
        with self._lock:
            if self._ended:
                return
            self._upstream = None
            refused = self._refusal
        try:
            if refused is None:
                self._follow(error)
            else:
                self.finish(refused)
        except Exception as failure:  # noqa: BLE001 - the function that chooses the next publisher raised: rule 1.4
            self.finish(failure)


class _Leg(Link[T, T]):
    """The subscriber to one of the publishers; ignores signals after that has ended."""

    __slots__ = ()

    def on_next(self, item: T, /) -> None:
        present(item, "the element")
        self._downstream.on_next(item)

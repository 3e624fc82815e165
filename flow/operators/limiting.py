"""Operators that let pass a part of a stream."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from flow.contracts import Publisher, Subscriber, Subscription
from flow.demand import refusal
from flow.drain.feed import GONE
from flow.executors import INLINE
from flow.misuse import require_functions
from flow.operators.link import Batchwise, Fitting, In, Link, Operator, at_least, lift, present, present_all
from flow.operators.stage import queued
from flow.operators.transforming import Sieve, sieve

__all__ = ["limit_rate", "skip", "take", "take_while"]

T = TypeVar("T")


def take(count: int) -> Callable[[Publisher[T]], Publisher[T]]:
    """Complete after ``count`` elements, and never request more than that of upstream.

    Args:
        count: At least 0; with 0 nothing is requested, and the end comes without any request.

    Raises:
        ValueError: If it is not.
    """
    at_least("count", count, 0)
    taking: Operator[Any, Any] = lift(
        lambda below: _Taking(below, count), lambda below: _BatchTaking(below, count)
    )
    return taking


def take_while(keep: Callable[[In], object]) -> Fitting[In, In]:
    """Complete before the first element for which ``keep(element)`` is false.

    If ``keep`` raises, upstream is cancelled and the stream ends in ``on_error``.
    """
    require_functions(keep=keep)
    return lift(lambda below: _TakingWhile(below, keep), lambda below: _BatchTakingWhile(below, keep))


def skip(count: int) -> Callable[[Publisher[T]], Publisher[T]]:
    """Leave out the first ``count`` elements; one more is requested in the stead of each.

    Args:
        count: At least 0.

    Raises:
        ValueError: If it is not.
    """
    at_least("count", count, 0)
    skipping: Operator[Any, Any] = sieve(lambda: _After(count))
    return skipping


def limit_rate(high: int, low: int | None = None) -> Callable[[Publisher[T]], Publisher[T]]:
    """Request ``high`` elements at first, and ``low`` more whenever as many were delivered, whatever the demand is.

    So a subscriber that asks for everything still has at most ``high`` under way, and one that asks one by one does
    not send a request upstream for each. What is ahead of its demand waits here; errors overtake it.

    Args:
        high: At least 1.
        low: ``None`` is 75 % of ``high``, 0 requests only when all were delivered.

    Raises:
        ValueError: If a number is out of its bounds.
    """
    at_least("high", high)
    queue: Operator[Any, Any] = queued(INLINE, high, low, delay_error=False)
    return queue


class _Taking(Link[T, T]):
    """Counts what may still be requested, and what may still come."""

    __slots__ = ("_left", "_lock", "_room")

    def __init__(self, below: Subscriber[T], count: int) -> None:
        super().__init__(below)
        self._lock = threading.Lock()
        self._room = count  # guarded by the lock: any thread may request
        self._left = count

    def on_subscribe(self, subscription: Subscription, /) -> None:
        first = not self._greeted
        super().on_subscribe(subscription)
        if first and not self._left:
            self._finish()

    def on_next(self, item: T, /) -> None:
        present(item, "the element")
        if not self._left:
            return
        self._left -= 1
        if self._left:
            self._pass(item)
            return
        upstream, self._upstream = self._upstream, GONE
        upstream.cancel()
        self._pass(item)
        self._end().on_complete()

    def request(self, n: int, /) -> None:
        if refusal(n) is None:
            with self._lock:
                n = min(n, self._room)
                self._room -= n
            if not n:
                return
        self._upstream.request(n)


class _BatchTaking(Batchwise[T, T], _Taking[T]):
    __slots__ = ()

    def on_next_batch(self, items: Sequence[T], /) -> None:
        present_all(items)
        if len(items) < self._left:
            self._left -= len(items)
            self._pass_all(items)
        elif self._left:
            left, self._left = self._left, 0
            upstream, self._upstream = self._upstream, GONE
            upstream.cancel()
            self._pass_all(items[:left])
            self._end().on_complete()


class _TakingWhile(Sieve[T]):
    """Ends at the first element that ``keep`` does not accept."""

    __slots__ = ()

    def _leave_out(self) -> None:
        self._finish()


class _BatchTakingWhile(Batchwise[T, T], _TakingWhile[T]):
    __slots__ = ()

    def on_next_batch(self, items: Sequence[T], /) -> None:
        present_all(items)
        count = 0
        failure: Exception | None = None
        try:
            for item in items:
                if not self._keep(item):
                    break
                count += 1
        except Exception as error:  # noqa: BLE001 - rule 1.4: told to the subscriber
            failure = error
        self._pass_all(items if count == len(items) else items[:count])
        if failure is not None:
            self._fail(failure)
        elif count < len(items):
            self._finish()


class _After:
    """The state of one `skip`."""

    __slots__ = ("_left",)

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self, _: object) -> bool:
        if not self._left:
            return True
        self._left -= 1
        return False

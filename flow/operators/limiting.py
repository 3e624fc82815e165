"""Operators that end a stream or omit its beginning: `take`, `take_while`, `skip`, `timeout`."""

import threading
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from flow.contracts import Publisher, Subscriber
from flow.demand import add, refusal, subtract
from flow.drain.feed import GONE
from flow.misuse import require_functions
from flow.operators.link import Fitting, In, Link, at_least, lift, present, present_all
from flow.operators.timers import TIMERS, Alarm, Timers, positive_seconds
from flow.operators.transforming import Sieve

__all__ = ["skip", "take", "take_while", "timeout"]


T = TypeVar("T")


def take(count: int) -> Callable[[Publisher[T]], Publisher[T]]:
    """Complete after ``count`` elements, and never request more than that of upstream.

    Args:
        count: At least 0; with 0 nothing is requested, and the end comes without any request.

    Raises:
        ValueError: If ``count`` is not an integer of at least 0.
    """
    at_least("count", count, 0)
    return lift(_Take, lambda: (count,))


class _Take(Link[T, T]):
    """Counts the elements that may still be requested, and those that may still arrive."""

    __slots__ = ("_left", "_lock", "_room")

    def __init__(self, below: Subscriber[T], count: int) -> None:
        super().__init__(below)
        self._lock = threading.Lock()
        self._room = count  # guarded by the lock: any thread may request
        self._left = count

    def _begin(self) -> None:
        if not self._left:
            self._finish()

    def on_next(self, item: T, /) -> None:
        present(item, "the element")
        if not self._left:
            return
        self._left -= 1
        if self._left:
            self._pass(item)
            return
        self._cancel_upstream()
        self._pass(item)
        self._end().on_complete()

    def _on_batch(self, items: Sequence[T], /) -> None:
        present_all(items)
        if len(items) < self._left:
            self._left -= len(items)
            self._pass_all(items)
        elif self._left:
            left, self._left = self._left, 0
            self._cancel_upstream()
            self._pass_all(items[:left])
            self._end().on_complete()

    def _cancel_upstream(self) -> None:
        """Called before the last element is passed on, so that upstream need not make another one."""
        upstream, self._upstream = self._upstream, GONE
        upstream.cancel()

    def request(self, n: int, /) -> None:
        if refusal(n) is None:
            with self._lock:
                n = min(n, self._room)
                self._room -= n
            if not n:
                return
        self._upstream.request(n)


def take_while(keep: Callable[[In], object]) -> Fitting[In, In]:
    """Complete before the first element for which ``keep(element)`` is false.

    If ``keep`` raises, upstream is cancelled and the stream ends in ``on_error``.
    """
    require_functions(keep=keep)
    return lift(_TakeWhile, lambda: (keep,))


class _TakeWhile(Sieve[T]):
    """Ends at the first element that ``keep`` does not accept."""

    __slots__ = ()
    _ends: ClassVar[bool] = True

    def _leave_out(self, count: int) -> None:
        self._finish()


def skip(count: int) -> Callable[[Publisher[T]], Publisher[T]]:
    """Omit the first ``count`` elements; one more is requested in place of each.

    Args:
        count: At least 0.

    Raises:
        ValueError: If ``count`` is not an integer of at least 0.
    """
    at_least("count", count, 0)
    return lift(Sieve, lambda: (_after(count),))


def _after(left: int) -> Callable[[object], bool]:
    def keep(_: object) -> bool:
        nonlocal left
        if not left:
            return True
        left -= 1
        return False

    return keep


def timeout(seconds: float, *, timers: Timers | None = None) -> Callable[[Publisher[T]], Publisher[T]]:
    """End with ``TimeoutError`` if a requested element does not come in time.

    The time starts with the request, and again with each element; without demand it does not run. The error
    is signalled on the thread of the timers, unless another signal is in progress at that moment: then nothing has timed out.

    Args:
        seconds: How long to wait for each element.
        timers: Run the wait; by default a thread of their own.

    Raises:
        ValueError: If ``seconds`` is not a positive number.
    """
    positive_seconds("seconds", seconds)
    waiting = TIMERS if timers is None else timers
    return lift(_Timeout, lambda: (seconds, waiting))


class _Timeout(Link[T, T]):
    """Keeps one alarm: if it rings early, because an element came meanwhile, it is set again for the remaining time.

    Signals and the alarm exclude each other: during a signal, ``busy`` keeps the alarm from ending the stream. Whichever ends
    the stream first takes the reference to the subscriber, so that no other can signal.
    """

    __slots__ = ("_alarm", "_busy", "_deadline", "_demand", "_ended", "_lock", "_seconds", "_timers")

    def __init__(self, below: Subscriber[T], seconds: float, timers: Timers) -> None:
        super().__init__(below)
        self._seconds = seconds
        self._timers = timers
        self._lock = threading.Lock()
        self._demand = 0
        self._busy = True  # until on_subscribe has returned
        self._ended = False
        self._deadline = 0.0
        self._alarm: Alarm | None = None

    def on_next(self, item: T, /) -> None:
        present(item, "the element")
        with self._lock:
            if self._ended:
                return
            self._busy = True
            self._demand = subtract(self._demand, 1)
        self._pass(item)
        self._begin()

    def request(self, n: int, /) -> None:
        if refusal(n) is None:
            with self._lock:
                idle = not self._demand and not self._busy
                self._demand = add(self._demand, n)
                if idle:
                    self._wait()
        super().request(n)

    def _begin(self) -> None:
        """The signal is over: start the time, if there is demand."""
        with self._lock:
            self._busy = False
            if self._demand:
                self._wait()

    def _wait(self) -> None:
        """Start the time of the next element; the caller holds the lock."""
        if not self._ended:
            self._deadline = self._timers.monotonic() + self._seconds
            if self._alarm is None:
                self._alarm = self._timers.after(self._seconds, self._ring)

    def _ring(self) -> None:
        with self._lock:
            self._alarm = None
            if self._ended or self._busy or not self._demand:
                return
            left = self._deadline - self._timers.monotonic()
            if left > 0:
                self._alarm = self._timers.after(left, self._ring)
                return
            self._ended = True  # no element is passed on from now on
        self._finish(TimeoutError(f"no element came for {self._seconds} s"))

    def _end(self) -> Subscriber[T]:
        """Drop both sides once, although alarm and upstream may end the stream at the same time; cancel the alarm."""
        with self._lock:
            below = super()._end()
            self._ended = True
            alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.cancel()
        return below

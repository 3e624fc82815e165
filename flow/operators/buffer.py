"""The operator `buffer`."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from flow.contracts import UNBOUNDED, Publisher, Subscriber
from flow.demand import Tide, refusal
from flow.drain.feed import GONE
from flow.operators.link import Link, at_least, lift, present
from flow.operators.stage import StageQueue, staged
from flow.operators.timers import TIMERS, Alarm, Timers, positive_seconds

__all__ = ["buffer"]

T = TypeVar("T")

_DEFAULT_COUNT: Final = 256


def buffer(
    count: int = _DEFAULT_COUNT, seconds: float | None = None, *, timers: Timers | None = None
) -> Callable[[Publisher[T]], Publisher[list[T]]]:
    """Publish lists of ``count`` elements; the last may be shorter, none is empty.

    Without ``seconds`` there is no queue: a request for a list requests ``count`` elements. An error of upstream
    discards the incomplete list.

    Args:
        count: Number of elements of a list, at least 1.
        seconds: Longest time for which a list waits for its elements, from the first one on; then it is published
            incomplete, on the thread of the timers. Without demand it keeps waiting, and grows up to ``count``. At most
            ``count`` elements are requested and not delivered.
        timers: Run the wait; by default a thread of their own. Use `publish_on` to process the lists elsewhere.

    Raises:
        ValueError: If a number is out of its bounds.
    """
    at_least("count", count)
    if seconds is None:
        return lift(_Counted, lambda: (count,))
    wait = positive_seconds("seconds", seconds)
    waiting = TIMERS if timers is None else timers
    return staged(lambda source: _Timed(source, count, wait, waiting))


class _Counted(Link[T, list[T]]):
    """Requests only whole lists; demand thus covers the last, shorter list too."""

    __slots__ = ("_count", "_items")

    def __init__(self, below: Subscriber[list[T]], count: int) -> None:
        super().__init__(below)
        self._count = count
        self._items: list[T] = []

    def on_next(self, item: T, /) -> None:
        present(item, "the element")
        self._items.append(item)
        if len(self._items) == self._count:
            items, self._items = self._items, []
            self._pass(items)

    def on_complete(self) -> None:
        self._upstream = GONE
        items, self._items = self._items, []
        if items:
            self._pass(items)
        super().on_complete()

    def request(self, n: int, /) -> None:
        self._upstream.request(min(UNBOUNDED, n * self._count) if refusal(n) is None else n)


class _Timed(StageQueue[T, list[T]]):
    """Builds one list at a time; the first element of a list sets its alarm."""

    __slots__ = ("_alarm", "_count", "_due", "_lists", "_lock", "_seconds", "_timers")

    def __init__(self, source: Publisher[T], count: int, seconds: float, timers: Timers) -> None:
        # Refilled by exactly the number of delivered elements: else the last places of a list could never be filled.
        super().__init__(source, Tide(count, 1))
        self._count = count
        self._seconds = seconds
        self._timers = timers
        self._lock = threading.Lock()
        self._alarm: Alarm | None = None
        self._due = False
        self._lists = 0

    def pull(self, limit: int, /) -> Sequence[list[T]]:
        inlet = self._inlet
        inlet.settle()
        size = len(inlet)
        with self._lock:
            if not size or (size < self._count and not self._due and not inlet.ended):
                return ()
        # First the alarm, then the elements: an element that arrives in between sets another alarm, which has no effect.
        self._next_list()
        return (inlet.take(self._count),)

    def release(self) -> None:
        super().release()
        self._next_list()

    def _wake(self) -> None:
        """Wake the drain if a list is ready; called by upstream."""
        with self._lock:
            if self._alarm is None and not self._due and len(self._inlet):
                self._alarm = self._timers.after(self._seconds, partial(self._ring, self._lists))
        if len(self._inlet) >= self._count or self._inlet.ended:
            super()._wake()

    def _ring(self, number: int) -> None:
        with self._lock:
            if number != self._lists:
                return
            self._alarm = None
            self._due = len(self._inlet) > 0
        super()._wake()

    def _next_list(self) -> None:
        with self._lock:
            self._lists += 1
            self._due = False
            alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.cancel()

"""Policies for elements that arrive faster than they are requested."""

import threading
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

__all__ = ["KEPT", "Backlog", "Meter", "Overflow", "OverflowStatistics"]

T = TypeVar("T")


class Overflow(Enum):
    """What a bounded backlog does with an element that exceeds its capacity.

    Other libraries use different names for these policies; here the name says which element is discarded.
    """

    ERROR = "ERROR"
    """The stream ends with an error: no loss goes unnoticed. The default everywhere."""

    DROP_OLDEST = "DROP_OLDEST"
    """The element that has waited longest is discarded, the incoming one is kept."""

    DROP_LATEST = "DROP_LATEST"
    """The incoming element is discarded, the waiting ones are kept."""

    LATEST = "LATEST"
    """Only the newest element is kept, whatever the capacity: each element replaces the waiting one."""

    BUFFER = "BUFFER"
    """No element is discarded, whatever the capacity: memory grows for as long as the source is faster."""


@dataclass(frozen=True, slots=True)
class OverflowStatistics:
    """The counts of a `Meter` at one moment.

    Attributes:
        received: Elements that arrived.
        dropped: Elements that were discarded by the policy.
        buffered: Elements that wait now.
        greatest: Most elements that ever waited, for all subscribers together.
    """

    received: int
    dropped: int
    buffered: int
    greatest: int


class Meter:
    """Counts waiting and discarded elements where elements arrive faster than they are requested.

    Pass one to one or more operators, and read it at any time, from any thread::

        meter = flow.Meter()
        ticks = flow.Flow(source).on_backpressure_buffer(100, flow.Overflow.DROP_OLDEST, meter=meter)
        ...
        meter.statistics().dropped
    """

    __slots__ = ("_buffered", "_dropped", "_greatest", "_lock", "_received")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._received = self._dropped = self._buffered = self._greatest = 0

    def statistics(self) -> OverflowStatistics:
        """Return the counts at this moment, for all subscribers together."""
        with self._lock:
            return OverflowStatistics(self._received, self._dropped, self._buffered, self._greatest)

    def count(self, *, received: int = 0, dropped: int = 0, buffered: int = 0) -> None:
        """Add to the counts; ``buffered`` may be negative."""
        with self._lock:
            self._received += received
            self._dropped += dropped
            self._buffered += buffered
            self._greatest = max(self._greatest, self._buffered)


class _Kept:
    __slots__ = ()


KEPT: Final = _Kept()
"""Result of `Backlog.put` if no element was discarded."""


class Backlog(Generic[T]):
    """Elements that arrived and were not taken yet, oldest first. Not thread-safe: its owner holds a lock.

    Attributes:
        overflow: Which element is discarded when there is one too many.
        capacity: Most elements that wait; ``None`` if there is no bound.
    """

    __slots__ = ("_meter", "_waiting", "capacity", "overflow")

    def __init__(self, overflow: Overflow, capacity: int, meter: Meter | None = None) -> None:
        """Check both arguments.

        Args:
            overflow: What to do with an element that exceeds the capacity.
            capacity: At least 1. LATEST always holds 1, BUFFER any number.
            meter: Counts arriving, waiting and discarded elements.

        Raises:
            ValueError: If ``overflow`` or ``capacity`` is invalid.
            TypeError: If ``meter`` is not a `Meter`.
        """
        if not isinstance(overflow, Overflow):
            raise ValueError(f"overflow: {overflow!r}; a member of flow.Overflow is expected")
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise ValueError(f"capacity: {capacity!r}; an integer of at least 1 is expected")
        require_meter(meter)
        self._meter = meter
        self.overflow: Overflow = overflow
        self.capacity: int | None = capacity
        if overflow is Overflow.LATEST:
            self.capacity = 1
        elif overflow is Overflow.BUFFER:
            self.capacity = None
        self._waiting: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: T) -> T | _Kept:
        """Add an element and return the discarded one, or `KEPT`.

        With ERROR the incoming element is returned, and the owner ends the stream.
        """
        waiting = self._waiting
        room = self.capacity is None or len(waiting) < self.capacity
        if self._meter is not None:
            self._meter.count(received=1, buffered=int(room), dropped=int(not room))
        if room:
            waiting.append(item)
            return KEPT
        if self.overflow in (Overflow.ERROR, Overflow.DROP_LATEST):
            return item
        evicted = waiting.popleft()
        waiting.append(item)
        return evicted

    def take(self, limit: int) -> list[T]:
        """Remove and return the oldest elements, at most ``limit``."""
        waiting = self._waiting
        taken = [waiting.popleft() for _ in range(min(limit, len(waiting)))]
        if self._meter is not None:
            self._meter.count(buffered=-len(taken))
        return taken

    def clear(self) -> None:
        """Discard all elements."""
        if self._meter is not None:
            self._meter.count(buffered=-len(self._waiting))
        self._waiting.clear()


def require_meter(meter: object) -> None:
    """Refuse an argument that is not a meter.

    Raises:
        TypeError: If it is neither a `Meter` nor ``None``.
    """
    if meter is not None and not isinstance(meter, Meter):
        raise TypeError(f"meter: {meter!r}; a flow.Meter or None is expected")

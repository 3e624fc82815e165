"""What becomes of elements that come faster than they are asked for."""

import threading
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

__all__ = ["KEPT", "Backlog", "Meter", "Overflow", "OverflowStatistics"]

T = TypeVar("T")


class Overflow(Enum):
    """What a bounded backlog does with one element more than it holds.

    The names that other libraries give to these differ; here the name says which element goes.
    """

    ERROR = "ERROR"
    """The stream ends with an error: nothing is lost unnoticed. The default everywhere."""

    DROP_OLDEST = "DROP_OLDEST"
    """The one that has waited longest goes, the incoming one is kept."""

    DROP_LATEST = "DROP_LATEST"
    """The incoming one goes, what waits is kept."""

    LATEST = "LATEST"
    """Only the newest is kept, whatever the capacity: each element replaces the one that waits."""

    BUFFER = "BUFFER"
    """Nothing goes and nothing is bounded, whatever the capacity: memory grows for as long as the source is faster."""


@dataclass(frozen=True, slots=True)
class OverflowStatistics:
    """What a `Meter` has counted, at one moment.

    Attributes:
        received: Elements that came.
        dropped: Elements that went, by the policy.
        buffered: Elements that wait now.
        greatest: Most elements that ever waited, for all subscribers together.
    """

    received: int
    dropped: int
    buffered: int
    greatest: int


class Meter:
    """Counts what waits, and what goes, where elements come faster than they are asked for.

    Give one to an operator, or to some, and look at it at any time, from any thread::

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
        """Tell the numbers of this moment, of all subscribers together."""
        with self._lock:
            return OverflowStatistics(self._received, self._dropped, self._buffered, self._greatest)

    def count(self, *, received: int = 0, dropped: int = 0, buffered: int = 0) -> None:
        """Add to the numbers; what is buffered may become less."""
        with self._lock:
            self._received += received
            self._dropped += dropped
            self._buffered += buffered
            self._greatest = max(self._greatest, self._buffered)


class _Kept:
    __slots__ = ()


KEPT: Final = _Kept()
"""What `Backlog.put` returns if no element had to go."""


class Backlog(Generic[T]):
    """Elements that came and were not taken yet, oldest first. Not thread-safe: its owner holds a lock.

    Attributes:
        overflow: Which element goes when there is one too many.
        capacity: Most elements that wait; ``None`` if nothing bounds them.
    """

    __slots__ = ("_meter", "_waiting", "capacity", "overflow")

    def __init__(self, overflow: Overflow, capacity: int, meter: Meter | None = None) -> None:
        """Check both.

        Args:
            overflow: What to do with one element too many.
            capacity: At least 1. LATEST always holds 1, BUFFER any number.
            meter: Counts what comes, waits and goes.

        Raises:
            ValueError: If one is out of its bounds.
            TypeError: If the meter is none.
        """
        if not isinstance(overflow, Overflow):
            raise ValueError(f"overflow: {overflow!r}; a member of flow.Overflow is expected")
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise ValueError(f"capacity: {capacity!r}; an integer of at least 1 is expected")
        require_meter(meter)
        self._meter = meter
        self.overflow = overflow
        self.capacity: int | None = capacity
        if overflow is Overflow.LATEST:
            self.capacity = 1
        elif overflow is Overflow.BUFFER:
            self.capacity = None
        self._waiting: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: T) -> T | _Kept:
        """Add an element and return the one that had to go, or `KEPT`.

        With ERROR that is the incoming one, and its owner ends the stream.
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
        """Remove and return the oldest, at most ``limit``."""
        waiting = self._waiting
        taken = [waiting.popleft() for _ in range(min(limit, len(waiting)))]
        if self._meter is not None:
            self._meter.count(buffered=-len(taken))
        return taken

    def clear(self) -> None:
        """Forget everything."""
        if self._meter is not None:
            self._meter.count(buffered=-len(self._waiting))
        self._waiting.clear()


def require_meter(meter: object) -> None:
    """Refuse what cannot count.

    Raises:
        TypeError: If it is neither a `Meter` nor ``None``.
    """
    if meter is not None and not isinstance(meter, Meter):
        raise TypeError(f"meter: {meter!r}; a flow.Meter or None is expected")

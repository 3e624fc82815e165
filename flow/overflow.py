"""What becomes of elements that come faster than they are asked for."""

from collections import deque
from enum import Enum
from typing import Final, Generic, TypeVar

__all__ = ["KEPT", "Backlog", "Overflow"]

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

    __slots__ = ("_waiting", "capacity", "overflow")

    def __init__(self, overflow: Overflow, capacity: int) -> None:
        """Check both.

        Args:
            overflow: What to do with one element too many.
            capacity: At least 1. LATEST always holds 1, BUFFER any number.

        Raises:
            ValueError: If one is out of its bounds.
        """
        if not isinstance(overflow, Overflow):
            raise ValueError(f"overflow: {overflow!r}; a member of flow.Overflow is expected")
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise ValueError(f"capacity: {capacity!r}; an integer of at least 1 is expected")
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
        if self.capacity is None or len(waiting) < self.capacity:
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
        return [waiting.popleft() for _ in range(min(limit, len(waiting)))]

    def clear(self) -> None:
        """Forget everything."""
        self._waiting.clear()

"""A ring of the newest elements by sequence number, and a count of subscriptions by position."""

from typing import Any, Generic, TypeVar

__all__ = ["Positions", "RingBuffer"]

T = TypeVar("T")


class Positions:
    """The number of subscriptions at each sequence number, and the lowest of these numbers."""

    __slots__ = ("_counts", "_lowest")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._lowest = 0

    def enter(self, sequence: int) -> None:
        """Add a subscription at a sequence number."""
        if not self._counts or sequence < self._lowest:
            self._lowest = sequence
        self._counts[sequence] = self._counts.get(sequence, 0) + 1

    def leave(self, sequence: int) -> bool:
        """Remove a subscription; returns whether it was the last one at the lowest sequence number."""
        count = self._counts.pop(sequence) - 1
        if count:
            self._counts[sequence] = count
            return False
        if sequence != self._lowest:
            return False
        self._lowest = min(self._counts, default=0)
        return True

    def move(self, sequence: int, to: int) -> bool:
        """Move a subscription forward; returns whether it was the last one at the lowest sequence number."""
        self.enter(to)
        return self.leave(sequence)

    def least(self, otherwise: int) -> int:
        """The lowest sequence number, at most ``otherwise``; ``otherwise`` if there are no subscriptions."""
        return min(self._lowest, otherwise) if self._counts else otherwise


class RingBuffer(Generic[T]):
    """The elements from sequence number ``start`` up to, but not including, ``end``.

    Args:
        capacity: Most elements in the ring.
    """

    __slots__ = ("_slots", "capacity", "end", "start")

    def __init__(self, capacity: int) -> None:
        self.capacity: int = capacity
        self.start: int = 0
        self.end: int = 0
        self._slots: list[Any] = [None] * capacity

    def append(self, item: T) -> None:
        """Write one element; overwrites the oldest one if the ring is full."""
        if self.end - self.start == self.capacity:
            self.start += 1
        self._slots[self.end % self.capacity] = item
        self.end += 1

    def read(self, sequence: int, limit: int) -> list[T]:
        """Copy the elements from ``sequence`` on, at most ``limit``."""
        count = min(limit, self.end - sequence)
        if count <= 0:
            return []
        first = sequence % self.capacity
        last = first + count
        if last <= self.capacity:
            return self._slots[first:last]
        return self._slots[first:] + self._slots[: last - self.capacity]

    def trim(self, sequence: int) -> None:
        """Drop the elements before a sequence number."""
        while self.start < sequence:
            self._slots[self.start % self.capacity] = None
            self.start += 1

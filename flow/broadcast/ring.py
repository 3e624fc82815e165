"""The newest elements by sequence, and how many subscriptions stand where."""

from typing import Any, Generic, TypeVar

__all__ = ["Positions", "RingBuffer"]

T = TypeVar("T")


class Positions:
    """How many subscriptions stand at which sequence, and the lowest of these."""

    __slots__ = ("_counts", "_lowest")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._lowest = 0

    def enter(self, sequence: int) -> None:
        """Count one more."""
        if not self._counts or sequence < self._lowest:
            self._lowest = sequence
        self._counts[sequence] = self._counts.get(sequence, 0) + 1

    def leave(self, sequence: int) -> bool:
        """Count one fewer; answers whether it was the last at the lowest sequence."""
        count = self._counts.pop(sequence) - 1
        if count:
            self._counts[sequence] = count
            return False
        if sequence != self._lowest:
            return False
        self._lowest = min(self._counts, default=0)
        return True

    def move(self, sequence: int, to: int) -> bool:
        """Let one go forward; answers whether it was the last at the lowest sequence."""
        self.enter(to)
        return self.leave(sequence)

    def least(self, otherwise: int) -> int:
        """The lowest sequence; ``otherwise`` if that is lower, or if there is none."""
        return min(self._lowest, otherwise) if self._counts else otherwise


class RingBuffer(Generic[T]):
    """The elements from ``start`` up to ``end``, by sequence.

    Args:
        capacity: Most elements that are kept.
    """

    __slots__ = ("_slots", "capacity", "end", "start")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.start = 0
        self.end = 0
        self._slots: list[Any] = [None] * capacity

    def append(self, item: T) -> None:
        """Write one element; over the oldest one if the ring is full."""
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
        """Let go of everything before a sequence."""
        while self.start < sequence:
            self._slots[self.start % self.capacity] = None
            self.start += 1

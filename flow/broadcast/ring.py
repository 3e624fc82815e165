"""One ring for all subscribers: the newest elements, and how many subscribers stand where."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flow.broadcast.company import Company
from flow.broadcast.policy import Start
from flow.drain import Outcome

if TYPE_CHECKING:
    from flow.broadcast.cursor import Cursor

__all__ = ["Census", "Ring"]

T = TypeVar("T")


class Census:
    """How many cursors stand at which sequence, and which is the lowest; a step forward costs the same for any number."""

    __slots__ = ("_counts", "_lowest", "_total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._total = 0
        self._lowest = 0

    def __len__(self) -> int:
        return self._total

    def enter(self, sequence: int) -> None:
        """Count one more cursor."""
        self._lowest = min(self._lowest, sequence) if self._total else sequence
        self._total += 1
        self._add(sequence, 1)

    def leave(self, sequence: int) -> None:
        """Count one fewer."""
        self._total -= 1
        self._add(sequence, -1)

    def move(self, sequence: int, to: int) -> None:
        """Let one cursor go forward."""
        self._add(sequence, -1)
        self._add(to, 1)

    def evict(self, sequence: int) -> None:
        """Let all that stand at a sequence go to the next."""
        count = self._counts.pop(sequence, 0)
        if count:
            self._add(sequence + 1, count)

    def least(self, otherwise: int) -> int:
        """Where the last one stands; ``otherwise`` if there is none."""
        if not self._total:
            return otherwise
        while self._lowest not in self._counts:  # at most one step for each element that was written
            self._lowest += 1
        return self._lowest

    def _add(self, sequence: int, count: int) -> None:
        count += self._counts.get(sequence, 0)
        if count:
            self._counts[sequence] = count
        else:
            self._counts.pop(sequence, None)


class Ring(Generic[T]):
    """The elements from ``start`` up to ``end``, by sequence; whatever it does, the caller holds its lock.

    What all cursors have passed is let go of, except for what is replayed. A cursor that was overtaken counts as
    standing at ``start``.

    Args:
        capacity: Most elements that are kept.
        replay: How many of the newest are kept for those who come later.
        on_room: Called without the lock when the slowest of the BLOCK cursors has gone forward, or has left.

    Attributes:
        cursors: Who reads; replaced as a whole, so that it can be iterated over without the lock.
        company: Those of them that are served together.
        loose: The others.
        choosy: Those of them for which the incoming element goes; they are loose.
        positions: Where the loose ones stand.
        gates: Where the loose BLOCK cursors stand.
        outcome: How the stream ended.
    """

    __slots__ = (
        "_slots",
        "capacity",
        "choosy",
        "company",
        "cursors",
        "end",
        "gates",
        "lock",
        "loose",
        "on_room",
        "outcome",
        "positions",
        "replay",
        "start",
    )

    def __init__(self, capacity: int, replay: int, on_room: Callable[[], object]) -> None:
        self.lock = threading.Lock()
        self.capacity = capacity
        self.replay = replay
        self.on_room = on_room
        self.cursors: tuple[Cursor[T], ...] = ()
        self.loose: tuple[Cursor[T], ...] = ()
        self.choosy: tuple[Cursor[T], ...] = ()
        self.positions = Census()
        self.gates = Census()
        self.start = 0
        self.end = 0
        self.outcome: Outcome | None = None
        self._slots: list[Any] = [None] * capacity
        self.company: Company[T] = Company(self)

    @property
    def gate(self) -> int:
        """Where the slowest BLOCK cursor stands; the end if there is none."""
        gate = self.gates.least(self.end)
        return min(gate, self.company.place) if self.company.gates else gate

    @property
    def full(self) -> bool:
        """Whether one element more would overtake a BLOCK cursor."""
        return self.end - self.gate >= self.capacity

    @property
    def greatest_lag(self) -> int:
        """How many elements wait for the slowest subscriber."""
        waiting = max((each.waiting for each in self.loose), default=0)
        company = self.company
        return max(waiting, company.members[0].waiting) if company.members else waiting

    def begin(self, start: Start) -> int:
        """Where somebody who subscribes now begins."""
        return max(self.start, self.end - self.replay) if start is Start.REPLAY else self.end

    def append(self, item: T) -> None:
        """Write one element; a cursor that is a whole ring behind is overtaken."""
        for cursor in self.choosy:
            cursor.refuse_if_full()
        if self.end - self.start == self.capacity:
            self.positions.evict(self.start)
            self.start += 1
        self._slots[self.end % self.capacity] = item
        self.end += 1
        self.trim()

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

    def trim(self) -> None:
        """Let go of what nobody will read."""
        keep = min(self.positions.least(self.end), self.end - self.replay)
        if self.company.members:
            keep = min(keep, self.company.place)
        while self.start < keep:
            self._slots[self.start % self.capacity] = None
            self.start += 1

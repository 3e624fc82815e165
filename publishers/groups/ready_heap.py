"""Candidates for delivery: redeliveries first, then new units, each in log order."""

from collections import deque
from heapq import heappop, heappush
from typing import Final

from publishers.groups.state import DeliveryState
from publishers.groups.unit import GroupUnit
from publishers.model.position import Position

__all__ = ["ReadyHeap"]

_SLACK: Final = 64
_PARKED: Final = DeliveryState.PARKED
_READY: Final = (_PARKED, DeliveryState.DUE)


class ReadyHeap:
    """A heap of units. Stale entries stay in it until they outnumber the others.

    Args:
        units: The units that are not done, by position.

    Attributes:
        heap: The pushed entries: whether the unit is new, and its position; a heap with the least entry first.
    """

    def __init__(self, units: dict[Position, GroupUnit]) -> None:
        self._units = units
        self.heap: list[tuple[bool, Position]] = []
        self._fresh: deque[GroupUnit] = deque()  # new units, in log order

    def __len__(self) -> int:
        return len(self.heap) + len(self._fresh)

    def push(self, unit: GroupUnit) -> None:
        """Adds a unit that may be delivered."""
        heappush(self.heap, (unit.state is _PARKED, unit.position))
        if len(self.heap) > 2 * len(self._units) + _SLACK:
            self.heap = sorted(set(self.heap))

    def push_fresh(self, units: list[GroupUnit]) -> None:
        """Adds units that were just read, behind all earlier ones."""
        self._fresh += units
        if len(self._fresh) > 2 * len(self._units) + _SLACK:
            self._fresh = deque(one for one in self._fresh if one.state is _PARKED)

    def pop(self, other: "ReadyHeap", now: float) -> GroupUnit | None:
        """Takes the first deliverable unit of two heaps; None if there is none. A delayed unit is dropped: its timer pushes it again."""
        one, two, fresh = self.heap, other.heap, self._fresh
        while one or two or fresh:
            heap = two if not one or (two and two[0] < one[0]) else one
            if fresh and (not heap or (True, fresh[0].position) < heap[0]):
                unit: GroupUnit | None = fresh.popleft()
            else:
                unit = self._units.get(heappop(heap)[1])
            if unit is None or unit.state not in _READY:
                continue
            if unit.state is _PARKED or unit.until <= now:
                return unit
        return None

    def first_fresh(self) -> Position | None:
        """Position of the first new unit that was not popped yet; None if there is none."""
        fresh = self._fresh
        while fresh and fresh[0].state is not _PARKED:
            fresh.popleft()
        return fresh[0].position if fresh else None

    def places(self) -> set[Position]:
        """The positions of all entries."""
        return {place for _, place in self.heap} | {unit.position for unit in self._fresh}

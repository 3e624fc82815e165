"""What comes due: deliveries that time out, and those that were delayed."""

from heapq import heapify, heappop, heappush
from typing import Final

from publishers.groups.state import DeliveryState
from publishers.groups.unit import GroupUnit
from publishers.model.position import Position

__all__ = ["GroupTimers"]

_SLACK: Final = 64
_TIMED: Final = (DeliveryState.PENDING, DeliveryState.DUE)


class GroupTimers:
    """One entry a unit, more or less: those that count no more are left where they are, until they are more than the others.

    Args:
        units: Those that are not done.
    """

    def __init__(self, units: dict[Position, GroupUnit]) -> None:
        self._units = units
        self._heap: list[tuple[float, Position]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, unit: GroupUnit, until: float) -> None:
        """Something is to be looked at."""
        unit.until = until
        if unit.timed is None or until < unit.timed:
            unit.timed = until
            heappush(self._heap, (until, unit.position))
            if len(self._heap) > 2 * len(self._units) + _SLACK:
                self._tidy()

    def next(self) -> float | None:
        """When something may be due; None if nothing will be."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[GroupUnit]:
        """What has timed out, and what was delayed until now."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            when, position = heappop(self._heap)
            unit = self._units.get(position)
            if unit is None or unit.timed != when:
                continue
            unit.timed = None
            if unit.state in _TIMED:
                if unit.until <= now:
                    found.append(unit)
                else:
                    self.set(unit, unit.until)
        return found

    def _tidy(self) -> None:
        self._heap = [(unit.timed, unit.position) for unit in self._units.values() if unit.timed is not None]
        heapify(self._heap)

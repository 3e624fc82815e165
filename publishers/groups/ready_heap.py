"""What may be delivered now, more or less: what is to be delivered again first, each as it lies in the log."""

from heapq import heappop, heappush
from typing import Final

from publishers.groups.state import DeliveryState
from publishers.groups.unit import GroupUnit
from publishers.model.position import Position

__all__ = ["ReadyHeap"]

_SLACK: Final = 64
_READY: Final = (DeliveryState.PARKED, DeliveryState.DUE)


class ReadyHeap:
    """Entries that count no more are left where they are until they are more than the others.

    Args:
        units: What is not done.
    """

    def __init__(self, units: dict[Position, GroupUnit]) -> None:
        self._units = units
        self._heap: list[tuple[bool, Position]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, unit: GroupUnit) -> None:
        """Something may be delivered."""
        heappush(self._heap, (not unit.count, unit.position))
        if len(self._heap) > 2 * len(self._units) + _SLACK:
            self._heap = sorted(set(self._heap))

    def pop(self, other: "ReadyHeap", now: float) -> GroupUnit | None:
        """The first of two heaps; what is delayed is not, as the timers tell when it is."""
        one, two = self._heap, other._heap  # noqa: SLF001 - of the same class
        while one or two:
            _, position = heappop(two if not one or (two and two[0] < one[0]) else one)
            unit = self._units.get(position)
            if unit is None or unit.state not in _READY:
                continue
            if unit.state is DeliveryState.PARKED or unit.until <= now:
                return unit
        return None

"""What comes due: deliveries that time out, and those that were delayed."""

from collections import deque
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
        self._batches: deque[tuple[float, list[GroupUnit]]] = (
            deque()
        )  # what was delivered at once; in order, as ``ack_wait`` is one
        self._batched = 0

    def __len__(self) -> int:
        return len(self._heap) + self._batched

    def set(self, unit: GroupUnit, until: float) -> None:
        """Something is to be looked at."""
        unit.until = until
        if unit.timed is None or until < unit.timed:
            unit.timed = until
            heappush(self._heap, (until, unit.position))
            self._tidy()

    def set_all(self, units: list[GroupUnit], until: float) -> None:
        """Some that were delivered at once, later than what was before, are to be looked at."""
        self._tidy()
        for unit in units:
            unit.until = until
            if unit.timed is None or until < unit.timed:
                unit.timed = until
        self._batches.append((until, units))
        self._batched += len(units)

    def next(self) -> float | None:
        """When something may be due; None if nothing will be."""
        times = [queue[0][0] for queue in (self._heap, self._batches) if queue]
        return min(times, default=None)

    def due(self, now: float) -> list[GroupUnit]:
        """What has timed out, and what was delayed until now."""
        found: list[GroupUnit] = []
        while self._batches and self._batches[0][0] <= now:
            when, units = self._batches.popleft()
            self._batched -= len(units)
            for unit in units:
                self._look(unit, when, now, found)
        while self._heap and self._heap[0][0] <= now:
            when, position = heappop(self._heap)
            known = self._units.get(position)
            if known is not None:
                self._look(known, when, now, found)
        return found

    def _look(self, unit: GroupUnit, when: float, now: float, found: list[GroupUnit]) -> None:
        if unit.timed != when:
            return
        unit.timed = None
        if unit.state in _TIMED:
            if unit.until <= now:
                found.append(unit)
            else:
                self.set(unit, unit.until)

    def _tidy(self) -> None:
        if len(self) <= 2 * len(self._units) + _SLACK:
            return
        self._heap = [(unit.timed, unit.position) for unit in self._units.values() if unit.timed is not None]
        heapify(self._heap)
        self._batches.clear()
        self._batched = 0

"""Timers of deliveries: timeouts of pending ones, and delays of due ones."""

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
    """About one entry a unit. Stale entries stay until they outnumber the others.

    Args:
        units: The units that are not done, by position.
    """

    def __init__(self, units: dict[Position, GroupUnit]) -> None:
        self._units = units
        self._heap: list[tuple[float, Position]] = []
        self._batches: deque[tuple[float, list[GroupUnit]]] = (
            deque()
        )  # units delivered together, with their timeout; in order of time, because ack_wait is constant
        self._batched = 0

    def __len__(self) -> int:
        return len(self._heap) + self._batched

    def set(self, unit: GroupUnit, until: float) -> None:
        """Sets the time of a unit."""
        unit.until = until
        if unit.timed is None or until < unit.timed:
            unit.timed = until
            heappush(self._heap, (until, unit.position))
            self._tidy()

    def set_all(self, units: list[GroupUnit], until: float) -> None:
        """Sets the time of units delivered together; ``until`` is not before that of the previous call."""
        self._tidy()
        for unit in units:
            unit.until = until
            if unit.timed is None or until < unit.timed:
                unit.timed = until
        self._batches.append((until, units))
        self._batched += len(units)

    def next(self) -> float | None:
        """The earliest time at which a unit may be due; None if there is no entry."""
        times = [queue[0][0] for queue in (self._heap, self._batches) if queue]
        return min(times, default=None)

    def due(self, now: float) -> list[GroupUnit]:
        """Removes and returns the units whose time has come."""
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

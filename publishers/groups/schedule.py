"""When units are delivered: candidates in order, timers of deliveries and delays, and the breaker that pauses a group that fails."""

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import Final

from publishers.groups.state import DeliveryState
from publishers.groups.unit import GroupUnit
from publishers.model.position import Position

__all__ = ["GroupBreaker", "GroupTimers", "ReadyHeap"]


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


BREAKER_WINDOW: Final = 100
"""Number of the last deliveries that count."""


class GroupBreaker:
    """The outcomes of the last deliveries.

    Attributes:
        failures: Number of failures among them.
    """

    def __init__(self) -> None:
        self.failures: int = 0
        self._outcomes: deque[bool] = deque(maxlen=BREAKER_WINDOW)

    @property
    def tripped(self) -> bool:
        """Whether there were at least 100 deliveries, and more than half of the last 100 failed."""
        return len(self._outcomes) == BREAKER_WINDOW and 2 * self.failures > BREAKER_WINDOW

    def note(self, *, failed: bool, count: int = 1) -> None:
        """Records the outcome of ``count`` deliveries."""
        for _ in range(min(count, BREAKER_WINDOW) if failed or self.failures else 0):
            if len(self._outcomes) == BREAKER_WINDOW:
                self.failures -= self._outcomes[0]
            self._outcomes.append(failed)
            self.failures += failed
        if not self.failures:
            self._outcomes.extend(repeat(False, min(count, BREAKER_WINDOW)))

    def clear(self) -> None:
        """Forgets all outcomes."""
        self.failures = 0
        self._outcomes.clear()

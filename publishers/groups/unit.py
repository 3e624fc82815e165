"""What a group delivers as one: a change, or a transaction; and for which others it waits."""

from typing import NamedTuple

from publishers.groups.lines import GroupLine, LinePlace
from publishers.groups.state import DeliveryState
from publishers.model.position import Position

__all__ = ["EVERYTHING", "GroupLane", "GroupUnit", "Holder", "LanePlan"]

GroupLane = tuple[str | None, str | None]
"""Entity type and key. Without a key it is a barrier for its entity type; without either, for everything."""

EVERYTHING: GroupLane = (None, None)


class Holder(NamedTuple):
    """To which consumer something was delivered, in which generation of that."""

    consumer: str
    generation: int


class GroupUnit:
    """Something that was read and is not done.

    Attributes:
        position: Of the change, or of the beginning of the transaction.
        lanes: For whose earlier ones it waits.
        state: What has become of it.
        count: How often it was delivered.
        holder: To which consumer it was delivered last.
        first_us: When it was first delivered, by the wall clock in microseconds; 0 if it was not.
        last_us: When it was last delivered, likewise.
        last: The same by the monotonic clock.
        until: If it is pending, when it times out; if it is due, from when on.
        late: Whether it has timed out, or came behind one of its key that has, and was given to no consumer since.
        timed: The earliest entry in the timers that looks for it.
        errors: What it was refused with first, and last.
        waiters: Those that were found to wait for it.
        blocker: The one that it was found to wait for.
        recalled: Whether it was given again as history, or claimed to be looked at, which counts as no delivery.
        order: Its place among all.
        places: Its places in the lines of its lanes.
    """

    __slots__ = (
        "blocker",
        "count",
        "errors",
        "first_us",
        "holder",
        "lanes",
        "last",
        "last_us",
        "late",
        "order",
        "places",
        "position",
        "recalled",
        "state",
        "timed",
        "until",
        "waiters",
    )

    def __init__(self, position: Position, lanes: tuple[GroupLane, ...]) -> None:
        self.position = position
        self.lanes = lanes
        self.state = DeliveryState.PARKED
        self.count = 0
        self.holder: Holder | None = None
        self.first_us = 0
        self.last_us = 0
        self.last = 0.0
        self.until = 0.0
        self.late = False
        self.timed: float | None = None
        self.errors: tuple[str, str] | None = None
        self.waiters: dict[GroupUnit, None] = {}
        self.blocker: GroupUnit | None = None
        self.recalled = False
        self.order: LinePlace[GroupUnit] | None = None
        self.places: list[tuple[dict[GroupLane, GroupLine[GroupUnit]], GroupLane, LinePlace[GroupUnit]]] = []

    def blame(self, error: str) -> None:
        """Notes why a delivery of it failed."""
        self.errors = (error if self.errors is None else self.errors[0], error)


class LanePlan:
    """Which unit waits for which: the lines of all keys and entity types. Nothing of it is left behind by what is done.

    Attributes:
        order: Every unit, as they lie in the log.
    """

    def __init__(self) -> None:
        self.order: GroupLine[GroupUnit] = GroupLine()
        self._keys: dict[GroupLane, GroupLine[GroupUnit]] = {}
        self._types: dict[GroupLane, GroupLine[GroupUnit]] = {}
        self._barriers: dict[GroupLane, GroupLine[GroupUnit]] = {}

    def add(self, unit: GroupUnit) -> None:
        """A unit comes behind all others."""
        unit.order = self.order.append(unit)
        for entity_type in {entity_type for entity_type, _ in unit.lanes}:
            if entity_type is not None:
                self._enter(self._types, (entity_type, None), unit)
        for lane in unit.lanes:
            self._enter(self._keys if lane[1] is not None else self._barriers, lane, unit)

    def remove(self, unit: GroupUnit) -> None:
        """A unit is done."""
        if unit.order is not None:
            self.order.remove(unit.order)
            unit.order = None
        for lines, lane, place in unit.places:
            place.line.remove(place)
            if place.line.head is None:
                del lines[lane]
        unit.places = []

    def behind(self, unit: GroupUnit) -> list[GroupUnit]:
        """The next units of its keys, which were read after it."""
        return [
            place.behind.item
            for lines, _, place in unit.places
            if lines is self._keys and place.behind is not None
        ]

    def blocker(self, unit: GroupUnit, holder: Holder) -> tuple[GroupUnit, bool] | None:
        """What keeps a unit from a consumer.

        Returns:
            An earlier unit, and whether it is one of the same key, so that both may be at one consumer; None if nothing does.
        """
        barrier = self._first(self._barriers, EVERYTHING)
        if barrier is not None and barrier.position < unit.position:
            return barrier, False
        for lane in unit.lanes:
            if lane[1] is None:
                first = self.order.first if lane[0] is None else self._first(self._types, lane)
                if first is not unit and first is not None:
                    return first, False
            else:
                barrier = self._first(self._barriers, (lane[0], None))
                if barrier is not None and barrier.position < unit.position:
                    return barrier, False
        for lines, _, place in unit.places:
            if lines is self._keys and place.before is not None:
                before = place.before.item
                if before.state is not DeliveryState.PENDING or before.holder != holder:
                    return before, True
        return None

    def _enter(self, lines: dict[GroupLane, GroupLine[GroupUnit]], lane: GroupLane, unit: GroupUnit) -> None:
        line = lines.get(lane)
        if line is None:
            line = lines[lane] = GroupLine()
        unit.places.append((lines, lane, line.append(unit)))

    @staticmethod
    def _first(lines: dict[GroupLane, GroupLine[GroupUnit]], lane: GroupLane) -> GroupUnit | None:
        line = lines.get(lane)
        return None if line is None else line.first

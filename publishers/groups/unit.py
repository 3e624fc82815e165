"""What a group delivers as one: a change, or a transaction; and for which others it waits."""

from collections import deque
from typing import NamedTuple

import msgspec

from publishers.groups.lines import GroupLine, LinePlace
from publishers.groups.state import DONE, DeliveryState
from publishers.model.change import Change
from publishers.model.position import Position

__all__ = ["EVERYTHING", "GroupLane", "GroupUnit", "Holder", "LanePlan", "ReadRow"]

GroupLane = tuple[str | None, str | None]
"""Entity type and key. Without a key it is a barrier for its entity type; without either, for everything."""

EVERYTHING: GroupLane = (None, None)


ReadRow = tuple[Position, GroupLane | None, tuple[Change, ...] | None, int]
"""What was read: where it is, its lane or None for what waits for nothing, and the change with its bytes, if it is kept until it is delivered."""


class Holder(NamedTuple):
    """To which consumer something was delivered, in which generation of that."""

    consumer: str
    generation: int


class GroupUnit(msgspec.Struct, eq=False):
    """Something that was read and is not done. One is made for each change, so it is a struct, and what few have is made when they do.

    Attributes:
        position: Of the change, or of the beginning of the transaction.
        lanes: For whose earlier ones it waits.
        kept: The change, until it is delivered, if there is room for it.
        nbytes: About how much memory that takes.
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
        waiters: Those that were found to wait for it; None for none.
        blocker: The one that it was found to wait for.
        recalled: Whether it was given again as history, or claimed to be looked at, which counts as no delivery.
        places: Its places in lines, by lane; None if it is alone on each of its keys.
        stored: Whether the journal knows it as not done.
    """

    position: Position
    lanes: tuple[GroupLane, ...]
    kept: tuple[Change, ...] | None = None
    nbytes: int = 0
    state: DeliveryState = DeliveryState.PARKED
    count: int = 0
    holder: Holder | None = None
    first_us: int = 0
    last_us: int = 0
    last: float = 0.0
    until: float = 0.0
    late: bool = False
    timed: float | None = None
    errors: tuple[str, str] | None = None
    waiters: "dict[GroupUnit, None] | None" = None
    blocker: "GroupUnit | None" = None
    recalled: bool = False
    places: "dict[GroupLane, LinePlace[GroupUnit]] | None" = None
    stored: bool = False

    def blame(self, error: str) -> None:
        """Notes why a delivery of it failed."""
        self.errors = (error if self.errors is None else self.errors[0], error)


class LanePlan:
    """Which unit waits for which. Nothing of it is left behind by what is done, but for what waits with a barrier.

    A line is made for a key when a second one of it comes, and for an entity type when a barrier of it does.

    Args:
        units: What is not done, as it lies in the log.
    """

    def __init__(self, units: dict[Position, GroupUnit]) -> None:
        self._units = units
        self._keys: dict[GroupLane, GroupUnit | GroupLine[GroupUnit]] = {}
        self._barriers: dict[GroupLane, GroupLine[GroupUnit]] = {}
        self._before: dict[
            str, deque[GroupUnit]
        ] = {}  # by type, what came before and between its barriers, and was not done

    def add(self, unit: GroupUnit) -> None:
        """A unit comes behind all others."""
        keys = self._keys
        for lane in unit.lanes:
            if lane[1] is None:
                self._enter(self._barriers.setdefault(lane, GroupLine()), lane, unit)
                if lane[0] is not None and lane[0] not in self._before:
                    self._before[lane[0]] = deque(
                        one for one in self._units.values() if one is not unit and _touches(one, lane[0])
                    )
                continue
            found = keys.setdefault(lane, unit)
            if found is not unit:
                if isinstance(found, GroupUnit):
                    line = keys[lane] = GroupLine()
                    self._enter(line, lane, found)
                    found = line
                self._enter(found, lane, unit)
        for entity_type, before in self._before.items():
            if _touches(unit, entity_type):
                before.append(unit)

    def remove(self, unit: GroupUnit) -> None:
        """A unit is done."""
        for lane in unit.lanes:
            place = None if unit.places is None else unit.places.get(lane)
            if place is None:
                del self._keys[lane]
                continue
            place.line.remove(place)
            if place.line.head is None:
                if lane[1] is not None:
                    del self._keys[lane]
                else:
                    del self._barriers[lane]
                    if lane[0] is not None:
                        del self._before[lane[0]]
        unit.places = None

    @staticmethod
    def behind(unit: GroupUnit) -> list[GroupUnit]:
        """The next units of its keys, which were read after it."""
        places = unit.places or {}
        return [
            one.behind.item for lane, one in places.items() if lane[1] is not None and one.behind is not None
        ]

    def blocker(self, unit: GroupUnit, holder: Holder) -> tuple[GroupUnit, bool] | None:
        """What keeps a unit from a consumer.

        Returns:
            An earlier unit, and whether it is one of the same key, so that both may be at one consumer; None if nothing does.
        """
        if self._barriers:
            found = self._barred(unit)
            if found is not None:
                return found, False
        if unit.places is not None:
            for lane, place in unit.places.items():
                if lane[1] is not None and place.before is not None:
                    before = place.before.item
                    if before.state is not DeliveryState.PENDING or before.holder != holder:
                        return before, True
        return None

    def _barred(self, unit: GroupUnit) -> GroupUnit | None:
        """The barrier before a unit; of a barrier also the first of what is before it."""
        for lane in (EVERYTHING, *((lane[0], None) for lane in unit.lanes)):
            line = self._barriers.get(lane)
            barrier = None if line is None else line.first
            if barrier is not None and barrier.position < unit.position:
                return barrier
        for entity_type, key in unit.lanes:
            if key is None:
                first = self._first(entity_type)
                if first is not unit:
                    return first
        return None

    def _first(self, entity_type: str | None) -> GroupUnit | None:
        """The first of a type with barriers that is not done, or of all."""
        if entity_type is None:
            return next(iter(self._units.values()))
        before = self._before[entity_type]
        while before[0].state in DONE:
            before.popleft()
        return before[0]

    @staticmethod
    def _enter(line: "GroupLine[GroupUnit]", lane: GroupLane, unit: GroupUnit) -> None:
        if unit.places is None:
            unit.places = {}
        unit.places[lane] = line.append(unit)


def _touches(unit: GroupUnit, entity_type: str) -> bool:
    """Whether something of a type is in a unit."""
    return any(one == entity_type for one, _ in unit.lanes)

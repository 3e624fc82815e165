"""Units: what a group delivers as one (a change, or a transaction that was gathered), and the lines in which units wait for each other."""

from collections import deque
from typing import Final, NamedTuple

import msgspec

from publishers.groups.state import DONE, DeliveryState
from publishers.model.change import Change
from publishers.model.position import Position

__all__ = ["EVERYTHING", "GatheredTransaction", "GroupLane", "GroupUnit", "Holder", "LanePlan", "ReadRow"]


class LinePlace:
    """One place in a line.

    Attributes:
        item: The unit at this place.
        line: The line.
        before: The place in front of it, if there is one.
        behind: The place behind it, if there is one.
    """

    __slots__ = ("before", "behind", "item", "line")

    def __init__(self, item: "GroupUnit", line: "GroupLine") -> None:
        self.item: GroupUnit = item
        self.line: GroupLine = line
        self.before: LinePlace | None = None
        self.behind: LinePlace | None = None


class GroupLine:
    """A doubly linked list: removing a place costs the same anywhere in it, and frees all of its memory.

    Attributes:
        head: The first place; None if the line is empty.
        tail: The last place.
    """

    __slots__ = ("head", "tail")

    def __init__(self) -> None:
        self.head: LinePlace | None = None
        self.tail: LinePlace | None = None

    @property
    def first(self) -> "GroupUnit | None":
        """The first item; None if the line is empty."""
        return None if self.head is None else self.head.item

    def append(self, item: "GroupUnit") -> LinePlace:
        """Adds an item at the end; returns its place."""
        place, last = LinePlace(item, self), self.tail
        place.before = last
        if last is None:
            self.head = place
        else:
            last.behind = place
        self.tail = place
        return place

    def remove(self, place: LinePlace) -> None:
        """Removes a place."""
        before, behind = place.before, place.behind
        if before is None:
            self.head = behind
        else:
            before.behind = behind
        if behind is None:
            self.tail = before
        else:
            behind.before = before


GroupLane = tuple[str | None, str | None]
"""Entity type and key. A lane without a key is a barrier for its entity type; a lane without both is one for all changes."""

EVERYTHING: GroupLane = (None, None)


ReadRow = tuple[Position, GroupLane | None, tuple[Change, ...] | None, int]
"""A change that was read: its position; its lane, None if it waits for nothing; the change, if it is kept until delivery, and its
bytes of memory."""


class Holder(NamedTuple):
    """The consumer of a delivery and its generation."""

    consumer: str
    generation: int


class GroupUnit(msgspec.Struct, eq=False):
    """A change or transaction that was read and is not done.

    There is one for each change, so it is a struct, and fields that few units need are created on demand.

    Attributes:
        position: Position of the change, or of the start of the transaction.
        lanes: Its lanes; it waits for earlier units of these.
        kept: The change, until it is delivered, if there is room for it.
        nbytes: Bytes of memory of ``kept``, roughly.
        state: The state of its delivery.
        count: How often it was delivered.
        holder: The consumer of its last delivery.
        first_us: Wall-clock time of its first delivery, in microseconds; 0 if there was none.
        last_us: Wall-clock time of its last delivery, in microseconds; 0 if there was none.
        last: Monotonic time of its last delivery.
        until: Monotonic time: if pending, when it times out; if due, from when on it may be delivered.
        late: Whether it has timed out, or was taken back behind a unit of its key that has, and was not delivered since.
        timed: The earliest entry for it in the timers.
        errors: The first and the last reason for which it was refused.
        waiters: Units that wait for it; None for none.
        blocker: The unit that it waits for.
        recalled: Whether its last delivery did not count: as history, or by a claim with ``only_ids``.
        places: Its places in lines, by lane; None if it is alone on each of its keys.
        stored: Whether it is open in the journal.
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
    places: "dict[GroupLane, LinePlace] | None" = None
    stored: bool = False

    def blame(self, error: str) -> None:
        """Records the reason of a failed delivery."""
        self.errors = (error if self.errors is None else self.errors[0], error)


class LanePlan:
    """Which unit waits for which.

    A key gets a line when a second unit of it arrives, and an entity type when a barrier for it arrives. A unit that is done
    leaves no memory behind, except in the queue of a type with a barrier.

    Args:
        units: The units that are not done, in log order.
    """

    def __init__(self, units: dict[Position, GroupUnit]) -> None:
        self._units = units
        self._keys: dict[GroupLane, GroupUnit | GroupLine] = {}
        self._barriers: dict[GroupLane, GroupLine] = {}
        self._before: dict[
            str, deque[GroupUnit]
        ] = {}  # by entity type with a barrier: the units of it in log order, some of which may be done

    def add(self, unit: GroupUnit) -> None:
        """Adds a unit behind all others."""
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
        """Removes a unit that is done."""
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
        """The next unit of each of its keys."""
        places = unit.places or {}
        return [
            one.behind.item for lane, one in places.items() if lane[1] is not None and one.behind is not None
        ]

    def blocker(self, unit: GroupUnit, holder: Holder) -> tuple[GroupUnit, bool] | None:
        """Finds the unit for which another unit must wait before it is delivered to a consumer.

        Returns:
            An earlier unit, and whether it has the same key, so that one consumer may hold both; None if there is none.
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
        """The barrier before a unit; for a barrier, also the first unit before it."""
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
        """The first unit that is not done: of an entity type with barriers, or of all for None."""
        if entity_type is None:
            return next(iter(self._units.values()))
        before = self._before[entity_type]
        while before[0].state in DONE:
            before.popleft()
        return before[0]

    @staticmethod
    def _enter(line: GroupLine, lane: GroupLane, unit: GroupUnit) -> None:
        if unit.places is None:
            unit.places = {}
        unit.places[lane] = line.append(unit)


def _touches(unit: GroupUnit, entity_type: str) -> bool:
    """Whether a unit has changes of an entity type."""
    return any(one == entity_type for one, _ in unit.lanes)


MOST_LANES: Final = 256
"""Most keys of one transaction that are distinguished. A transaction with more keys is a barrier for all changes."""

LanedPlace = tuple[Position, tuple[GroupLane, ...]]
"""The position of a transaction, and its lanes."""


class GatheredTransaction:
    """The transaction that is being read.

    Attributes:
        version: Its version; None if there is none.
    """

    def __init__(self) -> None:
        self.version: int | None = None
        self._lanes: set[GroupLane] = set()

    def add(self, position: Position, lane: GroupLane | None) -> list[LanedPlace]:
        """Adds a change; returns the transaction before it if the change begins another one."""
        found = [] if self.version in (None, position.version) else self.finish()
        self.version = position.version
        if lane is not None and len(self._lanes) <= MOST_LANES:
            self._lanes.add(lane)
        return found

    def finish(self) -> list[LanedPlace]:
        """Ends the transaction and returns it; an empty list if there is none."""
        version, lanes = self.version, self._lanes
        self.forget()
        if version is None:
            return []
        return [(Position(version), tuple(lanes) if len(lanes) <= MOST_LANES else (EVERYTHING,))]

    def forget(self) -> None:
        """Drops the transaction."""
        self.version, self._lanes = None, set()

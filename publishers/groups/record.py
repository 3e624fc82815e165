"""The payloads of a group's journal, as JSON: the whole group, or the differences to the frame before, which are collected here."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from publishers.errors import FormatTooNew
from publishers.groups.settings import GroupSettings
from publishers.groups.unit import GroupUnit
from publishers.model.position import Position

__all__ = [
    "GROUPS_NAME",
    "GROUP_FORMAT",
    "GroupEntry",
    "GroupRecord",
    "JournalChanges",
    "OpenRow",
    "replay_group",
    "row_of",
]


GROUP_FORMAT: Final = 1
GROUPS_NAME: Final = "groups"
"""The directory of all groups, inside the directory of the log."""


class OpenRow(msgspec.Struct, frozen=True, array_like=True):
    """A unit that was read and is not done: its position, how often it was delivered, and when first (microseconds)."""

    version: int
    index: int
    count: int = 0
    first_us: int = 0

    @property
    def position(self) -> Position:
        """Its position."""
        return Position(self.version, self.index)

    @property
    def given(self) -> bool:
        """Whether it was ever delivered; a delivery that was taken back may have left a count of 0."""
        return bool(self.count or self.first_us)


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored state of a group.

    Attributes:
        name: Its name.
        criteria: The criteria of its changes, in their form on the wire; empty for every change.
        settings: Its options.
        generation: The last generation assigned to a consumer.
        head: The position up to which it has read, as the text of a token. Changes before it that are not in ``opens`` are done.
        opens: The units before ``head`` that are not done, in log order.
        paused: Whether it delivers nothing until it is resumed.
        tripped: Whether its breaker paused it.
        lost: Whether retention deleted changes that were not done.
        dropped: Whether it was dropped.
        dead: Number of dead letters that it has written.
        lost_changes: Number of changes that it had read and that retention deleted before they were done.
    """

    name: str
    criteria: list[dict[str, Any]] = []
    settings: GroupSettings = GroupSettings()
    generation: int = 0
    head: str
    opens: list[OpenRow] = []
    paused: bool = False
    tripped: bool = False
    lost: bool = False
    dropped: bool = False
    dead: int = 0
    lost_changes: int = 0


class GroupEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of one frame: the whole group, or the differences: head, units newly open, and positions that are done."""

    group: GroupRecord | None = None
    head: str | None = None
    opened: list[OpenRow] = []
    closed: list[tuple[int, int]] = []
    dead: int | None = None
    lost_changes: int | None = None
    format: int = 0


def replay_group(payloads: Iterable[bytes]) -> GroupRecord | None:
    """Rebuilds a group from the payloads of its journal; None if the journal is empty.

    Raises:
        FormatTooNew: If a newer version of penstock wrote a payload.
        ValueError: If a payload is not a valid entry.
    """
    record: GroupRecord | None = None
    opens: dict[tuple[int, int], OpenRow] = {}
    for payload in payloads:
        entry = msgspec.json.decode(payload, type=GroupEntry)
        if entry.format > GROUP_FORMAT:
            raise FormatTooNew(entry.format, GROUP_FORMAT, "group format")
        if entry.group is not None:
            record = entry.group
            opens = {(row.version, row.index): row for row in record.opens}
        if record is None:
            raise ValueError("it begins with no group")
        for closed in entry.closed:
            opens.pop(closed, None)
        opens |= {(row.version, row.index): row for row in entry.opened}
        if entry.head is not None:
            record = msgspec.structs.replace(record, head=entry.head)
        if entry.dead is not None:
            record = msgspec.structs.replace(record, dead=entry.dead)
        if entry.lost_changes is not None:
            record = msgspec.structs.replace(record, lost_changes=entry.lost_changes)
    if record is None or record.dropped:
        return record
    return msgspec.structs.replace(record, opens=[opens[place] for place in sorted(opens)])


class JournalChanges:
    """Collects what the next frame of the journal must hold.

    Its size is bounded by the units that are not done, or were not at the last write.

    Args:
        head: The head in the journal.

    Attributes:
        changed: Units whose row in the journal is missing or stale: newly open, or delivered again.
    """

    def __init__(self, head: Position) -> None:
        self._head = head
        self.changed: set[GroupUnit] = set()
        self._gone: set[Position] = set()  # positions that are open in the journal and done by now

    def close(self, unit: GroupUnit) -> None:
        """Notes that a unit is done."""
        self.changed.discard(unit)
        if unit.stored:
            self._gone.add(unit.position)

    def close_stored(self, position: Position) -> None:
        """Notes that a position in the journal is done although its change was not read again."""
        self._gone.add(position)

    def behind(self, head: Position) -> bool:
        """Whether the journal is stale for a group with this head."""
        return bool(self.changed or self._gone) or self._head != head

    def news(self) -> tuple[list[OpenRow], list[Position]]:
        """The rows to write (newly open or delivered again), and the positions that are done."""
        opened = [row_of(unit) for unit in sorted(self.changed, key=lambda one: one.position)]
        return opened, sorted(self._gone)

    def stored(
        self,
        head: Position,
        opened: Iterable[OpenRow],
        closed: Iterable[Position],
        units: dict[Position, GroupUnit],
    ) -> None:
        """Notes what was written. Units may have changed since ``news``; these stay in ``changed``."""
        self._head = head
        self._gone.difference_update(closed)
        for row in opened:
            unit = units.get(row.position)
            if unit is None:
                self._gone.add(row.position)
                continue
            unit.stored = True
            if row_of(unit) == row:
                self.changed.discard(unit)


def row_of(unit: GroupUnit) -> OpenRow:
    """The row of a unit in the journal."""
    return OpenRow(unit.position.version, unit.position.index, unit.count, unit.first_us)

"""What the journal of a group tells, as JSON: the whole of it, or what has changed."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from publishers.errors import FormatTooNew
from publishers.groups.settings import GroupSettings
from publishers.model.position import Position

__all__ = ["GROUPS_NAME", "GROUP_FORMAT", "GroupEntry", "GroupRecord", "OpenRow", "replay_group"]

GROUP_FORMAT: Final = 1
GROUPS_NAME: Final = "groups"
"""The directory of all groups, in that of the log."""


class OpenRow(msgspec.Struct, frozen=True, array_like=True):
    """Something that was read and is not done: its position, how often it was delivered, and when first (microseconds)."""

    version: int
    index: int
    count: int = 0
    first_us: int = 0

    @property
    def position(self) -> Position:
        """Where it is."""
        return Position(self.version, self.index)

    @property
    def given(self) -> bool:
        """Whether it was ever delivered; a delivery that was taken back may have left a count of 0."""
        return bool(self.count or self.first_us)


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is kept of a group.

    Attributes:
        name: What it is called.
        criteria: Which changes, as they travel; empty for everything.
        settings: Its options.
        generation: The last one that was given to a consumer.
        head: Everything before it was read, as the text of a token; what is not in ``opens`` is done.
        opens: What is not done, as it lies in the log.
        paused: Whether it gives nothing until it is resumed.
        tripped: Whether it was its breaker that paused it.
        lost: Whether retention took what it had not done.
        dropped: Whether it is gone.
        dead: How many dead letters it made.
        lost_changes: How many changes that it had read, and had not done, retention took.
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
    """The payload of one frame: the whole group; or how far it has read, what is newly open, and what is done."""

    group: GroupRecord | None = None
    head: str | None = None
    opened: list[OpenRow] = []
    closed: list[tuple[int, int]] = []
    dead: int | None = None
    lost_changes: int | None = None
    format: int = 0


def replay_group(payloads: Iterable[bytes]) -> GroupRecord | None:
    """The group of which a journal tells; None if there is none.

    Raises:
        FormatTooNew: If a newer version of penstock wrote it.
        ValueError: If a payload is nothing that was ever written here.
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

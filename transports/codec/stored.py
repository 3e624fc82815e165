"""The slots and groups that are stored in the directory of a log, as JSON; for processes that do not own the log."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from publishers.errors import PenstockError
from publishers.groups.inspection import StoredGroup, stored_groups
from publishers.groups.state import GroupState
from publishers.model.position import Position
from publishers.slots.inspection import StoredSlot, stored_slots
from publishers.slots.state import SlotState
from publishers.wal import RealFileSystem
from transports.codec.slots import SlotInfo, SlotLag

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["stored_groups_json", "stored_groups_of", "stored_slot", "stored_slots_json", "stored_slots_of"]


def stored_groups_of(log: "ChangeLog") -> Iterator[StoredGroup]:
    """Yields the groups of a log, by name; reads each journal when its group is asked for. Raises as `stored_groups_json`."""
    return stored_groups(RealFileSystem(), log.path, log.log_id, partial(log.position_of, ahead=True))


def stored_groups_json(log: "ChangeLog", *, listed: int | None = None) -> list[dict[str, Any]]:
    """Returns the groups of a log, by name; reads the disk. Progress that the owner has not stored yet is missing.

    Args:
        log: The log.
        listed: Most groups to read and to return; None for all.

    Raises:
        GroupCorrupted: If a journal is damaged.
        OSError: If one cannot be read.
    """
    return [_group(log, one) for one in islice(stored_groups_of(log), listed)]


def stored_slots_of(log: "ChangeLog") -> list[StoredSlot]:
    """Returns the slots of a log, by name. Raises as `stored_slots_json`."""
    return stored_slots(RealFileSystem(), log.path, log.log_id, partial(log.position_of, ahead=True))


def stored_slots_json(log: "ChangeLog", *, listed: int | None = None) -> list[dict[str, Any]]:
    """Returns the slots of a log, likewise.

    Args:
        log: The log.
        listed: Most slots to return; None for all.

    Raises:
        SlotsCorrupted: If the journal is damaged.
        OSError: If it cannot be read.
    """
    return [_slot(log, one) for one in stored_slots_of(log)[:listed]]


def stored_slot(name: str, log: "ChangeLog", slot: StoredSlot) -> SlotInfo:
    """Returns a stored slot for the wire.

    Args:
        name: The name by which the client knows the log.
        log: The log.
        slot: The slot.
    """
    row = _slot(log, slot)
    return SlotInfo(
        name,
        row["name"],
        row["state"],
        row["cursor"],
        slot.position.version,
        row["generation"],
        None,
        row["paused"],
        SlotLag(**row["lag"]),
        stored=True,
    )


def _group(log: "ChangeLog", group: StoredGroup) -> dict[str, Any]:
    record = group.record
    return {
        "name": record.name,
        "floor": str(group.floor),
        "head": str(group.head),
        "generation": record.generation,
        "state": group.state.value,
        "notDone": len(record.opens),
        "delivered": sum(row.count > 0 for row in record.opens),
        "dead": record.dead,
        "lost": record.lost_changes,
        "criteria": record.criteria,
        "settings": msgspec.to_builtins(record.settings),
        "cursor": record.head,
        "lag": _lag(log, group.floor, group.state),
    }


def _slot(log: "ChangeLog", slot: StoredSlot) -> dict[str, Any]:
    record = slot.record
    return {
        "name": record.name,
        "place": str(slot.position),
        "generation": record.generation,
        "state": "good" if slot.state is SlotState.FREE else slot.state.value,
        "paused": record.paused,
        "granularity": record.granularity,
        "criteria": record.criteria,
        "cursor": record.place,
        "lag": _lag(log, slot.position, slot.state),
    }


def _lag(log: "ChangeLog", position: Position, state: SlotState | GroupState) -> dict[str, Any]:
    if state in (SlotState.FORKED, GroupState.FORKED):  # its versions are those of another history
        return {"versions": None, "seconds": None}
    seconds = None if state in (SlotState.LOST, GroupState.LOST) else _age_of(log, position.version)
    return {"versions": max(log.head.version - position.version, 0), "seconds": seconds}


def _age_of(log: "ChangeLog", version: int) -> float | None:
    """Returns the seconds since a version was committed; 0 if it is still to come, None if it is no longer kept."""
    if version >= log.head.version:
        return 0.0
    with contextlib.suppress(PenstockError):  # retention has deleted it meanwhile
        return max((datetime.now(UTC) - log.time_of(version)).total_seconds(), 0.0)
    return None

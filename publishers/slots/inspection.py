"""The slots in the journal, read without owning the log, also beside its owner: by commands, and for a backup."""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from publishers.errors import FormatTooNew, HistoryPruned, PositionError
from publishers.journal import Journal, JournalDamaged
from publishers.model.position import Position, PositionToken
from publishers.slots.errors import SlotsCorrupted
from publishers.slots.record import SLOTS_NAME, SlotRecord, replay
from publishers.slots.state import SlotState
from publishers.wal import FileSystem
from publishers.wal.backups import PLACES_NAME
from publishers.wal.disk.filesystem import put_file, read_file, sync_names

__all__ = ["StoredSlot", "backed_up_places", "forget_restored_place", "restored_place", "stored_slots"]


class StoredSlot(NamedTuple):
    """A slot as it is stored.

    Attributes:
        record: All that is kept of it.
        position: Its place; what was acknowledged since may be missing.
        state: LOST or FORKED; else FREE, as the owner alone knows whether it is open.
    """

    record: SlotRecord
    position: Position
    state: SlotState


def stored_slots(
    filesystem: FileSystem, path: Path, log_id: UUID, judge: Callable[[str], Position]
) -> list[StoredSlot]:
    """The slots of a log, by their names.

    Args:
        filesystem: Where the log is.
        path: Its directory.
        log_id: Its id.
        judge: ``log.position_of`` with ``ahead``, as the owner may have stored a position that this opening has not read yet.

    Raises:
        SlotsCorrupted: If the journal is damaged.
        FormatTooNew: If a newer version of penstock wrote it.
        OSError: If it cannot be read.
    """
    journal = Journal(filesystem, path / SLOTS_NAME, log_id)
    try:
        records = replay(journal.load()).values()
    except JournalDamaged as error:
        raise SlotsCorrupted(error.path, error.why) from error
    except ValueError as error:
        raise SlotsCorrupted(journal.path, f"not what was written there ({error})") from error
    return [_judged(record, judge) for record in sorted(records, key=lambda one: one.name)]


def _judged(record: SlotRecord, judge: Callable[[str], Position]) -> StoredSlot:
    state = SlotState.LOST if record.lost else SlotState.FREE
    try:
        judge(record.place)
    except HistoryPruned:
        state = SlotState.LOST
    except PositionError:
        state = SlotState.FORKED
    return StoredSlot(record, PositionToken.parse(record.place).position, state)


_LOG: Final = logging.getLogger("penstock.slots")


class _Places(msgspec.Struct, frozen=True):
    """The content of the file.

    Attributes:
        slots: The token of the position of each slot, by its name.
    """

    slots: dict[str, str] = {}


def backed_up_places(filesystem: FileSystem, path: Path, log_id: UUID) -> bytes | None:
    """Returns what a backup of a log holds of its slots; also beside the owner of the log, and for a backup.

    Returns:
        The content of the file; empty if there are no slots, None if they cannot be read.
    """
    try:
        records = replay(Journal(filesystem, path / SLOTS_NAME, log_id).load()).values()
    except (JournalDamaged, FormatTooNew, ValueError, OSError) as error:
        _LOG.warning("the positions of the slots of %s are not in its backup: %s", path, error)
        return None
    found = _read(filesystem, path) | {one.name: one.place for one in records}
    return msgspec.json.encode(_Places(found), order="sorted") if found else b""


def restored_place(filesystem: FileSystem, path: Path, name: str) -> str | None:
    """Returns the token of the position that a slot had in the backup from which its log was restored; None if it was not there."""
    return _read(filesystem, path).get(name)


def forget_restored_place(filesystem: FileSystem, path: Path, name: str) -> None:
    """Removes the position of a slot, because a new slot of this name has its own; durable when it returns."""
    found = _read(filesystem, path)
    if found.pop(name, None) is None:
        return
    if found:
        put_file(filesystem, path / PLACES_NAME, msgspec.json.encode(_Places(found), order="sorted"))
    else:
        filesystem.unlink(path / PLACES_NAME)
    sync_names(filesystem, path)


def _read(filesystem: FileSystem, path: Path) -> dict[str, str]:
    with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
        return dict(msgspec.json.decode(read_file(filesystem, path / PLACES_NAME), type=_Places).slots)
    return {}

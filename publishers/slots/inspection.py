"""The slots in the journal, read without owning the log; also beside its owner."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from publishers.errors import HistoryPruned, PositionError
from publishers.journal import Journal, JournalDamaged
from publishers.model.position import Position, PositionToken
from publishers.slots.errors import SlotsCorrupted
from publishers.slots.record import SLOTS_NAME, SlotRecord, replay
from publishers.slots.state import SlotState
from publishers.wal import FileSystem

__all__ = ["StoredSlot", "stored_slots"]


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

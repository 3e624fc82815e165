"""Reads groups from their journals, in a process that does not own the log; also while the owner runs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from publishers.errors import HistoryPruned, PenstockError, PositionError
from publishers.groups.errors import GroupCorrupted
from publishers.groups.record import GROUPS_NAME, GroupRecord, replay_group
from publishers.groups.state import GroupState
from publishers.journal import Journal, JournalDamaged
from publishers.model.position import Position, PositionToken
from publishers.wal import FileSystem

__all__ = ["StoredGroup", "stored_groups"]


class StoredGroup(NamedTuple):
    """A group as stored in its journal; later progress of the owner may be missing.

    Attributes:
        record: Its stored state.
        floor: The position before which every change is done.
        head: The position up to which it has read.
        state: LOST, FORKED, PAUSED, TRIPPED; else SERVING.
    """

    record: GroupRecord
    floor: Position
    head: Position
    state: GroupState


def stored_groups(
    filesystem: FileSystem, path: Path, log_id: UUID, judge: Callable[[str], Position]
) -> Iterator[StoredGroup]:
    """Yields the groups of a log, by name; reads each journal when its group is asked for.

    Args:
        filesystem: The file system of the log.
        path: The directory of the log.
        log_id: The id of the log.
        judge: ``log.position_of`` with ``ahead``, as the owner may have stored a position that this opening has not read yet.

    Raises:
        GroupCorrupted: If a journal is damaged.
        OSError: If one cannot be read.
    """
    directory = path / GROUPS_NAME
    try:
        names = filesystem.listing(directory)
    except FileNotFoundError:
        return
    for name in sorted(names):
        if not name.endswith(".dead"):
            journal = Journal(filesystem, directory / name, log_id)
            record = _read(name, journal)
            if record is not None and not record.dropped:
                yield _judged(record, judge)


def _read(name: str, journal: Journal) -> GroupRecord | None:
    try:
        return replay_group(journal.load())
    except JournalDamaged as error:
        raise GroupCorrupted(name, error.path, error.why) from error
    except (ValueError, PenstockError) as error:
        raise GroupCorrupted(name, journal.path, f"not what was written there ({error})") from error


def _judged(record: GroupRecord, judge: Callable[[str], Position]) -> StoredGroup:
    head = PositionToken.parse(record.head).position
    state = GroupState.SERVING
    if record.paused:
        state = GroupState.TRIPPED if record.tripped else GroupState.PAUSED
    try:
        judge(record.head)
    except HistoryPruned:
        state = GroupState.LOST
    except PositionError:
        state = GroupState.FORKED
    if record.lost:
        state = GroupState.LOST
    return StoredGroup(record, record.opens[0].position if record.opens else head, head, state)

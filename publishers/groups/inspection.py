"""Reads groups from their journals, and examines the journals of slots and groups, in a process that need not own the log."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from publishers.errors import FormatTooNew, HistoryPruned, PenstockError, PositionError
from publishers.groups.errors import GroupCorrupted
from publishers.groups.record import GROUPS_NAME, GroupRecord, replay_group
from publishers.groups.state import GroupState
from publishers.journal import Journal, JournalDamaged
from publishers.model.position import Position, PositionToken
from publishers.slots.record import SLOTS_NAME, replay
from publishers.wal import FileSystem
from publishers.wal.checks import Finding, Verdict

__all__ = ["StoredGroup", "examine_journals", "stored_groups"]


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


_TRIES: Final = 5  # beside an owner, who may replace a file between two reads
_DEAD: Final = ".dead"


def examine_journals(filesystem: FileSystem, path: Path, log_id: UUID) -> Iterator[Finding]:
    """Yields what is wrong with the journals of a log, each of which is read; what may not be read is a note.

    Args:
        filesystem: The file system of the log.
        path: The directory of the log.
        log_id: The id of the log.
    """
    journals: list[tuple[str, Callable[[list[bytes]], object]]] = [(SLOTS_NAME, replay)]
    try:
        names = sorted(filesystem.listing(path / GROUPS_NAME))
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as error:
        names = []
        yield _unread(GROUPS_NAME, error)
    journals += [(f"{GROUPS_NAME}/{name}", replay_group) for name in names if not name.endswith(_DEAD)]
    for name, replayed in journals:
        journal = Journal(filesystem, path / name, log_id)
        for left in reversed(range(_TRIES)):
            found = _examine(name, journal, replayed)
            if found is None:
                break
            if not left or found.verdict is not Verdict.CORRUPT:
                yield found
                break


def _examine(name: str, journal: Journal, replayed: Callable[[list[bytes]], object]) -> Finding | None:
    try:
        replayed(journal.load())
    except JournalDamaged as error:
        return _found(Verdict.CORRUPT, name, error.why)
    except FormatTooNew as error:
        return _found(Verdict.UNREADABLE, name, str(error))
    except NotADirectoryError:
        return None  # a file that is no journal
    except OSError as error:
        return _unread(name, error)
    except (ValueError, PenstockError) as error:
        return _found(Verdict.CORRUPT, name, f"not what was written there ({error})")
    return None


def _unread(name: str, error: OSError) -> Finding:
    # Journals are for the owner of a log alone, so that another user judges the log without them.
    verdict = Verdict.SOUND if isinstance(error, PermissionError) else Verdict.UNREADABLE
    return _found(verdict, name, f"it cannot be read ({error.strerror})")


def _found(verdict: Verdict, name: str, why: str) -> Finding:
    return Finding("journal", verdict, 0, 0, name, why)

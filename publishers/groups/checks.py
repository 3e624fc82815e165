"""Examines the journals of the slots and groups of a log, as `publishers.wal.checks` examines the log itself."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from publishers.errors import FormatTooNew, PenstockError
from publishers.groups.record import GROUPS_NAME, replay_group
from publishers.journal import Journal, JournalDamaged
from publishers.slots.record import SLOTS_NAME, replay
from publishers.wal import FileSystem
from publishers.wal.checks import Finding, Verdict

__all__ = ["examine_journals"]

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

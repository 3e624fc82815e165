"""The directory of a log: the names that belong there, and the lock of its only writer."""

import contextlib
import logging
import time
from pathlib import Path
from typing import Final, NamedTuple

from flow.clock import SYSTEM_CLOCK
from publishers.errors import LogBusy, LogUnreadable, NotALog
from publishers.wal.disk.filesystem import File, FileSystem, open_file, write_all
from publishers.wal.files.head import HEAD_NAME
from publishers.wal.files.segment import segment_number
from publishers.wal.files.tail_page import TAIL_NAME, Tail

__all__ = [
    "LOCK_NAME",
    "PLACES_NAME",
    "STAGED",
    "LogWriter",
    "check_names",
    "sign",
    "take_lock",
    "tidy",
    "writer_of",
]

LOCK_NAME: Final = "LOCK"
PLACES_NAME: Final = "PLACES"
"""The positions of slots, in a backup and in a log that was restored from one."""
STAGED: Final = "staged-"
"""Prefix of the names of files into which other processes seal parts of a transaction."""
_LOG: Final = logging.getLogger("penstock.housekeeping")
# A process that checks for a writer holds the lock, and so does the child of a fork in which the writer was killed: until it runs
# again, which takes microseconds, and tens of milliseconds on a busy machine.
_TRIES: Final = 50
_PAUSE: Final = 0.004  # seconds
_LONG_PAUSE: Final = 0.05  # seconds; between the tries of an opening that waits for a writer
_NEIGHBOURS: Final = frozenset({"BELL", "groups", "held", "readers", "sinks", "slots", "snapshots", "state"})


def check_names(path: Path, names: list[str]) -> None:
    """Refuses a directory that is not a log.

    Raises:
        NotALog: If a file is named like a segment but is not one, or the directory is not empty and has no trace of a log.
    """
    for name in names:
        if name.startswith("wal-") and name.endswith((".log", ".idx")):
            suffix = name[-3:]
            if segment_number(name, suffix) is None:
                raise NotALog(
                    path, f"{name} is named like a segment, but has no number of 12 digits from 1 on"
                )
    if HEAD_NAME in names or any(segment_number(name) is not None for name in names):
        return
    ours = {LOCK_NAME, PLACES_NAME, TAIL_NAME, *_NEIGHBOURS}
    strange = [name for name in names if name not in ours and not name.endswith(".tmp")]
    if strange:
        raise NotALog(path, f"it has no HEAD, but other files: {', '.join(strange[:3])}")


class LogWriter(NamedTuple):
    """The writer of a log.

    Attributes:
        alive: Whether the lock is held; None if that is unknown.
        pid: The process that holds it, according to the file; None if there is none, or it is unknown.
    """

    alive: bool | None
    pid: int | None = None


def writer_of(filesystem: FileSystem, path: Path) -> LogWriter:
    """Checks whether a log is open for writing; if it is not, the check itself holds the lock for a moment."""
    try:
        file = filesystem.open(path / LOCK_NAME, "read")
    except FileNotFoundError:
        return LogWriter(alive=False)
    except PermissionError:  # LOCK is for the owner of the log alone
        return _said_by_tail(filesystem, path)
    except OSError:
        return LogWriter(alive=None)
    try:
        # Shared, so that two concurrent checks do not take each other for a writer.
        if file.lock(shared=True):
            return LogWriter(alive=False)
        return LogWriter(alive=True, pid=_signed(file))
    except OSError:
        return LogWriter(alive=None)
    finally:
        file.close()


def _said_by_tail(filesystem: FileSystem, path: Path) -> LogWriter:
    tail = None
    with contextlib.suppress(LogUnreadable):
        tail = Tail.open(filesystem, path)
    if tail is None:
        return LogWriter(alive=None)
    with contextlib.closing(tail):
        life = tail.life()
        if life is None:  # an older version of penstock has opened it
            return LogWriter(alive=None)
        alive = life.until > SYSTEM_CLOCK.monotonic() * 1e6
        return LogWriter(alive=alive, pid=life.pid if alive else None)


def _signed(lock: File) -> int | None:
    text = lock.pread(64, 0).split(b" ", 1)[0]
    return int(text) if text.isdigit() else None


def take_lock(filesystem: FileSystem, path: Path, wait: float = 0.0) -> File:
    """Acquires the lock of the only writer, for which it waits ``wait`` seconds.

    Raises:
        LogBusy: If another writer holds it; with the process id that the file names.
        LogUnreadable: If it cannot be opened.
        OSError: From the file system.
    """
    file = open_file(filesystem, path / LOCK_NAME, "private")
    try:
        tries, end = _TRIES, time.monotonic() + wait
        while not file.lock():
            tries -= 1
            if tries <= 0 and time.monotonic() >= end:
                raise LogBusy(path, _signed(file))
            pause = _PAUSE if tries > 0 else _LONG_PAUSE
            time.sleep(pause)  # noqa: TID251 - no condition signals that the lock is free
    except BaseException:
        file.close()
        raise
    return file


def sign(lock: File, filesystem: FileSystem, epoch: int) -> None:
    """Writes the holder into LOCK; errors are ignored, because only the lock itself matters."""
    text = f"{filesystem.process_id()} {filesystem.boot_id().hex()} {epoch}\n".encode()
    with contextlib.suppress(OSError):
        lock.truncate(0)
        write_all(lock, text, 0)


def tidy(filesystem: FileSystem, directory: Path) -> list[str]:
    """Deletes temporary files that a crash has left; returns the other names.

    Raises:
        OSError: From the file system.
    """
    names = filesystem.listing(directory)
    unfinished = [name for name in names if name.endswith(".tmp")]
    for name in unfinished:
        filesystem.unlink(directory / name)
    if staged := sum(1 for name in unfinished if name.startswith(STAGED)):
        _LOG.warning(
            "%d staged files of a batch that was never committed were removed from %s", staged, directory
        )
    return [name for name in names if not name.endswith(".tmp")]

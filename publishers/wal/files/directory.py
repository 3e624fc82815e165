"""The directory of a log: which names belong there, and the lock of its one writer."""

import contextlib
from pathlib import Path
from typing import Final

from publishers.errors import LogBusy, NotALog
from publishers.wal.disk.access import open_file
from publishers.wal.disk.filesystem import File, FileSystem, write_all
from publishers.wal.files.head import HEAD_NAME
from publishers.wal.files.segment import segment_number
from publishers.wal.files.tail_page import TAIL_NAME

__all__ = ["LOCK_NAME", "check_names", "sign", "take_lock", "tidy"]

LOCK_NAME: Final = "LOCK"
_NEIGHBOURS: Final = frozenset({"BELL", "groups", "held", "readers", "slots", "snapshots"})


def check_names(path: Path, names: list[str]) -> None:
    """Refuses a directory that is not a log.

    Raises:
        NotALog: If a file is named like a segment but is none, or the directory is not empty and has no trace of a log.
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
    ours = {LOCK_NAME, TAIL_NAME, *_NEIGHBOURS}
    strange = [name for name in names if name not in ours and not name.endswith(".tmp")]
    if strange:
        raise NotALog(path, f"it has no HEAD, but other files: {', '.join(strange[:3])}")


def take_lock(filesystem: FileSystem, path: Path) -> File:
    """Takes the lock of the one writer.

    Raises:
        LogBusy: If somebody has it; with the process that wrote its number into the file.
        LogUnreadable: If it cannot be opened.
        OSError: What the file system raises.
    """
    file = open_file(filesystem, path / LOCK_NAME, "create")
    try:
        if not file.lock():
            text = file.pread(64, 0).split(b" ", 1)[0]
            raise LogBusy(path, int(text) if text.isdigit() else None)
    except BaseException:
        file.close()
        raise
    return file


def sign(lock: File, filesystem: FileSystem, epoch: int) -> None:
    """Tells in LOCK who holds it; it is the lock that counts, so a full disk does no harm."""
    text = f"{filesystem.process_id()} {filesystem.boot_id().hex()} {epoch}\n".encode()
    with contextlib.suppress(OSError):
        lock.truncate(0)
        write_all(lock, text, 0)


def tidy(filesystem: FileSystem, directory: Path) -> list[str]:
    """Deletes what a crash left unfinished; returns the other names.

    Raises:
        OSError: What the file system raises.
    """
    names = []
    for name in filesystem.listing(directory):
        if name.endswith(".tmp"):
            filesystem.unlink(directory / name)
        else:
            names.append(name)
    return names

"""Opening the files of a log: one that is there and cannot be opened is not damaged, and no commit was refused."""

import errno
from pathlib import Path
from typing import Final

from publishers.errors import LogUnreadable
from publishers.wal.disk.filesystem import File, FileSystem, Mode, SyncError

__all__ = ["check_openable", "open_file"]

_UNOPENABLE: Final = frozenset(
    {
        errno.EACCES, errno.EISDIR, errno.ELOOP, errno.EMFILE, errno.ENFILE, errno.ENOTSUP, errno.ENXIO, errno.EPERM,
        errno.EROFS,
    }
)  # fmt: skip
"""Errors that tell of a name, and of whoever opens it, and nothing of the bytes on the disk."""


def check_openable(error: OSError, path: Path) -> None:
    """Returns if an error tells of the disk, or that something is missing.

    Raises:
        LogUnreadable: If it tells that a file is there and cannot be opened.
    """
    if error.errno in _UNOPENABLE and not isinstance(error, SyncError):
        where = path if error.filename is None else Path(error.filename)
        raise LogUnreadable(where, error.strerror or str(error)) from error


def open_file(filesystem: FileSystem, path: Path, mode: Mode) -> File:
    """Opens a file of a log.

    Raises:
        LogUnreadable: If it is there and cannot be opened.
        OSError: Anything else; FileNotFoundError if it is missing.
    """
    try:
        return filesystem.open(path, mode)
    except OSError as error:
        check_openable(error, path)
        raise

"""Who besides the owner may read a log, in modes of files and directories.

A log that exists keeps its modes, as its HEAD has them. LOCK and the journals of consumers are the owner's alone in any case: whoever
may open LOCK may lock it, and so keep the writer out.
"""

import contextlib
import logging
import os
from pathlib import Path
from typing import Final

from publishers.options import Readers

__all__ = [
    "DIRECTORY_MODES",
    "FILE_MODES",
    "MEETING_MODES",
    "PRIVATE",
    "kept_readers",
    "make_file",
    "make_readable",
]

PRIVATE: Final = 0o600
FILE_MODES: Final[dict[Readers, int]] = {"owner": 0o600, "group": 0o640, "all": 0o644}
DIRECTORY_MODES: Final[dict[Readers, int]] = {"owner": 0o700, "group": 0o750, "all": 0o755}
MEETING_MODES: Final[dict[Readers, int]] = {"owner": 0o700, "group": 0o1770, "all": 0o1777}
"""Of ``readers/``, into which followers put their sockets; nobody removes those of others."""

_LOG: Final = logging.getLogger("penstock.housekeeping")
_said: Final[set[tuple[Path, Readers]]] = set()
_WORDS: Final[dict[Readers, str]] = {"owner": "its owner alone", "group": "its group", "all": "all users"}


def kept_readers(path: Path, asked: Readers | None = None) -> Readers:
    """Returns who may read what is made in the directory of a log: as asked, or, if there is a log, as before.

    Args:
        path: The directory of the log, which need not exist.
        asked: Who may read a new log. One line in the log of the program says if an existing one differs, once for each
            directory. None: the owner, and nothing is said.
    """
    head, directory = _mode(path / "HEAD"), _mode(path)
    kept = (asked or "owner") if head is None else _readers(head)
    if asked is None:
        return kept
    if head is not None and kept != asked:
        _say(path, kept, asked)
    elif directory is not None and DIRECTORY_MODES[asked] & ~directory & 0o777:
        _say(path, _readers(directory), asked)
    return kept


def make_file(path: Path, readers: Readers) -> None:
    """Makes an empty file, whatever the umask; leaves one that exists as it is.

    Raises:
        OSError: If it cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
        try:
            os.fchmod(fd, FILE_MODES[readers])
        finally:
            os.close(fd)


def make_readable(directory: Path, mode: int) -> None:
    """Makes a directory with a mode, whatever the umask; leaves one that exists as it is.

    Raises:
        OSError: If it cannot be made.
    """
    try:
        directory.mkdir(0o700)
    except FileExistsError:
        if not directory.is_dir():
            raise
        return
    if mode != 0o700:
        directory.chmod(mode)


def _say(path: Path, kept: Readers, asked: Readers) -> None:
    if (path, asked) in _said:
        return
    _said.add((path, asked))
    _LOG.warning(
        "%s exists and keeps its modes: it is for %s to read, and not for %s as readers=%r would have it; see chmod",
        path,
        _WORDS[kept],
        _WORDS[asked],
        asked,
    )


def _readers(mode: int) -> Readers:
    return "all" if mode & 0o004 else "group" if mode & 0o040 else "owner"


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except OSError:
        return None

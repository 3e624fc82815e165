"""The directory of a store: its lock, the directories of its logs, and their doubt files.

::

    shop/
      LOCK              held by the one process that owns the store
      .system/          the system log
      orders/           a log; a rename of the log leaves its directory as it is
      .doubt-orders     while this file exists, the system log decides whether ``orders/`` stays

A log is created or dropped in steps, and a process may die between any two of them:

* *create*: write the doubt file, make the directory, commit CREATED, remove the doubt file;
* *drop*: write the doubt file, commit DROPPED, remove the directory, remove the doubt file.

The commit to the system log decides. The next owner that opens the store settles each doubt: it keeps a directory that the
system log lists, and removes one that it does not list. Directories without a doubt file are never touched, so foreign
directories are safe. A rename, or a change of the type, is one commit and changes no directory.
"""

import contextlib
from pathlib import Path
from typing import Final, Literal

from publishers.errors import NotAStore
from publishers.wal import FileSystem
from publishers.wal.disk.filesystem import File
from publishers.wal.files.directory import LOCK_NAME, sign, take_lock
from publishers.wal.files.head import HEAD_NAME, read_head
from publishers.wal.files.segment import segment_number

__all__ = ["SYSTEM_DIRECTORY", "Kind", "StoreDirectory", "kind_of"]

SYSTEM_DIRECTORY: Final = ".system"
_DOUBT: Final = ".doubt-"

Kind = Literal["log", "store", "nothing", "other"]


def kind_of(filesystem: FileSystem, path: Path) -> Kind:
    """What a directory is, judged by the names of its files; ``nothing`` if it is empty or missing."""
    try:
        names = filesystem.listing(path)
    except FileNotFoundError:
        return "nothing"
    except NotADirectoryError:
        return "other"
    if SYSTEM_DIRECTORY in names:
        return "store"
    if HEAD_NAME in names or any(segment_number(name) is not None for name in names):
        return "log"
    return "other" if any(name != LOCK_NAME for name in names) else "nothing"


class StoreDirectory:
    """The directory of one store.

    Attributes:
        path: The path of the directory.
    """

    def __init__(self, path: Path, filesystem: FileSystem) -> None:
        self.path = path
        self._filesystem = filesystem
        self._lock: File | None = None

    def check(self, *, missing: bool) -> None:
        """Refuses a directory that is no store.

        Args:
            missing: Whether an empty or missing directory is accepted, to create a store there.

        Raises:
            NotAStore: If it is no store; the error says what it is instead.
        """
        match kind_of(self._filesystem, self.path):
            case "log":
                raise NotAStore(self.path, "it is a single log, which is opened with ChangeLog.open")
            case "other":
                raise NotAStore(self.path, f"there is no {SYSTEM_DIRECTORY} in it, but something else")
            case "nothing" if not missing:
                raise NotAStore(self.path, f"there is no {SYSTEM_DIRECTORY} in it")

    def own(self, wait: float = 0.0) -> None:
        """Makes the directory if it is missing, and acquires its lock, for which it waits ``wait`` seconds.

        Raises:
            LogBusy: If another process, or another ``ChangeStore`` in this process, owns the store.
            OSError: From the file system.
        """
        self._filesystem.make_directory(self.path)
        self._lock = take_lock(self._filesystem, self.path, wait)
        sign(self._lock, self._filesystem, 0)

    def names(self) -> list[str]:
        """The names of all files and directories in the store's directory."""
        return self._filesystem.listing(self.path)

    # Doubts.

    def doubt(self, directory: str) -> None:
        """Writes a doubt file, durably: from now on the system log decides whether the directory stays."""
        self._filesystem.open(self.path / f"{_DOUBT}{directory}", "create").close()
        self._filesystem.sync_directory(self.path)

    def doubts(self) -> list[str]:
        """The directories that have a doubt file."""
        return [name.removeprefix(_DOUBT) for name in self.names() if name.startswith(_DOUBT)]

    def settle(self, directory: str) -> None:
        """Removes the doubt file of a directory that agrees with the system log."""
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.unlink(self.path / f"{_DOUBT}{directory}")
        self._filesystem.sync_directory(self.path)

    def remove(self, directory: str) -> None:
        """Removes a log with all its files, then its doubt file.

        HEAD is removed first: without it, a concurrent reader does not mistake the missing files for damage.
        """
        place = self.path / directory
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._filesystem.unlink(place / HEAD_NAME)
        self._empty(place)
        self._filesystem.sync_directory(self.path)
        self.settle(directory)

    def log_id(self, directory: str) -> str | None:
        """The id in the HEAD of a directory, read now; None if there is no log, or HEAD cannot be read."""
        path = self.path / directory / HEAD_NAME
        try:
            with contextlib.closing(self._filesystem.open(path, "read")) as file:
                state = read_head(file)
        except OSError:
            return None
        return None if state is None else state.log_id.hex

    def lock_log(self, directory: str) -> File | None:
        """Acquires the lock of a log that is not open in this process, to exclude writers; None if the log is missing.

        Raises:
            LogBusy: If another process writes to the log.
        """
        try:
            return take_lock(self._filesystem, self.path / directory)
        except FileNotFoundError:
            return None

    def _empty(self, place: Path) -> None:
        """Removes a file or a tree. Of a symbolic link it removes the link, not its target."""
        try:
            self._filesystem.unlink(place)
            return
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            pass  # a directory (the error depends on the operating system), or nothing
        try:
            names = self._filesystem.listing(place)
        except FileNotFoundError:
            return
        for name in names:
            self._empty(place / name)
        self._filesystem.remove_directory(place)

    def close(self) -> None:
        """Releases the lock."""
        if self._lock is not None:
            self._lock.close()

"""The directory of a store: its lock, the directories of its logs, and which of those are in doubt.

::

    shop/
      LOCK              held by the one process that owns the store
      .system/          the system log
      orders/           a log; its directory keeps the name with which it was made
      .doubt-orders     while there is this, the system log decides whether there is to be an ``orders/``

A log is made or dropped in steps, and a process may die between any two of them:

* *make*: note the doubt, make the directory, commit CREATED, settle the doubt;
* *drop*: note the doubt, commit DROPPED, remove the directory, settle the doubt.

The commit to the system log is what counts. Whoever opens the store next goes through the doubts: a directory that the
system log knows stays, one that it does not know is removed. Directories without a doubt are never touched, so what
somebody else has put there is safe. To rename a log, or to give it another type, is one commit and nothing else.
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
    """What a directory is, told by its files; ``nothing`` if it is empty or not there."""
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
        path: Where it is.
    """

    def __init__(self, path: Path, filesystem: FileSystem) -> None:
        self.path = path
        self._filesystem = filesystem
        self._lock: File | None = None

    def check(self, *, missing: bool) -> None:
        """Refuses a directory that is no store.

        Args:
            missing: Whether a store may be made there, if there is nothing.

        Raises:
            NotAStore: If it is none, with what it is instead.
        """
        match kind_of(self._filesystem, self.path):
            case "log":
                raise NotAStore(self.path, "it is a single log, which is opened with ChangeLog.open")
            case "other":
                raise NotAStore(self.path, f"there is no {SYSTEM_DIRECTORY} in it, but something else")
            case "nothing" if not missing:
                raise NotAStore(self.path, f"there is no {SYSTEM_DIRECTORY} in it")

    def own(self) -> None:
        """Makes the directory if need be, and takes its lock.

        Raises:
            LogBusy: If another process owns the store, or another opening in this one.
            OSError: What the file system raises.
        """
        self._filesystem.make_directory(self.path)
        self._lock = take_lock(self._filesystem, self.path)
        sign(self._lock, self._filesystem, 0)

    def names(self) -> list[str]:
        """Everything in the directory."""
        return self._filesystem.listing(self.path)

    # Doubts.

    def doubt(self, directory: str) -> None:
        """Notes, durably, that it is the system log that tells whether there is to be a directory."""
        self._filesystem.open(self.path / f"{_DOUBT}{directory}", "create").close()
        self._filesystem.sync_directory(self.path)

    def doubts(self) -> list[str]:
        """The directories in doubt."""
        return [name.removeprefix(_DOUBT) for name in self.names() if name.startswith(_DOUBT)]

    def settle(self, directory: str) -> None:
        """The directory is as the system log has it."""
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.unlink(self.path / f"{_DOUBT}{directory}")
        self._filesystem.sync_directory(self.path)

    def remove(self, directory: str) -> None:
        """Removes a log with all its files, and settles the doubt that was noted before.

        HEAD goes first, so that nobody who reads the log meanwhile takes it for damaged.
        """
        place = self.path / directory
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._filesystem.unlink(place / HEAD_NAME)
        self._empty(place)
        self._filesystem.sync_directory(self.path)
        self.settle(directory)

    def log_id(self, directory: str) -> str | None:
        """Which log is there at this moment; None if there is none, or it cannot be told."""
        path = self.path / directory / HEAD_NAME
        try:
            with contextlib.closing(self._filesystem.open(path, "read")) as file:
                state = read_head(file)
        except OSError:
            return None
        return None if state is None else state.log_id.hex

    def lock_log(self, directory: str) -> File | None:
        """The lock of a log that is not open here, lest another process writes to it; None if it is not there.

        Raises:
            LogBusy: If one does.
        """
        try:
            return take_lock(self._filesystem, self.path / directory)
        except FileNotFoundError:
            return None

    def _empty(self, place: Path) -> None:
        """Removes a file or a tree; of a symbolic link only itself."""
        try:
            self._filesystem.unlink(place)
            return
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            pass  # a directory, told in the way of the system, or nothing
        try:
            names = self._filesystem.listing(place)
        except FileNotFoundError:
            return
        for name in names:
            self._empty(place / name)
        self._filesystem.remove_directory(place)

    def close(self) -> None:
        """Gives the lock back."""
        if self._lock is not None:
            self._lock.close()

"""The writer's side of coordination with other processes: the lock, its fence, TAIL, and notifications."""

from contextlib import ExitStack
from pathlib import Path

from publishers.wal.disk.filesystem import FencedError, FileSystem
from publishers.wal.files.directory import LOCK_NAME, sign, take_lock
from publishers.wal.files.tail_page import Tail

__all__ = ["Peers"]


class Peers:
    """Excludes other writers, and notifies followers.

    ``flock`` excludes a second writer. If LOCK is removed or replaced under a living writer, a second writer can open the log,
    and the first must stop writing. It finds out from TAIL, which the second writer marks before it reads anything (checked
    before each commit), from HEAD (checked before HEAD is written), and from the file LOCK (checked by the housekeeping).

    Attributes:
        tail: TAIL, which holds the visible position of the previous writer until this one publishes. The check before each
            commit that no other writer has claimed it is one read of memory.
        unannounced: Whether TAIL has moved since followers were notified.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, files: ExitStack) -> None:
        """Acquires the lock; ``files`` releases it.

        Raises:
            LogBusy: If another writer holds it.
            OSError: From the file system.
        """
        self._filesystem = filesystem
        self._directory = directory
        self._lock = take_lock(filesystem, directory)
        files.callback(self._lock.close)
        self.tail = Tail.create(filesystem, directory)
        files.callback(self.tail.close)
        self.tail.claim()
        self._notifier = filesystem.notifier(directory)
        files.callback(self._notifier.close)
        self.unannounced = False

    def sign(self, epoch: int) -> None:
        """Writes the identity of this process and its epoch into LOCK."""
        sign(self._lock, self._filesystem, epoch)

    def notify(self) -> None:
        """Wakes followers if TAIL has moved. Any thread may call it."""
        if self.unannounced:
            # Cleared first: a later publication sets it again and is notified, or precedes this notification.
            self.unannounced = False
            self._notifier.notify()

    def tend(self) -> bool:
        """One step of housekeeping; returns whether there may be more to do.

        Raises:
            FencedError: If LOCK is no longer the file that this writer has locked.
        """
        if not self._lock.is_at(self._directory / LOCK_NAME):
            raise FencedError
        self._notifier.look()
        self.notify()
        return False

"""What the writer of a log has to do with other processes: the lock, the fence behind it, TAIL, notifications."""

from contextlib import ExitStack
from pathlib import Path

from publishers.wal.disk.filesystem import FencedError, FileSystem
from publishers.wal.files.directory import LOCK_NAME, sign, take_lock
from publishers.wal.files.tail_page import Tail

__all__ = ["Peers"]


class Peers:
    """Keeps other writers out, and followers informed.

    ``flock`` excludes a second writer. If LOCK is removed or replaced under a living writer, a second one can open the log,
    and the first must not write any more. TAIL says so, which the second one marks before it looks at anything (asked
    before each commit), so do HEAD (asked before it is written), and the file LOCK itself (now and then).

    Attributes:
        tail: TAIL, which tells what the writer before has shown until this one publishes. It is claimed unless another
            writer has opened the log: asked before each commit, and as cheap as a look at memory.
        unannounced: Whether TAIL has moved since followers were notified.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, files: ExitStack) -> None:
        """Takes the lock, which is freed with ``files``.

        Raises:
            LogBusy: If another writer has it.
            OSError: What the file system raises.
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
        """Tells in LOCK who holds it."""
        sign(self._lock, self._filesystem, epoch)

    def notify(self) -> None:
        """Wakes followers if TAIL has moved. Any thread may call it."""
        if self.unannounced:
            # Cleared first: what is published from now on gets a notification of its own, or this one comes after it.
            self.unannounced = False
            self._notifier.notify()

    def tend(self) -> bool:
        """One step of housekeeping; answers whether there may be more to do.

        Raises:
            FencedError: If LOCK is no longer what this writer has locked.
        """
        if not self._lock.is_at(self._directory / LOCK_NAME):
            raise FencedError
        self._notifier.look()
        self.notify()
        return False

"""What the owner of a log has to do with other processes: the lock, the fence behind it, TAIL, the bell, hard links."""

from collections.abc import Callable, Sequence
from pathlib import Path

from publishers.wal.catalog import SegmentEntry
from publishers.wal.directory import LOCK_NAME, sign, take_lock
from publishers.wal.filesystem import FencedError, FileSystem
from publishers.wal.links import Links
from publishers.wal.tail import Tail

__all__ = ["Neighbours"]


class Neighbours:
    """Keeps other owners out, and followers informed.

    ``flock`` excludes a second owner. Should somebody remove or replace LOCK under a living owner, a second one can come,
    and the first must not write any more. It learns so from TAIL, which the second one marks before it looks at anything
    (asked before each commit), from HEAD (asked before it is written), and from the file LOCK itself (now and then).

    Attributes:
        tail: TAIL, which tells what the owner before has shown until this one publishes.
    """

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        """Takes the lock.

        Raises:
            LogBusy: If somebody has it.
            OSError: What the file system raises.
        """
        self._filesystem = filesystem
        self._directory = directory
        self._lock = take_lock(filesystem, directory)
        try:
            self.tail = Tail.create(filesystem, directory)
        except BaseException:
            self._lock.close()
            raise
        self.tail.claim()
        self._bell = filesystem.bell(directory)
        self._unheard = False
        self._links: Links | None = None

    def link(self, entries: Callable[[], Sequence[SegmentEntry]], max_bytes: int) -> None:
        """Begins to link segments for those who hold them; see `Links`."""
        self._links = Links(self._filesystem, self._directory, entries, max_bytes)

    @property
    def links(self) -> Links:
        """Hard links for consumers; only once the log is open."""
        assert self._links is not None
        return self._links

    def sign(self, epoch: int) -> None:
        """Tells in LOCK who holds it."""
        sign(self._lock, self._filesystem, epoch)

    @property
    def fenced(self) -> bool:
        """Whether another owner has come; asked before each commit, and as cheap as a look at memory."""
        return not self.tail.claimed

    def publish(self, epoch: int, visible: int, segment: int, end: int, durable: int, random: int) -> None:
        """Writes TAIL; whoever does it calls `ring` when he holds no gate any more."""
        self.tail.write(epoch, visible, segment, end, durable, random)
        self._unheard = True

    def ring(self) -> None:
        """Wakes followers if TAIL has moved. Any thread may call it."""
        if self._unheard:
            # Cleared first: what is published from now on gets a ring of its own, or this one comes after it.
            self._unheard = False
            self._bell.ring()

    def tend(self) -> bool:
        """One step of housekeeping; answers whether there may be more to do.

        Raises:
            FencedError: If LOCK is no longer what this owner has locked.
            SyncError: If a directory of links cannot be synced.
        """
        if not self._lock.is_at(self._directory / LOCK_NAME):
            raise FencedError
        self._bell.look()
        self.ring()
        return self._links is not None and self._links.tend()

    def close(self) -> None:
        """Frees the lock."""
        self._bell.close()
        self.tail.close()
        self._lock.close()

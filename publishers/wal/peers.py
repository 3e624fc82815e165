"""The writer's side of coordination with other processes: the lock, its fence, TAIL, and notifications."""

from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Final

from publishers.options import LogOptions
from publishers.wal.disk.filesystem import FencedError, FileSystem
from publishers.wal.files.directory import LOCK_NAME, sign, take_lock
from publishers.wal.files.tail_page import Tail

__all__ = ["Peers"]

_LASTS: Final = 10.0
"""Seconds for which followers believe a writer that it is alive, if its housekeeping is held up."""


class Peers:
    """Excludes other writers, and notifies followers.

    ``flock`` excludes a second writer. If LOCK is removed or replaced under a living writer, a second writer can open the log,
    and the first must stop writing. It finds out from TAIL, which the second writer marks before it reads anything (checked
    before each commit), from HEAD (checked before HEAD is written), and from the file LOCK (checked by the housekeeping).

    Attributes:
        tail: TAIL, which holds the visible position of the previous writer until this one publishes. The check before each
            commit that no other writer has claimed it is one read of memory.
        options: The options of the log.
        unannounced: Whether TAIL has moved since followers were notified.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        files: ExitStack,
        options: LogOptions | Callable[[], LogOptions],
        clock: Callable[[], float],
        wait: float,
    ) -> None:
        """Acquires the lock; ``files`` releases it.

        Args:
            filesystem: The file system of the log.
            directory: Its directory.
            files: Closes what is opened here.
            options: The options of the log; or what chooses them once earlier owners are fenced off.
            clock: The monotonic clock of this machine.
            wait: Seconds to wait for the lock.

        Raises:
            LogBusy: If another writer holds it.
            OSError: From the file system.
        """
        self._filesystem = filesystem
        self._directory = directory
        self._lock = take_lock(filesystem, directory, wait)
        files.callback(self._lock.close)
        self.tail: Tail = Tail.create(filesystem, directory)
        files.callback(self.tail.close)
        self.tail.claim()
        self._clock = clock
        self.options: LogOptions = options() if callable(options) else options
        self._lasts = (
            _LASTS + 2 * self.options.sync_interval
        )  # the longest time between two steps of housekeeping
        self._until = -inf
        self._live()
        files.callback(self.tail.live, 0, 0)
        self._notifier = filesystem.notifier(directory)
        files.callback(self._notifier.close)
        self.unannounced: bool = False

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
        self._live()
        self._notifier.look()
        self.notify()
        return False

    def _live(self) -> None:
        """Says that the writer lives, if a quarter of the time of its last word is over: an idle log writes seldom.

        Two steps of an idle log are half of that time apart, so each of them says it, and one may be late.
        """
        now = self._clock()
        if self._until - now < self._lasts * 3 / 4:
            self._until = now + self._lasts
            self.tail.live(int(self._until * 1e6), self._filesystem.process_id())

"""Writes the synced position into HEAD, so that consumers can rely on positions that they store."""

from threading import Lock

from publishers.errors import LogClosed, LogFailed
from publishers.wal.append.writer import Writer
from publishers.wal.disk.filesystem import means_full
from publishers.wal.files.head import KEEP, SLOT_BYTES, Head

__all__ = ["HeadWriter"]


class HeadWriter:
    """Writes HEAD for an open log; for any thread.

    Attributes:
        head: The present content of HEAD, and whether its slots agree about withheld transactions.
        lock: Held from reading the synced position until HEAD contains it.
    """

    def __init__(self, head: Head, writer: Writer) -> None:
        self.lock: Lock = Lock()
        self.head = head
        self._writer = writer
        self._closed = False

    def write(self, oldest: int | None = None, *, flags: int = 0, visible: int | None = KEEP) -> None:
        """Writes the synced position, and the given fields, into HEAD; see `Head.write`.

        Raises:
            LogClosed: After `close`.
            OSError: From the file.
        """
        with self.lock:
            if self._closed:
                raise LogClosed
            writer = self._writer
            self.head.write(writer.epoch, *writer.evidence(), oldest=oldest, flags=flags, visible=visible)

    def close(self) -> None:
        """Refuses later writes, after the one in progress; the file may then be closed."""
        with self.lock:
            self._closed = True

    def vouch(self, version: int) -> None:
        """See `Wal.vouch`."""
        writer = self._writer
        writer.health.check()
        if self.head.state.durable >= version:
            return
        if writer.synced < version:
            writer.sync()
        try:
            self.write()
        except OSError as error:
            if means_full(error):
                raise writer.health.refuse(error, None, SLOT_BYTES) from error
            writer.health.fail(error)
            raise LogFailed("unknown", str(error)) from error

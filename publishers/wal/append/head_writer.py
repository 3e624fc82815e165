"""HEAD is made to tell what is synced, so that whoever stores a position can rely on it."""

from threading import Lock

from publishers.errors import LogFailed, LogFull
from publishers.wal.append.writer import Writer
from publishers.wal.disk.filesystem import means_full
from publishers.wal.files.head import KEEP, SLOT_BYTES, Head

__all__ = ["HeadWriter"]


class HeadWriter:
    """What HEAD tells of a log that is being written; any thread may have it written.

    Attributes:
        head: Says what HEAD tells now, and whether both slots tell the same of what is withheld.
        lock: Held from reading what HEAD is to tell until it does.
    """

    def __init__(self, head: Head, writer: Writer) -> None:
        self.lock = Lock()
        self.head = head
        self._writer = writer

    def write(self, oldest: int | None = None, *, flags: int = 0, visible: int | None = KEEP) -> None:
        """Makes HEAD tell what is synced, and more where that is given; see `Head.write`.

        Raises:
            OSError: What the file raises.
        """
        with self.lock:
            writer = self._writer
            self.head.write(writer.epoch, *writer.evidence(), oldest=oldest, flags=flags, visible=visible)

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
                raise LogFull(None, SLOT_BYTES) from error
            writer.health.fail(error)
            raise LogFailed("unknown", str(error)) from error

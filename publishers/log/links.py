"""Hard links of segments, as a log offers them to its owner and to consumers."""

from collections.abc import Callable
from pathlib import Path

from publishers.errors import InvalidOption, LogReadOnly
from publishers.model.position import Position, check_position
from publishers.wal import Follower, Wal

__all__ = ["LogLinks"]


class LogLinks:
    """Keeps segments for consumers in other processes, whatever the retention of the log deletes.

    The owner registers a consumer once: ``log.links.add("spark")``. From then on each new segment is linked for it as well.
    The consumer opens the log with ``ChangeLog.open(path, read_only=True, consumer="spark")``, keeps its own position, and
    releases what it has read: ``log.links.release(position)``.
    """

    def __init__(self, path: Path, files: Wal | Follower, check: Callable[[], None]) -> None:
        self._path = path
        self._files = files
        self._check = check

    def add(self, consumer: str) -> Path:
        """Begins to link for a consumer, from the oldest segment on. Idempotent, but starts over if the consumer has met a gap.

        Returns:
            The directory of its links, in which the consumer must be able to write.

        Raises:
            InvalidOption: If the name is invalid, or the directory is on another file system than the log.
            LogReadOnly: If this opening does not own the log.
            LogClosed: If the log was closed.
            OSError: From the file system.
        """
        return self._owner().links.add(consumer)

    def remove(self, consumer: str) -> None:
        """Stops linking for a consumer, and removes its links; raises as `add` does."""
        self._owner().links.remove(consumer)

    @property
    def consumers(self) -> tuple[str, ...]:
        """The consumers for which the owner links; raises as `add` does."""
        return self._owner().links.consumers

    @property
    def held_bytes(self) -> int:
        """Bytes of segments that the log has deleted and a consumer still links; 0 if this opening does not own the log."""
        return self._files.links.held_bytes if isinstance(self._files, Wal) else 0

    def release(self, position: Position) -> int:
        """Removes this consumer's links of segments that end before a position; the newest link always stays.

        The consumer makes its position durable first.

        Returns:
            The number of removed links.

        Raises:
            InvalidOption: If this opening reads through no links of its own, or ``position`` is invalid.
            LogClosed: If the log was closed.
            OSError: From the file system.
        """
        self._check()
        check_position("position", position)
        if isinstance(self._files, Wal):
            raise InvalidOption("consumer", None, "given when the log is opened with read_only=True")
        return self._files.release(position.version)

    def _owner(self) -> Wal:
        self._check()
        if not isinstance(self._files, Wal):
            raise LogReadOnly(self._path)
        return self._files

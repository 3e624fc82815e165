"""Hard links of segments, as a log offers them to its owner and to consumers."""

from collections.abc import Callable
from pathlib import Path

from publishers.errors import InvalidOption, LogReadOnly
from publishers.model.position import Position, check_position
from publishers.wal import Follower, Wal

__all__ = ["LogLinks"]


class LogLinks:
    """Keeps segments for consumers in other processes, whatever the retention of the log deletes.

    The owner names a consumer once: ``log.links.add("spark")``. From then on each new segment is linked for it as well. The
    consumer opens the log with ``ChangeLog.open(path, read_only=True, consumer="spark")``, keeps its own position, and
    says how far it has got: ``log.links.release(position)``.
    """

    def __init__(self, path: Path, files: Wal | Follower, check: Callable[[], None]) -> None:
        self._path = path
        self._files = files
        self._check = check

    def add(self, consumer: str) -> Path:
        """Begins to link for a consumer, from the oldest segment on; anew if it came to a gap, else it changes nothing.

        Returns:
            The directory of its links, in which the consumer must be able to write.

        Raises:
            InvalidOption: If the name is not one, or the directory is on another file system than the log.
            LogReadOnly: If this opening is not the owner.
            LogClosed: If the log was closed.
            OSError: What the file system raises.
        """
        return self._owner().links.add(consumer)

    def remove(self, consumer: str) -> None:
        """Links no more for a consumer, and removes its links; raises as `add` does."""
        self._owner().links.remove(consumer)

    @property
    def consumers(self) -> tuple[str, ...]:
        """For whom the owner links; raises as `add` does."""
        return self._owner().links.consumers

    @property
    def held_bytes(self) -> int:
        """Bytes of segments that the log has deleted and some consumer has not; 0 if this opening is not the owner."""
        return self._files.links.held_bytes if isinstance(self._files, Wal) else 0

    def release(self, position: Position) -> int:
        """Removes this consumer's links of segments that end before a position; the newest one always stays.

        The consumer makes its position durable first.

        Returns:
            How many.

        Raises:
            InvalidOption: If this opening reads through no links of its own, or ``position`` is none.
            LogClosed: If the log was closed.
            OSError: What the file system raises.
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

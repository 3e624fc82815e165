"""The spare segment: the housekeeping makes it, and a roll uses it."""

from pathlib import Path
from threading import Lock

from publishers.options import LogOptions
from publishers.wal.append.active_segment import FIRST_FILL, Spare
from publishers.wal.disk.filesystem import FileSystem

__all__ = ["Spares"]


class Spares:
    """Keeps at most one spare segment. Thread-safe."""

    def __init__(self, filesystem: FileSystem, directory: Path, options: LogOptions) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._options = options
        self._spare: Spare | None = None
        self._lock = Lock()

    @property
    def wanted(self) -> bool:
        """Whether there is no spare segment."""
        return self._spare is None

    def make(self) -> None:
        """Makes a spare segment for the next roll, with as many zeros as are kept ahead in the active segment.

        Raises:
            OSError: From the file system.
        """
        options = self._options
        spare = Spare(self._filesystem, self._directory, min(options.fill_step, options.segment_bytes))
        with self._lock:
            if self._spare is None:
                self._spare = spare
                return
        spare.discard()

    def take(self) -> Spare:
        """The spare segment; if there is none, one that is made now, with fewer zeros.

        Raises:
            OSError: From the file system.
        """
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is None:
            options = self._options
            size = min(options.fill_step, FIRST_FILL, options.segment_bytes)
            spare = Spare(self._filesystem, self._directory, size)
        return spare

    def close(self) -> None:
        """Removes an unused spare segment."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.discard()

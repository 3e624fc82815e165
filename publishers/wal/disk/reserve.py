"""Room that is kept back: what must be written on a full disk too is written in its place.

A log that has no room for changes must still be able to forget, to show, to be closed and to be opened again, and who
stands above it to store a place. All of that is small. So a file of its own, RESERVE, occupies some room from the opening
on. When such a write finds none, a slice of the file is given back to the disk and the write is repeated. Changes are not
written before the file is whole again (`Writer.append`), so they never live on what was kept back.

Its bytes mean nothing. They are not zeros, for which some file systems keep no room.
"""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

from publishers.options import LogOptions
from publishers.wal.disk.filesystem import FileSystem, means_full, sync_file, sync_names, write_all

__all__ = ["RESERVE_NAME", "Reserve"]

RESERVE_NAME: Final = "RESERVE"

_T = TypeVar("_T")
_LEAST_SLICE: Final = 4096
_SLICES: Final = 16
_NOISE: Final = random.Random(0).randbytes(128 * 1024)  # noqa: S311 - what does not compress; nobody is to be surprised by it


class Reserve:
    """The file RESERVE of an owned log. Thread-safe.

    Attributes:
        wanted: Bytes that it has when it is whole: ``reserve_bytes``, and at most a sixteenth of a segment.
        low: Whether it is not whole.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, options: LogOptions) -> None:
        """Takes it as it was left; whoever makes it has the lock of the log."""
        self.wanted = min(options.reserve_bytes, options.segment_bytes // _SLICES)
        self._filesystem = filesystem
        self._directory = directory
        self._path = directory / RESERVE_NAME
        self._lock = Lock()
        self._size = 0
        # Where it cannot be opened there is none yet.
        with contextlib.suppress(OSError), contextlib.closing(filesystem.open(self._path, "read")) as file:
            self._size = file.size()
        self.low = self._size < self.wanted

    @property
    def nbytes(self) -> int:
        """Bytes that are kept back at this moment."""
        return min(self._size, self.wanted)

    @property
    def lacking(self) -> int:
        """Bytes without which it is not whole."""
        return max(self.wanted - self._size, 0)

    def fill(self) -> bool:
        """Makes it whole; answers whether there was something to do. What was written before an error stays in it.

        Raises:
            OSError: What the file system raises. If it is from a sync, the log has failed.
        """
        if not self.low:
            return False
        with self._lock:
            created = not self._size
            with contextlib.closing(self._filesystem.open(self._path, "create")) as file:
                self._size = file.size()
                while self._size < self.wanted:
                    piece = _NOISE[: self.wanted - self._size]
                    try:
                        write_all(file, piece, self._size)
                    finally:
                        self._size = file.size()
                sync_file(file)
            if created:
                sync_names(self._filesystem, self._directory)
            self.low = False
        return True

    def spend(self) -> bool:
        """Gives a slice back to the disk; answers whether there was one."""
        with self._lock:
            slice_bytes = max(self.wanted // _SLICES, _LEAST_SLICE)
            left = max((self._size - 1) // slice_bytes * slice_bytes, 0)
            if left >= self._size:
                return False
            try:
                with contextlib.closing(self._filesystem.open(self._path, "write")) as file:
                    file.truncate(left)
            except OSError:
                return False  # what found no room tells so
            self._size = left
            self.low = left < self.wanted
        return True

    def holding(self, write: Callable[[], _T]) -> _T:
        """Does a write for which room is kept back. It may be done several times, so it begins anew each time.

        Raises:
            OSError: What the write raises; ENOSPC only when nothing is left to be given back.
        """
        while True:
            try:
                return write()
            except OSError as error:
                if not means_full(error) or not self.spend():
                    raise

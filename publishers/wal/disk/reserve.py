"""The reserve: disk space for small writes that must succeed on a full disk.

A log without room for changes must still be able to truncate withheld transactions, to publish, to close and to open again, and
its consumers must be able to store positions. All these writes are small. So the file RESERVE occupies some space from the opening
on. If such a write finds no room, a slice of the file is released and the write is repeated. Changes are not written until the
file is whole again (`Writer.append`), so they never use the reserve.

The bytes of the file have no meaning. They are not zeros, since some file systems allocate no space for zeros.
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
_FIRST: Final = 64 * 1024
"""The bytes of the file of a new log."""
_LEAST_SLICE: Final = 4096
_SLICES: Final = 16
_NOISE: Final = random.Random(0).randbytes(128 * 1024)  # noqa: S311 - incompressible bytes, not secrets


class Reserve:
    """The file RESERVE of an owned log. Thread-safe.

    Attributes:
        wanted: The bytes of the whole file: as many as the log has, within ``reserve_bytes`` and a sixteenth of a segment. What
            must be written on a full disk follows from what is in the log.
        low: Whether it is not whole.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, options: LogOptions) -> None:
        """Uses the file as it was left; the caller holds the lock of the log."""
        self._most = min(options.reserve_bytes, options.segment_bytes // _SLICES)
        self._filesystem = filesystem
        self._directory = directory
        self._path = directory / RESERVE_NAME
        self._lock = Lock()
        self._size = 0
        # If it cannot be opened, it does not exist yet.
        with contextlib.suppress(OSError), contextlib.closing(filesystem.open(self._path, "read")) as file:
            self._size = file.size()
        self.wanted: int = min(max(self._size, _FIRST), self._most)
        self.low: bool = self._size < self.wanted

    @property
    def nbytes(self) -> int:
        """The present bytes of the file."""
        return min(self._size, self.wanted)

    @property
    def lacking(self) -> int:
        """The bytes that the file lacks."""
        return max(self.wanted - self._size, 0)

    def grow(self, nbytes: int) -> None:
        """Notes how many bytes the log has; `fill` then makes the file as large as they require."""
        if self.wanted < min(nbytes, self._most):
            with self._lock:
                self.wanted = min(nbytes, self._most)
                self.low = self._size < self.wanted

    def fill(self) -> bool:
        """Makes the file whole; returns whether it lacked anything. Bytes written before an error stay in it.

        Raises:
            OSError: From the file system. If it is from a sync, the log has failed.
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
        """Releases a slice of the file; returns whether there was one."""
        with self._lock:
            slice_bytes = max(self.wanted // _SLICES, _LEAST_SLICE)
            left = max((self._size - 1) // slice_bytes * slice_bytes, 0)
            if left >= self._size:
                return False
            try:
                with contextlib.closing(self._filesystem.open(self._path, "write")) as file:
                    file.truncate(left)
            except OSError:
                return False  # the repeated write reports the full disk
            self._size = left
            self.low = left < self.wanted
        return True

    def holding(self, write: Callable[[], _T]) -> _T:
        """Performs a write that may use the reserve. The write may be called several times, each time from its beginning.

        Raises:
            OSError: What the write raises; ENOSPC only after the whole reserve was released.
        """
        while True:
            try:
                return write()
            except OSError as error:
                if not means_full(error) or not self.spend():
                    raise

"""The segments of an open log: their numbers and ends, and their shared open files."""

import contextlib
import errno
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID

from publishers.wal.disk.filesystem import File, FileSystem, open_file
from publishers.wal.files.segment import SparseIndex, check_header, read_index, segment_name, segment_numbers
from publishers.wal.read.presence import Presence

__all__ = ["Catalog", "Limit", "Location", "SegmentEntry"]

_OPEN_FILES: Final = 8
_INDEXES: Final = 32


class Location(NamedTuple):
    """The beginning of a frame."""

    segment: int
    offset: int


class Limit(NamedTuple):
    """The limit of a reader: no version above ``version``, no byte from ``(segment, offset)`` on."""

    version: int
    segment: int
    offset: int


class SegmentEntry(NamedTuple):
    """A segment of the log.

    Attributes:
        number: The number of the segment.
        first_version: The version of its first transaction.
        created_at: The time when the previous segment was closed, in unix microseconds.
        began: The same time in seconds of the monotonic clock; None if it was before this opening.
    """

    number: int
    first_version: int
    created_at: int
    began: float | None = None


@dataclass(slots=True)
class _Handle:
    file: File
    users: int = 0
    dropped: bool = False


class Catalog:
    """The segments of a log, for readers. Thread-safe.

    At most 8 files stay open beyond those that are being read now. With a ``presence``, which a follower has, no file is read
    that may belong to another directory at the same path.

    Attributes:
        entries: The segments, oldest first; the sequence is replaced as a whole, never modified.
        log_id: The id of the log.
        newest: For a follower, the last segment with visible versions. `refresh` leaves out later segments, since they may be
            truncated and written again with other transactions. None for no limit.
    """

    def __init__(
        self, filesystem: FileSystem, directory: Path, log_id: UUID, presence: Presence | None = None
    ) -> None:
        self.log_id = log_id
        self.newest: int | None = None
        self.entries: tuple[SegmentEntry, ...] = ()
        self._filesystem = filesystem
        self._directory = directory
        self._presence = presence
        self._lock = Lock()
        self._handles: OrderedDict[int, _Handle] = OrderedDict()
        self._indexes: OrderedDict[int, SparseIndex] = OrderedDict()
        self._ends: dict[int, int] = {}

    def add(self, entry: SegmentEntry, index: SparseIndex | None = None) -> None:
        """Appends a new segment; the previous one, if any, is complete."""
        with self._lock:
            self.entries = (*self.entries, entry)
            if index is not None:
                self._keep_index(entry.number, index)

    def ended(self, number: int, end: int) -> None:
        """Notes the size of a closed segment."""
        with self._lock:
            self._ends[number] = end

    def drop(self, below: int) -> None:
        """Removes the segments with a lower number, and closes each of their files after its last read."""
        with self._lock:
            self._forget(lambda number: number < below)

    def cut(self, number: int, index: SparseIndex) -> None:
        """Removes the segments with a higher number, which were deleted; ``number`` becomes the active segment again."""
        with self._lock:
            self._forget(lambda later: later > number)
            self._ends.pop(number, None)
            self._indexes.pop(number, None)
            self._keep_index(number, index)

    def _forget(self, is_gone: Callable[[int], bool]) -> None:
        self.entries = tuple(entry for entry in self.entries if not is_gone(entry.number))
        for numbers in (self._indexes, self._ends):
            for number in filter(is_gone, [*numbers]):
                del numbers[number]
        for number in filter(is_gone, [*self._handles]):
            self._retire(self._handles.pop(number))

    def refresh(self) -> None:
        """Updates the segments from the directory, for a follower.

        Raises:
            OSError: If the directory or the header of a new segment cannot be read.
            WalCorrupted: If the header of a new segment is damaged.
        """
        numbers = segment_numbers(self._filesystem.listing(self._directory))
        if self.newest is not None:
            # Retention may have deleted all known segments; it never deletes the newest visible version.
            numbers = numbers[: max(bisect_right(numbers, self.newest), 1)]
        known = {entry.number: entry for entry in self.entries}
        entries: list[SegmentEntry] = []
        for number in numbers:
            entry = known.get(number)
            if entry is None:
                try:
                    entry = self._read_entry(number)
                except FileNotFoundError:
                    # Retention has deleted this segment meanwhile, and so all earlier ones.
                    entries.clear()
                    continue
            entries.append(entry)
        with self._lock:
            self.entries = tuple(entries)
        if entries:
            self.drop(entries[0].number)

    def _read_entry(self, number: int) -> SegmentEntry:
        with contextlib.closing(self._open(number)) as file:
            header = check_header(file, number, self.log_id)
        return SegmentEntry(number, header.first_version, header.created_at)

    def _open(self, number: int) -> File:
        """Opens a segment, then checks the directory: if it was replaced, the file may belong to another log."""
        path = self._directory / segment_name(number)
        file = open_file(self._filesystem, path, "read")
        if self._presence is not None and not self._presence.holds():
            file.close()
            raise OSError(errno.ESTALE, "it is not of the log that was opened", str(path))
        return file

    def find(self, version: int) -> SegmentEntry:
        """The segment that holds the version, or the last segment if the version is not written yet."""
        entries = self.entries
        return entries[max(bisect_right(entries, version, key=lambda entry: entry.first_version) - 1, 0)]

    def size(self, number: int) -> int:
        """Bytes of a closed segment.

        Raises:
            OSError: From the file system.
        """
        end = self._ends.get(number)
        if end is None:
            handle = self._acquire(number)
            try:
                end = handle.file.size()
            finally:
                self._release(handle)
            self.ended(number, end)
        return end

    def pread(self, number: int, size: int, offset: int) -> bytes:
        """Reads from a segment.

        Raises:
            OSError: From the file system; FileNotFoundError if retention has deleted the segment.
        """
        handle = self._acquire(number)
        try:
            return handle.file.pread(size, offset)
        finally:
            self._release(handle)

    def _acquire(self, number: int) -> _Handle:
        with self._lock:
            handle = self._handles.get(number)
            if handle is None:
                handle = _Handle(self._open(number))
                self._handles[number] = handle
            else:
                self._handles.move_to_end(number)
            handle.users += 1
            if len(self._handles) > _OPEN_FILES:
                self._retire(self._handles.popitem(last=False)[1])
            return handle

    def _release(self, handle: _Handle) -> None:
        with self._lock:
            handle.users -= 1
            if handle.dropped and not handle.users:
                handle.file.close()

    def _retire(self, handle: _Handle) -> None:
        handle.dropped = True
        if not handle.users:
            handle.file.close()

    def index(self, number: int) -> SparseIndex:
        """The index of a segment: from memory, else from its file, else an empty index that readers fill."""
        with self._lock:
            index = self._indexes.get(number)
            if index is not None:
                self._indexes.move_to_end(number)
                return index
        try:
            index, _ = read_index(self._filesystem, self._directory, self.log_id, number)
        except (OSError, ValueError):
            index = SparseIndex()
        with self._lock:
            return self._keep_index(number, index)

    def _keep_index(self, number: int, index: SparseIndex) -> SparseIndex:
        index = self._indexes.setdefault(number, index)
        while len(self._indexes) > _INDEXES:
            # The index of the active segment exists only in memory.
            oldest = next(iter(self._indexes))
            if oldest == self.entries[-1].number:
                self._indexes.move_to_end(oldest)
            else:
                del self._indexes[oldest]
        return index

    def close(self) -> None:
        """Closes every file after its last read."""
        with self._lock:
            while self._handles:
                self._retire(self._handles.popitem()[1])

"""Segments: their names, their headers, and the sparse index beside each closed segment."""

import contextlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID
from zlib import crc32

from publishers.errors import FormatTooNew, WalCorrupted
from publishers.wal.disk.filesystem import File, FileSystem, put_file, read_file

__all__ = [
    "DATA_START",
    "FORMAT",
    "INDEX_STEP",
    "SegmentHeader",
    "SparseIndex",
    "Trailer",
    "check_header",
    "index_name",
    "read_header",
    "read_index",
    "remove_segment",
    "segment_name",
    "segment_number",
    "segment_numbers",
    "write_index",
]

DATA_START: Final = 64
FORMAT: Final = 2
"""The newest format that is read, and the one that is written. From some segment on, all segments of a log have it."""
INDEX_STEP: Final = 64 * 1024

_MAGIC: Final = b"PENSTK01"
_HEADER: Final = Struct("<8sHHIQQ16sqI")
_CRC: Final = Struct("<I")
_ENTRY: Final = Struct("<QIIqQ")
_INDEX_MAGIC: Final = b"PENSIX01"
_TRAILER: Final = Struct("<8s16sQQQqIII")
_NAME: Final = re.compile(r"wal-([0-9]{12})\.(log|idx)")


def segment_name(number: int) -> str:
    """Returns ``wal-000000000001.log`` for 1."""
    return f"wal-{number:012d}.log"


def index_name(number: int) -> str:
    """Returns ``wal-000000000001.idx`` for 1."""
    return f"wal-{number:012d}.idx"


def segment_number(name: str, suffix: str = "log") -> int | None:
    """Returns the number in the name of a segment (or, with ``suffix="idx"``, of an index); None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None or match[2] != suffix:
        return None
    return int(match[1]) or None


def segment_numbers(names: Iterable[str]) -> list[int]:
    """Returns the numbers of the segments among file names, rising."""
    return sorted(number for name in names if (number := segment_number(name)) is not None)


class SegmentHeader(NamedTuple):
    """The first 64 bytes of a segment.

    Attributes:
        number: From 1, without gaps.
        first_version: Version of the first transaction that is stored here.
        log_id: Id of the log.
        created_at: Microseconds since the Unix epoch.
        previous: ``crc`` of the last frame of the previous segment; 0 in segment 1.
        form: The format of everything in the segment, 1 or 2.
    """

    number: int
    first_version: int
    log_id: UUID
    created_at: int
    previous: int
    form: int = FORMAT

    def pack(self) -> bytes:
        """Returns the 64 bytes."""
        body = _HEADER.pack(
            _MAGIC,
            self.form,
            0,
            64,
            self.number,
            self.first_version,
            self.log_id.bytes,
            self.created_at,
            self.previous,
        )
        return body + _CRC.pack(crc32(body))

    @classmethod
    def unpack(cls, data: bytes) -> "SegmentHeader":
        """Unpacks a header.

        Raises:
            FormatTooNew: If it is of a later format.
            ValueError: If it is not valid; the text says what is wrong.
        """
        if len(data) < DATA_START:
            raise ValueError(f"the header has {len(data)} of 64 bytes")
        (crc,) = _CRC.unpack_from(data, 60)
        if crc32(data[:60]) != crc:
            raise ValueError("the crc of the header is wrong")
        magic, form, flags, size, number, first, log_id, created_at, previous = _HEADER.unpack_from(data)
        if magic == _MAGIC and form > FORMAT:
            raise FormatTooNew(form, FORMAT)
        if magic != _MAGIC or not form or flags or size != DATA_START:
            raise ValueError(
                f"the header is not of format 1 or {FORMAT} (magic {magic!r}, format {form}, flags {flags})"
            )
        return cls(number, first, UUID(bytes=log_id), created_at, previous, form)


def check_header(file: File, number: int, log_id: UUID | None = None) -> SegmentHeader:
    """Reads and checks the header of a segment.

    Args:
        file: The segment.
        number: The expected number.
        log_id: The expected log; None skips the check of number and log.

    Raises:
        FormatTooNew: If it is of a later format.
        OSError: If it cannot be read.
        WalCorrupted: If it is damaged, or belongs to another segment or log.
    """
    try:
        header = SegmentHeader.unpack(file.pread(DATA_START, 0))
    except ValueError as error:
        raise WalCorrupted(number, 0, str(error)) from None
    if log_id is not None and (header.number, header.log_id) != (number, log_id):
        why = f"the header is of segment {header.number} of log {header.log_id}, not {log_id}"
        raise WalCorrupted(number, 0, why)
    return header


def read_header(filesystem: FileSystem, directory: Path, number: int) -> SegmentHeader:
    """Reads the header of a segment of any log.

    Raises:
        FormatTooNew: If it is of a later format.
        OSError: If it cannot be read.
        WalCorrupted: If it is damaged.
    """
    with contextlib.closing(filesystem.open(directory / segment_name(number), "read")) as file:
        return check_header(file, number)


class Trailer(NamedTuple):
    """The part of an index that describes the end of its segment.

    Attributes:
        last_version: Last version in the segment, or the one before its first if it has none.
        last_crc: ``crc`` of its last frame.
        end: Its size.
        committed_at: Commit time of its last version in microseconds since the Unix epoch.
    """

    last_version: int
    last_crc: int
    end: int
    committed_at: int

    def fits(self, size: int, following: SegmentHeader) -> bool:
        """Whether it describes a segment of that size, and the following segment continues it."""
        goes_on = (size, following.first_version, following.previous)
        return (self.end, self.last_version + 1, self.last_crc) == goes_on


class SparseIndex:
    """Offsets of frames in one segment, about every 64 KiB.

    A lock admits one adding thread at a time; any number of threads may look up meanwhile, because entries are only appended.
    """

    __slots__ = ("_entries", "_keys", "_lock", "next")

    def __init__(self) -> None:
        self._keys: list[tuple[int, int]] = []
        self._entries: list[tuple[int, int]] = []
        self._lock = Lock()
        self.next: int = 0

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, version: int, first_index: int, committed_at: int, offset: int) -> None:
        """Adds a frame as an entry, unless it lies within 64 KiB of the last one."""
        if offset < self.next:
            return
        with self._lock:
            if offset >= self.next:
                self.next = offset + INDEX_STEP
                self._entries.append((committed_at, offset))
                self._keys.append((version, first_index))

    def entries(self) -> dict[int, tuple[int, int, int]]:
        """Returns by offset: version, first index and commit time of the frame there."""
        with self._lock:
            return {at: (*key, time) for key, (time, at) in zip(self._keys, self._entries, strict=True)}

    def before(self, version: int, index: int) -> int:
        """Returns the offset of the last entry at or before a change; the start of the data if there is none."""
        # A FIRST frame also holds index 0, but its entry has first index 1.
        place = bisect_right(self._keys, (version, max(index, 1)))
        return self._entries[place - 1][1] if place else DATA_START

    def earlier(self, committed_at: int) -> int:
        """Returns the offset of the last entry that was committed before a time; the start of the data if there is none."""
        place = bisect_left(self._entries, (committed_at, 0))
        return self._entries[place - 1][1] if place else DATA_START

    def pack(self, log_id: UUID, number: int, trailer: Trailer) -> bytes:
        """Returns the bytes of an index file."""
        entries = b"".join(
            _ENTRY.pack(*key, 0, *entry) for key, entry in zip(self._keys, self._entries, strict=True)
        )
        tail = _TRAILER.pack(
            _INDEX_MAGIC, log_id.bytes, number, trailer.last_version, trailer.end, trailer.committed_at,
            trailer.last_crc, len(self._keys), 0,
        )  # fmt: skip
        body = entries + tail[:-4]
        return body + _CRC.pack(crc32(body))

    @classmethod
    def unpack(cls, data: bytes, log_id: UUID, number: int) -> "tuple[SparseIndex, Trailer]":
        """Unpacks an index file.

        Raises:
            ValueError: If it is not an intact index of this segment of this log.
        """
        at = len(data) - _TRAILER.size
        if at < 0:
            raise ValueError("the index is too short")
        magic, owner, segment, last_version, end, committed_at, last_crc, count, crc = _TRAILER.unpack_from(
            data, at
        )
        if crc32(data[:-4]) != crc or at != count * _ENTRY.size:
            raise ValueError("the crc of the index is wrong")
        if (magic, owner, segment) != (_INDEX_MAGIC, log_id.bytes, number):
            raise ValueError("the index belongs to another segment")
        index = cls()
        for version, first_index, _, at_time, offset in _ENTRY.iter_unpack(data[:at]):
            index.add(version, first_index, at_time, offset)
        index.next = end
        return index, Trailer(last_version, last_crc, end, committed_at)


def write_index(filesystem: FileSystem, directory: Path, number: int, data: bytes) -> None:
    """Writes an index beside its segment, atomically.

    Raises:
        OSError: From the file system.
    """
    put_file(filesystem, directory / index_name(number), data)


def read_index(
    filesystem: FileSystem, directory: Path, log_id: UUID, number: int
) -> tuple[SparseIndex, Trailer]:
    """Reads the index beside a segment.

    Raises:
        OSError: If it cannot be read; FileNotFoundError if there is none.
        ValueError: If it is not an intact index of this segment of this log.
    """
    return SparseIndex.unpack(read_file(filesystem, directory / index_name(number)), log_id, number)


def remove_segment(filesystem: FileSystem, directory: Path, number: int) -> None:
    """Removes a segment, and its index if it has one; durable once the directory is synced.

    Raises:
        OSError: From the file system.
    """
    filesystem.unlink(directory / segment_name(number))
    with contextlib.suppress(FileNotFoundError):
        filesystem.unlink(directory / index_name(number))

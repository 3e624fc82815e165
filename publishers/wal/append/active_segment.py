"""The active segment, and the spare segment that will follow it."""

import contextlib
import errno
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple
from zlib import crc32

from publishers.wal.disk.filesystem import (
    File,
    FileSystem,
    SyncError,
    names_of,
    read_blocks,
    sync_file,
    write_all,
)
from publishers.wal.files.segment import SegmentHeader, SparseIndex, Trailer, segment_name
from publishers.wal.format.frame import CONTROL, NO_PRODUCER, Chain, seal
from publishers.wal.keep.hard_links import link_segment

__all__ = ["FIRST_FILL", "ActiveSegment", "Closed", "Spare", "control_frame", "create_segment", "write_zeros"]

FIRST_FILL: Final = 64 * 1024
"""Bytes of zeros of a new log, and of a segment that must be made at once, since no spare segment is ready."""

_ZEROS: Final = bytes(256 * 1024)
_spares = count(1)


def write_zeros(file: File, start: int, end: int) -> None:
    """Writes zeros from ``start`` up to ``end``.

    The zeros are really written: an extent that is only allocated costs a metadata update at its first write.

    Raises:
        OSError: From the file.
    """
    while start < end:
        size = min(len(_ZEROS), end - start)
        write_all(file, _ZEROS if size == len(_ZEROS) else _ZEROS[:size], start)
        start += size


class ActiveSegment:
    """The active segment, written by one thread that appends and one that fills zeros ahead.

    Only the appender writes below ``filled``; behind it the two threads exclude each other with ``lock``. The filler has its own
    file descriptor: if its sync consumes an error of the kernel, the appender's next sync still reports that error too.

    Attributes:
        number: The number of the segment.
        first_version: The version of its first transaction.
        created_at: Its creation, in unix microseconds.
        form: Its format.
        file: The appender's file.
        offset: The offset of the next frame.
        filled: The end of the frames and the zeros in the file.
        index: Its sparse index.
        lock: Held for writes behind ``filled``, and for a roll.
        closed: Whether it is no longer the last segment.
    """

    __slots__ = (
        "_filesystem",
        "_path",
        "closed",
        "created_at",
        "file",
        "filled",
        "first_version",
        "form",
        "index",
        "lock",
        "number",
        "offset",
    )

    def __init__(
        self, filesystem: FileSystem, path: Path, file: File, header: SegmentHeader, offset: int, filled: int
    ) -> None:
        self._filesystem = filesystem
        self._path = path
        self.number: int = header.number
        self.first_version: int = header.first_version
        self.created_at: int = header.created_at
        self.form: int = header.form
        self.file: File = file
        self.offset: int = offset
        self.filled: int = max(filled, offset)
        self.index: SparseIndex = SparseIndex()
        self.lock: Lock = Lock()
        self.closed: bool = False

    def put(self, data: bytes) -> None:
        """Writes at ``offset``, which moves only after the whole write.

        Raises:
            OSError: From the file; a partial write stays in the file, and the caller must undo it.
        """
        offset = self.offset
        end = offset + len(data)
        if end <= self.filled:
            if self.file.pwrite(data, offset) != len(data):
                write_all(self.file, data, offset)
        else:
            with self.lock:
                write_all(self.file, data, offset)
                self.filled = max(self.filled, end)
        self.offset = end

    def undo(self, start: int, end: int, filled: int) -> None:
        """Undoes a write from ``start`` on, durably.

        Args:
            start: Where the failed write began; becomes ``offset`` again.
            end: The greatest offset that it may have reached.
            filled: The end of the zeros before the write; the file is truncated there, and zeroed from ``start``.

        Raises:
            OSError: From the file; the log has failed then.
        """
        with self.lock:
            self.offset = start
            self.filled = max(filled, start)
            size = self.file.size()
            end = min(end, self.filled, size)
            if size <= self.filled and not any(
                map(any, (data for _, data in read_blocks(self.file, start, end)))
            ):
                return  # nothing was written, perhaps since nothing can be
            if size > self.filled:
                self.file.truncate(self.filled)
            write_zeros(self.file, start, end)
            sync_file(self.file)

    def fill(self, target: int) -> bool:
        """Writes zeros up to ``target`` and syncs them; in small steps, so that an append never waits long.

        Raises:
            OSError: From the file. After an error of the sync, the log has failed.
        """
        if self.closed or self.filled >= target:
            return False
        with contextlib.closing(self._filesystem.open(self._path, "write")) as file:
            while True:
                with self.lock:
                    start = self.filled
                    if self.closed or start >= target:
                        break
                    end = min(target, start + len(_ZEROS))
                    write_zeros(file, start, end)
                    self.filled = end
            sync_file(file)
        return True

    def finish(self) -> None:
        """Truncates the file to its end and syncs it. The caller holds ``lock``.

        Raises:
            OSError: From the file.
        """
        self.file.truncate(self.offset)
        self.filled = self.offset
        sync_file(self.file)

    def close(self) -> None:
        """Closes the appender's file."""
        self.closed = True
        self.file.close()


class Closed(NamedTuple):
    """A closed segment without an index file."""

    active: ActiveSegment
    trailer: Trailer


class Spare:
    """A file of zeros that becomes the next segment. It has no number until then: any roll may use it."""

    __slots__ = ("_filesystem", "file", "filled", "path")

    def __init__(self, filesystem: FileSystem, directory: Path, size: int) -> None:
        """Makes and syncs the file.

        Raises:
            OSError: From the file system; the file is removed, if possible.
        """
        self._filesystem = filesystem
        self.path: Path = directory / f"spare-{next(_spares)}.tmp"
        self.file: File = filesystem.open(self.path, "create")
        self.filled: int = size
        try:
            write_zeros(self.file, 0, size)
            if size:
                sync_file(self.file)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Removes the file; the next opening would remove it as well."""
        self.file.close()
        with contextlib.suppress(OSError):
            self._filesystem.unlink(self.path)


def control_frame(payload: bytes, chain: Chain, now: int, durable: int) -> bytes:
    """Seals a control frame that continues the chain, and advances the chain."""
    header, fields = seal(
        len(payload),
        crc32(payload),
        chain.crc,
        0,
        chain.version,
        0,
        CONTROL,
        durable,
        max(now, chain.committed_at),
        NO_PRODUCER,
        0,
        0,
        0,
    )
    chain.advance(fields)
    return header + payload + bytes(-len(payload) & 7)


def create_segment(
    filesystem: FileSystem,
    directory: Path,
    header: SegmentHeader,
    first_frame: bytes,
    *,
    spare: Spare,
) -> ActiveSegment:
    """Makes a spare file the next segment: header and CHECKPOINT, sync, rename, sync of the directory, hard links.

    Args:
        filesystem: The file system.
        directory: The directory of the log.
        header: The header of the new segment.
        first_frame: The sealed CHECKPOINT.
        spare: The spare file; it becomes the segment, or is discarded.

    Raises:
        OSError: From the file system. If it is not a `SyncError`, nothing has changed.
    """
    path = directory / segment_name(header.number)
    renamed = False
    try:
        start = header.pack() + first_frame
        # The directory is opened before the rename, which must not be done if it could not be made durable.
        with names_of(filesystem, directory) as sync:
            write_all(spare.file, start, 0)
            sync_file(spare.file)
            filesystem.rename(spare.path, path)
            renamed = True
            sync()
        link_segment(filesystem, directory, header.number)
    except BaseException as error:
        if not renamed:
            spare.discard()
            raise
        spare.file.close()
        if isinstance(error, MemoryError):
            raise SyncError(errno.ENOMEM, "out of memory") from error
        raise
    return ActiveSegment(filesystem, path, spare.file, header, len(start), spare.filled)

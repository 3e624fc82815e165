"""The segment that is being written, and the spare one that will follow it."""

import contextlib
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple
from zlib import crc32

from publishers.wal.disk.filesystem import File, FileSystem, sync_file, sync_names, write_all
from publishers.wal.files.segment import SegmentHeader, SparseIndex, Trailer, segment_name
from publishers.wal.format.frame import CONTROL, NO_PRODUCER, Chain, seal
from publishers.wal.keep.hard_links import link_segment

__all__ = ["FIRST_FILL", "ActiveSegment", "Closed", "Spare", "control_frame", "create_segment", "write_zeros"]

FIRST_FILL: Final = 1024 * 1024
"""Zeros that a segment gets when it must be made at once, because no spare one is ready."""

_ZEROS: Final = bytes(256 * 1024)
_spares = count(1)


def write_zeros(file: File, start: int, end: int) -> None:
    """Writes zeros from ``start`` up to ``end``.

    Real ones: an extent that is only allocated costs a metadata update at its first write.

    Raises:
        OSError: What the file raises.
    """
    while start < end:
        size = min(len(_ZEROS), end - start)
        write_all(file, _ZEROS if size == len(_ZEROS) else _ZEROS[:size], start)
        start += size


class ActiveSegment:
    """The segment that is being written, by one thread that appends and one that fills zeros ahead.

    Bytes below ``filled`` are the appender's alone; behind it the two exclude each other by ``lock``. The filler has
    a file of its own: should a sync of zeros take an error from the kernel, the appender's next sync gets it too.

    Attributes:
        number: Of the segment.
        first_version: Of the first transaction in it.
        created_at: Unix microseconds.
        form: The format of everything in it.
        file: The appender's.
        offset: Where the next frame goes.
        filled: Up to where the file holds zeros or frames.
        index: Its sparse index.
        lock: Held for writes behind ``filled``, and for a roll.
        closed: No longer the last segment.
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
        self.number = header.number
        self.first_version = header.first_version
        self.created_at = header.created_at
        self.form = header.form
        self.file = file
        self.offset = offset
        self.filled = max(filled, offset)
        self.index = SparseIndex()
        self.lock = Lock()
        self.closed = False

    def put(self, data: bytes) -> None:
        """Writes at ``offset``, which moves only when all is written.

        Raises:
            OSError: What the file raises; what was written meanwhile is still there and must be undone.
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
        """Takes back what was written from ``start`` on, durably.

        Args:
            start: Where the failed write began; ``offset`` again.
            end: How far it may have gone.
            filled: How far zeros went before; the file is cut there, and between is zeroed.

        Raises:
            OSError: What the file raises; the log has failed then.
        """
        with self.lock:
            self.offset = start
            self.filled = max(filled, start)
            size = self.file.size()
            if size > self.filled:
                self.file.truncate(self.filled)
            write_zeros(self.file, start, min(end, self.filled, size))
            sync_file(self.file)

    def fill(self, target: int) -> bool:
        """Fills zeros up to ``target`` and syncs them; in small steps, so that an append never waits long.

        Raises:
            OSError: What the file raises. If it is from a sync, the log has failed.
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
        """Cuts the file to its end and syncs it. The caller holds ``lock``.

        Raises:
            OSError: What the file raises.
        """
        self.file.truncate(self.offset)
        self.filled = self.offset
        sync_file(self.file)

    def close(self) -> None:
        """Closes the appender's file."""
        self.closed = True
        self.file.close()


class Closed(NamedTuple):
    """A segment that was closed and has no index file yet."""

    active: ActiveSegment
    trailer: Trailer


class Spare:
    """A file of zeros that waits to become the next segment. It has no number: any roll may take it."""

    __slots__ = ("_filesystem", "file", "filled", "path")

    def __init__(self, filesystem: FileSystem, directory: Path, size: int) -> None:
        """Makes and syncs it.

        Raises:
            OSError: What the file system raises; nothing is left behind if it can be helped.
        """
        self._filesystem = filesystem
        self.path = directory / f"spare-{next(_spares)}.tmp"
        self.file = filesystem.open(self.path, "create")
        self.filled = size
        try:
            write_zeros(self.file, 0, size)
            if size:
                sync_file(self.file)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Removes the file; the next opening would do it too."""
        self.file.close()
        with contextlib.suppress(OSError):
            self._filesystem.unlink(self.path)


def control_frame(payload: bytes, chain: Chain, now: int, durable: int) -> bytes:
    """A control frame that continues the chain, which it advances."""
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
        filesystem: Where.
        directory: Of the log.
        header: Of the new segment.
        first_frame: The CHECKPOINT, sealed.
        spare: The file; it belongs to the segment from now on, or is discarded.

    Raises:
        OSError: What the file system raises. Unless the rename was done, nothing has changed.
    """
    path = directory / segment_name(header.number)
    start = header.pack() + first_frame
    try:
        write_all(spare.file, start, 0)
        sync_file(spare.file)
        filesystem.rename(spare.path, path)
    except BaseException:
        spare.discard()
        raise
    try:
        sync_names(filesystem, directory)
        link_segment(filesystem, directory, header.number)
    except BaseException:
        spare.file.close()
        raise
    return ActiveSegment(filesystem, path, spare.file, header, len(start), spare.filled)

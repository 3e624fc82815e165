"""The inspector: scans segments, and checks which data a log must have. Opening, verify and repair all use it.

Opening refuses damage to acknowledged data, and truncates torn writes. Verify reports the first as corrupt and the second as torn,
and continues. The rules on which they must agree are here:

* which frames restore a segment, which are out of place (`Replay`), and where the last whole frame ends (`restore`);
* which data HEAD and TAIL require (`Acknowledged`);
* which data were durable according to frames behind the damage (`find_vouching`).
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from publishers.errors import WalCorrupted
from publishers.wal.disk.filesystem import File, FileSystem, check_exhausted, open_file, read_blocks
from publishers.wal.files.head import HeadState
from publishers.wal.files.segment import DATA_START, SparseIndex, Trailer, check_header, segment_name
from publishers.wal.files.tail_page import TailState
from publishers.wal.format.control import ControlTables, Epoch, Kind, ProducerState, decode_control
from publishers.wal.format.frame import CONTROL, HEADER_BYTES, LAST, NO_PRODUCER, Chain, FrameHeader, Scan
from publishers.wal.read.catalog import Location

__all__ = [
    "PARTIAL",
    "Acknowledged",
    "Replay",
    "Restored",
    "find_vouching",
    "first_nonzero",
    "header_at",
    "inspect_segment",
    "intact_frames",
    "is_of_two_histories",
    "reading",
    "restore",
]

PARTIAL: Final = "some files are missing, or older than the others"
_WINDOW: Final = 1 << 20
_ZEROS: Final = bytes(512)
_LENGTH: Final = Struct("<I")


class Acknowledged(NamedTuple):
    """The data that a log must have, according to HEAD and TAIL.

    Attributes:
        head: The data that were synced when HEAD was written; None to ignore HEAD.
        tail: The versions that were visible, if TAIL was written since this machine was booted; None to ignore TAIL.
    """

    head: HeadState | None
    tail: TailState | None

    @property
    def reached(self) -> Location:
        """The location up to which the log must have data."""
        head, tail = self
        return max(
            Location(head.segment, head.offset) if head else Location(0, 0),
            Location(tail.segment, tail.end) if tail else Location(0, 0),
        )

    def lacking(self, version: int, end: Location) -> str | None:
        """Which of the two requires more data than a log with this end has, as text; None if neither does.

        Versions are compared too, as the files of another copy may be longer with fewer versions.
        """
        head, tail = self
        if head is not None and (head.durable > version or (head.segment, head.offset) > end):
            return f"HEAD records version {head.durable} as durable"
        if tail is not None and (tail.visible > version or (tail.segment, tail.end) > end):
            return f"TAIL records version {tail.visible} as visible; {PARTIAL}"
        return None


def is_of_two_histories(head: HeadState, epoch: Epoch | None) -> bool:
    """Whether HEAD and the last epoch of the segments belong to two histories: equal numbers, different random bits."""
    return epoch is not None and epoch.epoch == head.epoch and epoch.random != head.random


class Replay:
    """Restores the state of one segment from its frames, one after the other from the first.

    Attributes:
        tables: Producers and epochs.
        sparse: The sparse index.
    """

    def __init__(self) -> None:
        self.tables: ControlTables = ControlTables()
        self.sparse: SparseIndex = SparseIndex()
        self._frames: list[tuple[int, FrameHeader]] = []

    def take(self, offset: int, frame: FrameHeader, payload: memoryview) -> None:
        """Applies the next frame; a transaction counts once its last frame was applied.

        Raises:
            FormatTooNew: If a later version of penstock wrote it.
            ValueError: If it is out of place, or is a malformed control frame.
        """
        if frame.flags & CONTROL:
            if (decode_control(payload, self.tables) is Kind.CHECKPOINT) != (offset == DATA_START):
                raise ValueError("a checkpoint in the wrong place")
        elif offset == DATA_START:
            raise ValueError("the segment does not begin with a checkpoint")
        else:
            self._frames.append((offset, frame))
            if frame.flags & LAST:
                self._count()

    def _count(self) -> None:
        """Notes a whole transaction."""
        for offset, frame in self._frames:
            self.sparse.add(frame.version, frame.first_index, frame.committed_at, offset)
        frame = self._frames[0][1]
        if frame.producer != NO_PRODUCER:
            state = ProducerState(frame.producer_sequence, frame.version, frame.committed_at)
            self.tables.committed(frame.producer, state)
        self._frames.clear()


class Restored(NamedTuple):
    """The state of a segment at the end of its last whole transaction or control frame.

    Attributes:
        chain: The state that the next frame continues.
        end: The offset of the next frame.
        tables: Producers and epochs.
        sparse: The sparse index.
        size: The scanned size of the file.
        bad: The offset at which the scan stopped.
        why: Why it stopped there; None if only zeros follow.
    """

    chain: Chain
    end: int
    tables: ControlTables
    sparse: SparseIndex
    size: int
    bad: int
    why: str | None

    @property
    def trailer(self) -> Trailer:
        """The trailer of its index, once it is closed."""
        return Trailer(self.chain.version, self.chain.crc, self.end, self.chain.committed_at)


def restore(file: File, number: int, size: int) -> Restored:
    """Scans a segment from its header up to ``size``. The last one alone restores everything that is not a change.

    Raises:
        FormatTooNew: If a later version of penstock wrote in it.
        WalCorrupted: If it cannot be read, or does not begin with a whole checkpoint.
    """
    with reading(number, 0):
        header = check_header(file, number)
    chain = Chain(header.previous, header.first_version - 1)
    scan = Scan(file, DATA_START, size, chain)
    replay = Replay()
    offset = DATA_START
    try:
        for offset, frame, payload in scan:
            replay.take(offset, frame, payload)
    except OSError as error:
        check_exhausted(error)
        raise WalCorrupted(number, scan.offset, f"it cannot be read ({error})") from error
    except ValueError as error:
        raise WalCorrupted(number, offset, str(error)) from error
    if scan.end == DATA_START:
        # The checkpoint was synced before the segment got its name.
        raise WalCorrupted(number, DATA_START, scan.why or "the checkpoint is missing")
    whole = Chain(scan.end_crc, chain.version, chain.committed_at)
    return Restored(whole, scan.end, replay.tables, replay.sparse, size, scan.offset, scan.why)


def inspect_segment(filesystem: FileSystem, directory: Path, number: int) -> Restored:
    """Scans a segment that is not the last one.

    Raises:
        FormatTooNew: If a later version of penstock wrote in it.
        LogUnreadable, OSError: If it cannot be opened.
        WalCorrupted: If it cannot be read, or its beginning is damaged.
    """
    with contextlib.closing(open_file(filesystem, directory / segment_name(number), "read")) as file:
        with reading(number, 0):
            size = file.size()
        return restore(file, number, size)


@contextlib.contextmanager
def reading(number: int, offset: int) -> Iterator[None]:
    """Turns an error of a read into `WalCorrupted`, because acknowledged data cannot be read."""
    try:
        yield
    except OSError as error:
        check_exhausted(error)
        raise WalCorrupted(number, offset, f"it cannot be read ({error})") from error


# --- behind the damage -----------------------------------------------------------------------------------------------


def find_vouching(file: File, start: int, end: int, version: int) -> int | None:
    """Returns the offset of an intact frame that was written when a version above ``version`` was durable; else None.

    Such a frame behind the end of a log proves that acknowledged data before it are missing.

    Raises:
        OSError: If the file cannot be read.
    """
    for at, header in intact_frames(file, start, end):
        if version < header.durable <= header.version:
            return at
    return None


def intact_frames(file: File, start: int, end: int) -> Iterator[tuple[int, FrameHeader]]:
    """Finds intact frames at every multiple of 8 bytes from ``start``.

    The crc proves that a log wrote the frame, though possibly an earlier log in the same blocks of the disk.

    Raises:
        OSError: If the file cannot be read.
    """
    at = start
    while end - at > HEADER_BYTES:
        data = file.pread(min(_WINDOW + HEADER_BYTES, end - at), at)
        last = len(data) - HEADER_BYTES
        if last < 0:
            return
        place = 0
        while place <= last:
            if data[place : place + 512] == _ZEROS:
                place += 512
                continue
            (length,) = _LENGTH.unpack_from(data, place)
            plausible = 0 < length <= end - at - place - HEADER_BYTES and data[place + 28] < 2 * CONTROL
            header = _intact(file, at + place) if plausible else None
            if header is None:
                place += 8
            else:
                yield at + place, header
                place += header.extent
        at += place


def _intact(file: File, offset: int) -> FrameHeader | None:
    """Returns the header of a frame if its crc is right."""
    header = header_at(file, offset)
    payload = file.pread(header.length, offset + HEADER_BYTES)
    intact = header.flags < 2 * CONTROL and len(payload) == header.length and header.verify(payload)
    return header if intact else None


def header_at(file: File, offset: int) -> FrameHeader:
    """Unpacks the header of a frame at an offset; bytes behind the end of the file count as zeros.

    Raises:
        OSError: If the file cannot be read.
    """
    return FrameHeader.unpack(file.pread(HEADER_BYTES, offset).ljust(HEADER_BYTES, b"\0"))


def first_nonzero(file: File, start: int, end: int) -> int | None:
    """Returns the offset of the first byte before ``end`` that is not zero; None if all are.

    Raises:
        OSError: If the file cannot be read.
    """
    for at, data in read_blocks(file, start, end):
        if data.count(0) != len(data):
            return at + len(data) - len(data.lstrip(b"\0"))
    return None

"""A frame: one transaction, or a part of one, as an 80-byte header, a payload, and zeros up to a multiple of 8."""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from publishers.wal.disk.filesystem import Data, File

__all__ = [
    "COMPRESSED",
    "CONTROL",
    "FIRST",
    "HEADER_BYTES",
    "LAST",
    "NO_PRODUCER",
    "Chain",
    "FrameHeader",
    "Scan",
    "padded",
    "seal",
]

FIRST: Final = 1
LAST: Final = 2
COMPRESSED: Final = 4
CONTROL: Final = 8
HEADER_BYTES: Final = 80
NO_PRODUCER: Final = bytes(16)

_HEADER: Final = Struct("<IIIIQIIQq16sQII")
_PREFIX: Final = Struct("<II")
_SEALED: Final = Struct("<IIQIIQq16sQII")
_SCAN_BYTES: Final = 1 << 20


class FrameHeader(NamedTuple):
    """The header of a frame on disk.

    Attributes:
        length: Bytes of the payload without padding; 0 where the data of a zero-filled segment end.
        crc: ``crc32(header[8:80], crc32(payload))``.
        previous: ``crc`` of the previous frame, also across segments.
        count: Changes in this frame, without the leading TRANSACTION event.
        version: Version of the transaction; a control frame repeats the last one, but a SKIP has the last skipped version.
        first_index: Index of the first change here.
        flags: FIRST, LAST, COMPRESSED, CONTROL.
        durable: Newest version known to be synced when the frame was written.
        committed_at: Microseconds since the Unix epoch, strictly rising.
        producer: 16 bytes, zeros for none.
        producer_sequence: The producer's sequence; in a SKIP the first skipped version.
        transaction_count: Changes of the whole transaction, with the TRANSACTION event.
        transaction_bytes: Uncompressed payload bytes of all its frames.
    """

    length: int
    crc: int
    previous: int
    count: int  # type: ignore[assignment]  # a field; it hides tuple.count, which has no use here
    version: int
    first_index: int
    flags: int
    durable: int
    committed_at: int
    producer: bytes
    producer_sequence: int
    transaction_count: int
    transaction_bytes: int

    @classmethod
    def unpack(cls, buffer: Data, offset: int = 0) -> "FrameHeader":
        """Unpacks a header without checking it.

        Raises:
            struct.error: If fewer than 80 bytes follow ``offset``.
        """
        return tuple.__new__(cls, _HEADER.unpack_from(buffer, offset))

    def pack(self) -> bytes:
        """Returns the 80 bytes."""
        return _HEADER.pack(*self)

    @property
    def skips(self) -> int:
        """The first of the versions that a SKIP skips, up to its own; 0 for every other frame."""
        return self.producer_sequence if self.flags & CONTROL else 0

    @property
    def ends(self) -> bool:
        """Whether the log may end behind this frame: it is the last of a transaction, or a control frame other than a SKIP."""
        return bool(self.flags & LAST or (self.flags & CONTROL and not self.producer_sequence))

    def verify(self, payload: Data) -> bool:
        """Whether header and payload match the crc."""
        return crc32(_SEALED.pack(*self[2:]), crc32(payload)) == self.crc

    @property
    def extent(self) -> int:
        """Bytes of the whole frame with its padding."""
        return HEADER_BYTES + padded(self.length)


def padded(size: int) -> int:
    """Rounds ``size`` up to the next multiple of 8."""
    return (size + 7) & -8


def seal(
    length: int,
    payload_crc: int,
    previous: int,
    count: int,
    version: int,
    first_index: int,
    flags: int,
    durable: int,
    committed_at: int,
    producer: bytes,
    producer_sequence: int,
    transaction_count: int,
    transaction_bytes: int,
) -> tuple[bytes, FrameHeader]:
    """Makes a header from its fields and the crc of the payload; returns its bytes and its fields."""
    fields = (
        previous,
        count,
        version,
        first_index,
        flags,
        durable,
        committed_at,
        producer,
        producer_sequence,
        transaction_count,
        transaction_bytes,
    )
    sealed = _SEALED.pack(*fields)
    crc = crc32(sealed, payload_crc)
    return _PREFIX.pack(length, crc) + sealed, tuple.__new__(FrameHeader, (length, crc, *fields))


_NOTHING: Final = FrameHeader(*_HEADER.unpack(bytes(HEADER_BYTES)))


class Chain:
    """What the next frame must continue: the crc, the version, and the index inside an unfinished transaction.

    Attributes:
        crc: ``crc`` of the last frame.
        version: Last complete version.
        committed_at: Its time, or that of a later control frame.
        next_index: First index of the next frame of an unfinished transaction; 0 between transactions.
        skipped: The last skipped version after a SKIP, until the transaction that belongs to it; else 0.
    """

    __slots__ = ("committed_at", "crc", "next_index", "skipped", "version")

    def __init__(self, crc: int, version: int, committed_at: int = 0) -> None:
        self.crc: int = crc
        self.version: int = version
        self.committed_at: int = committed_at
        self.next_index: int = 0
        self.skipped: int = 0

    @property
    def unfinished(self) -> bool:
        """Whether the rest of a transaction is missing."""
        return bool(self.next_index or self.skipped)

    def objection(self, header: FrameHeader) -> str | None:
        """Returns why the frame does not continue the chain, or None if it does."""
        if header.previous != self.crc:
            return f"it follows a frame with crc {header.previous:#010x}, not {self.crc:#010x}"
        flags = header.flags
        if flags & CONTROL:
            first, version = header.producer_sequence, header.version
            follows = first == self.version + 1 <= version if first else version == self.version
            good = flags == CONTROL and follows and not self.unfinished
            return None if good else "a control frame out of place"
        if flags & ~(FIRST | LAST | COMPRESSED):
            return f"unknown flags {flags:#x}"
        before = self.skipped or self.version
        if header.version != before + 1:
            return f"version {header.version} after version {before}"
        if header.committed_at <= self.committed_at:
            return f"time {header.committed_at} is not after {self.committed_at}"
        if bool(flags & FIRST) == bool(self.next_index) or header.first_index != (self.next_index or 1):
            return f"index {header.first_index} does not continue the transaction"
        end = header.first_index + header.count
        if flags & LAST and end != header.transaction_count:
            return f"the transaction ends at index {end} of {header.transaction_count}"
        return None

    def advance(self, header: FrameHeader) -> None:
        """Makes a frame that `objection` has accepted the last one."""
        self.crc = header.crc
        if header.flags & CONTROL:
            if header.producer_sequence:
                self.skipped = header.version
            # It carries the time over to a segment whose predecessors are deleted.
            self.committed_at = max(self.committed_at, header.committed_at)
        elif header.flags & LAST:
            self.version = header.version
            self.committed_at = header.committed_at
            self.next_index = self.skipped = 0
        else:
            self.next_index = header.first_index + header.count


class Scan:
    """Reads the frames of a segment from ``start`` up to ``end`` as long as they are good.

    Iterating yields ``(offset, header, payload)``; payloads are valid until the next step. Afterwards:

    Attributes:
        offset: Offset of the first bytes that are not a good frame.
        end: Offset behind the last frame after which the log may end.
        end_crc: ``crc`` of that frame.
        why: What is wrong at ``offset``; None if zeros or the end of the file follow.
    """

    def __init__(self, file: File, start: int, end: int, chain: Chain) -> None:
        self._file = file
        self._limit = end
        self._chain = chain
        self.offset: int = start
        self.end: int = start
        self.end_crc: int = chain.crc
        self.why: str | None = None

    def __iter__(self) -> Iterator[tuple[int, FrameHeader, memoryview]]:
        block = memoryview(b"")
        base = self.offset
        chain = self._chain
        while self._limit - self.offset >= HEADER_BYTES:
            offset = self.offset
            if offset - base + HEADER_BYTES > len(block):
                block, base = self._read(offset, HEADER_BYTES), offset
            header = FrameHeader.unpack(block, offset - base)
            if header.length == 0:
                self.why = None if header == _NOTHING else "a frame without a length"
                return
            extent = header.extent
            if extent > self._limit - offset:
                self.why = f"a frame of {extent} bytes ends beyond the segment"
                return
            self.why = chain.objection(header)
            if self.why:
                return
            if offset - base + extent > len(block):
                block, base = self._read(offset, extent), offset
            at = offset - base
            payload = block[at + HEADER_BYTES : at + HEADER_BYTES + header.length]
            if crc32(block[at + 8 : at + HEADER_BYTES], crc32(payload)) != header.crc:
                self.why = "the crc of the frame is wrong"
                return
            chain.advance(header)
            self.offset = offset + extent
            if header.flags & LAST or header.ends:
                self.end, self.end_crc = self.offset, header.crc
            yield offset, header, payload

    def _read(self, offset: int, needed: int) -> memoryview:
        size = min(max(needed, _SCAN_BYTES), self._limit - offset)
        block = self._file.pread(size, offset)
        # Bytes missing up to the limit read as zeros, like preallocated ones.
        return memoryview(block if len(block) >= needed else block.ljust(needed, b"\0"))

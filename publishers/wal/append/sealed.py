"""Sealed transactions: payloads with their crc, which lack only version, time and chain.

The expensive work is done here, by the committing thread and outside every lock: columns are encoded to payloads, split into
frames, compressed and checksummed. A transaction too large for memory is written to a spool file payload by payload.
"""

from collections.abc import Iterable, Iterator
from itertools import count
from operator import sub
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from uuid import UUID
from zlib import crc32

from flow import forks
from publishers.errors import KeyTooLong, TransactionTooLarge
from publishers.options import MIB, LogOptions
from publishers.wal.disk.filesystem import Data, File, FileSystem, write_all
from publishers.wal.format.columns import Column, Columns, encode_payload
from publishers.wal.format.compression import deflate
from publishers.wal.format.frame import (
    COMPRESSED,
    FIRST,
    HEADER_BYTES,
    LAST,
    NO_PRODUCER,
    FrameHeader,
    padded,
    seal,
)
from publishers.wal.format.rows import Rows
from publishers.wal.read.catalog import Location

__all__ = [
    "MAX_TRANSACTION_BYTES",
    "MAX_TRANSACTION_CHANGES",
    "Appended",
    "Sealed",
    "SpooledPayloads",
    "Transaction",
    "check_bounds",
    "seal_payload",
    "seal_payloads",
    "seal_rows",
    "seal_transaction",
]

MAX_TRANSACTION_BYTES: Final = 1024 * MIB
"""Largest transaction: it is one frame after the other without a commit of others in between, and whoever reads it reads all of it."""

MAX_TRANSACTION_CHANGES: Final = 2**31 - 1
"""Most changes of a transaction: their indexes have 32 bits in the format."""

_spools = count(1)

Raw = bytes
"""``bytes``, in classes that have a field of that name."""


class Sealed(NamedTuple):
    """The payload of one frame.

    Attributes:
        data: Its bytes; empty if they are in the spool.
        length: The number of its bytes.
        crc: The crc32 of its bytes.
        count: The number of its changes.
        first_index: The index of its first change.
        raw: The number of bytes before compression.
        flags: COMPRESSED or 0.
        offset: The offset of its bytes in the spool.
    """

    data: bytes
    length: int
    crc: int
    count: int  # type: ignore[assignment]  # a field hides `tuple.count`
    first_index: int
    raw: int
    flags: int
    offset: int


class SpooledPayloads(Protocol):
    """The payloads of a transaction outside memory."""

    def read(self, payload: Sealed, /) -> bytes:
        """The bytes of a payload.

        Raises:
            OSError: If they cannot be read, or differ from the written bytes.
        """
        ...

    def remove(self) -> None:
        """Removes the payloads. Idempotent."""
        ...


class Transaction(NamedTuple):
    """A sealed transaction without a version.

    Attributes:
        payloads: One payload for each frame.
        count: The number of changes, without the TRANSACTION event.
        bytes: The number of uncompressed payload bytes.
        size: The number of bytes of its frames in the log.
        producer: The 16 bytes of the producer's UUID, or zeros.
        sequence: The producer's number of the transaction.
        spool: The payloads outside memory, if they are too large, or were sealed by other processes; else None.
        rows: The rows from which its single payload was encoded, if they are at hand.
    """

    payloads: tuple[Sealed, ...]
    count: int  # type: ignore[assignment]  # a field hides `tuple.count`
    bytes: int
    size: int
    producer: Raw = NO_PRODUCER
    sequence: int = 0
    spool: SpooledPayloads | None = None
    rows: Rows | None = None

    @property
    def producer_id(self) -> UUID | None:
        """The producer, or None."""
        return UUID(bytes=self.producer) if self.producer != NO_PRODUCER else None

    def read(self) -> Iterator[tuple[Sealed, Data]]:
        """Each payload with its bytes; of spooled payloads, one at a time is in memory.

        Raises:
            OSError: If the spool cannot be read, or differs from the written bytes.
        """
        spool = self.spool
        for payload in self.payloads:
            yield payload, payload.data if spool is None else spool.read(payload)

    def seal(self, place: int, previous: int, version: int, durable: int, at: int) -> tuple[Raw, FrameHeader]:
        """Makes the header of the frame of a payload, when the transaction is appended; returns its bytes and its fields.

        Args:
            place: The index of the payload.
            previous: ``crc`` of the previous frame.
            version: The version of the transaction.
            durable: The newest version synced so far.
            at: The time of the commit, in unix microseconds.
        """
        payloads = self.payloads
        _, length, crc, count, first_index, _, flags, _ = payloads[place]
        if place == 0:
            flags |= FIRST
        if place == len(payloads) - 1:
            flags |= LAST
        return seal(
            length,
            crc,
            previous,
            count,
            version,
            first_index,
            flags,
            durable,
            at,
            self.producer,
            self.sequence,
            self.count + 1,
            self.bytes,
        )

    def discard(self) -> None:
        """Removes the spool, if there is one. Call it after the transaction was appended or abandoned."""
        if self.spool is not None:
            self.spool.remove()


class Appended(NamedTuple):
    """An appended transaction.

    Attributes:
        version: Its version.
        committed_at: The time of its commit, in unix microseconds.
        location: The location of its first frame.
        end: The offset behind its last frame, in the same segment.
        frames: The headers of its frames.
    """

    version: int
    committed_at: int
    location: Location
    end: int
    frames: tuple[FrameHeader, ...]


class _SpoolFile:
    """A file of sealed payloads. Its name ends in ``.tmp``, so the next opening removes it after a crash."""

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self._filesystem = filesystem
        self._path = directory / f"spool-{filesystem.process_id()}-{next(_spools)}.tmp"
        self._file: File | None = filesystem.open(self._path, "create")
        self._end = 0
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`: the parent still needs the file."""
        self._file = None

    def write(self, payload: Sealed) -> Sealed:
        if self._file is None:
            raise OSError("the spool of the transaction was discarded")
        offset = self._end
        write_all(self._file, payload.data, offset)
        self._end += payload.length
        return payload._replace(data=b"", offset=offset)

    def read(self, payload: Sealed) -> bytes:
        if self._file is None:
            raise OSError("the spool of the transaction was discarded")
        data = self._file.pread(payload.length, payload.offset)
        if crc32(data) != payload.crc:
            raise OSError("the spool of the transaction does not hold what was written to it")
        return data

    def remove(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self._filesystem.unlink(self._path)


def seal_payload(data: bytes, count: int, first_index: int = 1, *, compress: bool = False) -> Sealed:
    """Computes the crc of a payload; with ``compress``, compresses it first if that saves enough."""
    raw = len(data)
    flags = 0
    if compress and (packed := deflate(data)):
        data, flags = packed, COMPRESSED
    return tuple.__new__(Sealed, (data, len(data), crc32(data), count, first_index, raw, flags, 0))


def seal_rows(
    rows: Rows, producer: UUID | None = None, sequence: int = 0, *, compress: bool = False
) -> Transaction:
    """Seals a transaction of a few changes that are already encoded, and within all bounds."""
    data, count = rows.payload, rows.count
    length = raw = len(data)
    if compress:
        payload = seal_payload(data, count, compress=True)
        length = payload.length
    else:
        payload = tuple.__new__(Sealed, (data, raw, crc32(data), count, 1, raw, 0, 0))
    size = HEADER_BYTES + ((length + 7) & -8)
    identity = NO_PRODUCER if producer is None else producer.bytes
    return tuple.__new__(Transaction, ((payload,), count, raw, size, identity, sequence, None, rows))


def seal_transaction(
    batches: Iterable[Columns],
    annotations: bytes = b"",
    *,
    options: LogOptions,
    producer: UUID | None = None,
    sequence: int = 0,
    filesystem: FileSystem | None = None,
    directory: Path | None = None,
) -> Transaction:
    """Seals batches of columns as one transaction; each batch starts a frame, a large one takes several.

    Args:
        batches: The changes; may be lazy. A batch is released once it is sealed.
        annotations: JSON of the transaction; each frame holds it, so that each frame can be matched alone.
        options: ``frame_bytes``, ``compress``, ``spool_bytes`` and the bounds of changes and transactions.
        producer: The producer, for the detection of duplicates.
        sequence: The producer's number of the transaction.
        filesystem: The file system for a spool in ``directory``; if None, all payloads stay in memory.
        directory: The directory of the log.

    Raises:
        TransactionTooLarge: If a bound is exceeded; no spool is left behind.
        ValueError: If the columns of a batch do not fit together.
        OSError: If the spool cannot be written.
    """
    payloads: list[Sealed] = []
    total = changes = size = held = 0
    spool: _SpoolFile | None = None
    try:
        for payload in seal_payloads(batches, annotations, options):
            changes += payload.count
            total += payload.raw
            size += HEADER_BYTES + padded(payload.length)
            payloads.append(payload)
            held += payload.length
            if filesystem is not None and directory is not None and (spool or held > options.spool_bytes):
                if spool is None:
                    spool = _SpoolFile(filesystem, directory)
                    payloads = [spool.write(earlier) for earlier in payloads]
                else:
                    payloads[-1] = spool.write(payload)
    except BaseException:
        if spool is not None:
            spool.remove()
        raise
    identity = producer.bytes if producer is not None else NO_PRODUCER
    return Transaction(tuple(payloads), changes, total, size, identity, sequence, spool)


def seal_payloads(batches: Iterable[Columns], annotations: bytes, options: LogOptions) -> Iterator[Sealed]:
    """Seals batches of columns payload by payload; see `seal_transaction`.

    Raises:
        TransactionTooLarge: If a bound is exceeded.
        ValueError: If the columns of a batch do not fit together.
    """
    changes = total = 0
    for columns in _frames(batches, options):
        payload = seal_payload(
            encode_payload(columns, annotations), columns.count, changes + 1, compress=options.compress
        )
        changes += payload.count
        total += payload.raw
        check_bounds(changes, total)
        yield payload


def check_bounds(changes: int, total: int) -> None:
    """Checks the size of a transaction so far.

    Raises:
        TransactionTooLarge: If a bound is exceeded.
    """
    _check("max_transaction_changes", changes, MAX_TRANSACTION_CHANGES)
    _check("max_transaction_bytes", total, MAX_TRANSACTION_BYTES)


def _check(option: str, value: int, limit: int) -> None:
    if value > limit:
        raise TransactionTooLarge(option, value, limit)


def _check_keys(keys: Column, limit: int) -> None:
    if len(keys.data) > limit:
        ends = keys.offsets.tolist()
        longest = max(map(sub, ends[1:], ends), default=0)
        if longest > limit:
            raise KeyTooLong("max_key_bytes", longest, limit)


def _frames(batches: Iterable[Columns], options: LogOptions) -> Iterator[Columns]:
    """Splits batches so that each part fits ``frame_bytes`` or is a single change; yields at least one part."""
    first = True
    for batch in batches:
        if batch.count or first:
            first = False
            yield from _split(batch, options)
    if first:
        yield _nothing()


def _nothing() -> Columns:
    return Columns(memoryview(b""), (), None, Column.of(()))


def _split(batch: Columns, options: LogOptions) -> Iterator[Columns]:
    rows = batch.count
    if batch.nbytes > options.max_change_bytes:
        for row in range(rows):
            _check("max_change_bytes", batch.span(row, row + 1), options.max_change_bytes)
    _check_keys(batch.key, options.max_key_bytes)
    start = 0
    while True:
        low, high = start + 1, rows
        if batch.span(start, rows) <= options.frame_bytes:
            low = rows
        # The largest end whose part still fits; a part has at least one change.
        while low < high:
            middle = (low + high + 1) // 2
            if batch.span(start, middle) <= options.frame_bytes:
                low = middle
            else:
                high = middle - 1
        yield batch if (start, low) == (0, rows) else batch.slice(start, low)
        start = low
        if start >= rows:
            return

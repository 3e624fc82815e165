"""Writing: one ``pwrite`` for a group of transactions, one sync, and a roll where a segment is full.

`Writer.append` and `Writer.sync` are called under the write gate, by one thread at a time. `Writer.maintain` and the
writes of HEAD belong to the housekeeping thread, which may be at work meanwhile; what the two share is

* the zeros behind the end of the live segment, and the swap at a roll: `LiveSegment.lock`;
* the spare segment: the lock of `Spares`;
* HEAD: its own lock;
* the catalog: its own lock.

No lock is held by the housekeeping for longer than a write of 256 KiB, except that of HEAD for one sync.
"""

import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from publishers.errors import LogFailed, LogFull
from publishers.options import LogOptions
from publishers.wal.catalog import Catalog, Limit, Location, SegmentEntry
from publishers.wal.clock import Clock
from publishers.wal.columns import PADDING
from publishers.wal.control import ProducerState, Tables, encode_epoch
from publishers.wal.filesystem import FileSystem, means_full
from publishers.wal.frame import NO_PRODUCER, Chain, FrameHeader
from publishers.wal.head import Head
from publishers.wal.health import Health
from publishers.wal.live import FIRST_FILL, Closed, LiveSegment, control_frame, create_segment
from publishers.wal.segment import SegmentHeader, Trailer
from publishers.wal.spares import Spares
from publishers.wal.transaction import Appended, Transaction

__all__ = ["Writer"]

_LOG: Final = logging.getLogger(__name__)
_SLOW_SYNC: Final = 1_000_000
_ENDS: Final = 4096


class Writer:
    """The one writer of a log.

    Attributes:
        health: Whether it has failed.
        live: The segment that is being written.
        limit: Up to where everything is durable, for readers.
        appended: Newest version written.
        synced: Newest version synced.
        synced_end: Where the synced data end: segment and offset.
        closed: Segments that wait for their index.
        ends: Where the last versions end, for a visible version below the durable one.
        spares: The segment that the next roll takes.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        options: LogOptions,
        clock: Clock,
        catalog: Catalog,
        head: Head,
        epoch: int,
        live: LiveSegment,
        chain: Chain,
        tables: Tables,
    ) -> None:
        self.health = Health()
        self.live = live
        self.appended = self.synced = chain.version
        self.limit = Limit(chain.version, live.number, live.offset)
        self.synced_end = (live.number, live.offset)
        self.closed: deque[Closed] = deque()
        self.ends: deque[Appended] = deque()
        self.tables = tables
        self.epoch = epoch
        self.spares = Spares(filesystem, directory, options)
        self._filesystem = filesystem
        self._directory = directory
        self._options = options
        self._clock = clock
        self._catalog = catalog
        self._head = head
        self._crc = chain.crc
        self._committed_at = chain.committed_at
        self._os_durable = options.sync == "os"
        self._segment_bytes = options.segment_bytes
        self._segment_age = None if options.segment_age is None else options.segment_age * 1e6

    def append(self, transactions: Sequence[Transaction]) -> list[Appended]:
        """See `Wal.append`."""
        health = self.health
        if health.why is not None:
            health.check()
        results: list[Appended] = []
        try:
            live = self.live
            if len(transactions) == 1:
                transaction = transactions[0]
                if self.must_roll(transaction.size, live.offset):
                    self.roll()
                if transaction.spooled:
                    results.append(self._copy(transaction))
                elif len(transaction.payloads) == 1:
                    results = [self._write_one(transaction)]
                else:
                    results = self._write(transactions)
            else:
                self._append_group(transactions, results)
        except LogFull:
            if not results:
                raise
        except OSError as error:
            health.fail(error)
            raise LogFailed("unknown", str(error)) from error
        except BaseException as error:
            health.fail(error)
            raise
        if self._os_durable:
            self.limit = Limit(self.appended, self.live.number, self.live.offset)
        return results

    def _append_group(self, transactions: Sequence[Transaction], results: list[Appended]) -> None:
        waiting: list[Transaction] = []
        size = 0
        for transaction in transactions:
            if self.must_roll(transaction.size, self.live.offset + size, waiting=bool(waiting)):
                results += self._write(waiting)
                waiting, size = [], 0
                self.roll()
            if transaction.spooled:
                results += self._write(waiting)
                waiting, size = [], 0
                results.append(self._copy(transaction))
            else:
                waiting.append(transaction)
                size += transaction.size
        results += self._write(waiting)

    def must_roll(self, size: int = 0, offset: int = 0, *, waiting: bool = False) -> bool:
        """Whether the live segment is too full for so many bytes at a place, or too old, and has anything in it."""
        if offset + size <= self._segment_bytes and self._segment_age is None:
            return False
        live = self.live
        if self.appended < live.first_version and not waiting:
            return False
        age = self._segment_age
        return offset + size > self._segment_bytes or (
            age is not None and self._clock() - live.created_at >= age
        )

    def _write_one(self, transaction: Transaction) -> Appended:
        """`_write` for one transaction of one frame, the commonest of all, without the loops."""
        live = self.live
        start = live.offset
        (payload,) = transaction.payloads
        version = self.appended + 1
        at = max(self._clock(), self._committed_at + 1)
        producer = transaction.producer
        sealed, header = transaction.seal(0, self._crc, version, self.synced, at)
        filled = live.filled
        try:
            live.put(b"".join((sealed, payload.data, PADDING[-payload.length & 7])))
        except OSError as error:
            self._undo(error, start, start + transaction.size, filled, transaction.size)
        if producer != NO_PRODUCER:
            self.tables.committed(producer, ProducerState(transaction.sequence, version, at))
        if start >= live.index.next:
            live.index.add(version, 1, at, start)
        self._crc = header.crc
        self.appended = version
        self._committed_at = at
        result: Appended = tuple.__new__(
            Appended, (version, at, tuple.__new__(Location, (live.number, start)), live.offset, (header,))
        )
        if len(self.ends) < _ENDS:
            self.ends.append(result)
        return result

    def _write(self, transactions: Sequence[Transaction]) -> list[Appended]:
        """Writes transactions that are in memory with one ``pwrite``."""
        if not transactions:
            return []
        live = self.live
        number = live.number
        start = offset = live.offset
        crc = self._crc
        version = self.appended
        durable = self.synced
        at = self._committed_at
        now = self._clock()
        parts: list[bytes] = []
        results: list[Appended] = []
        for transaction in transactions:
            version += 1
            at = now if now > at else at + 1
            begin = offset
            headers: list[FrameHeader] = []
            for place, payload in enumerate(transaction.payloads):
                sealed, header = transaction.seal(place, crc, version, durable, at)
                crc = header.crc
                headers.append(header)
                parts += (sealed, payload.data, PADDING[-payload.length & 7])
            offset += transaction.size
            results.append(
                tuple.__new__(
                    Appended,
                    (version, at, tuple.__new__(Location, (number, begin)), offset, tuple(headers)),
                )
            )
        filled = live.filled
        try:
            live.put(b"".join(parts))
        except OSError as error:
            self._undo(error, start, offset, filled, offset - start)
        self._crc = crc
        self._counted(transactions, results)
        return results

    def _copy(self, transaction: Transaction) -> Appended:
        """Copies a spooled transaction, frame by frame."""
        live = self.live
        start = live.offset
        filled = live.filled
        crc = self._crc
        version = self.appended + 1
        at = max(self._clock(), self._committed_at + 1)
        headers: list[FrameHeader] = []
        for place, (payload, data) in enumerate(transaction.read()):
            sealed, header = transaction.seal(place, crc, version, self.synced, at)
            try:
                live.put(b"".join((sealed, data, PADDING[-payload.length & 7])))
            except OSError as error:
                self._undo(error, start, live.offset + header.extent, filled, transaction.size)
            crc = header.crc
            headers.append(header)
        result = Appended(version, at, Location(live.number, start), live.offset, tuple(headers))
        self._crc = crc
        self._counted((transaction,), [result])
        return result

    def _undo(self, error: OSError, start: int, end: int, filled: int, needed: int) -> None:
        """Takes a failed write back if the disk is full; anything else fails the log."""
        if not means_full(error):
            raise error
        self.live.undo(start, end, filled)
        raise LogFull(self._free(), needed) from error

    def _counted(self, transactions: Sequence[Transaction], results: list[Appended]) -> None:
        """Makes what was written count."""
        index = self.live.index
        if len(self.ends) < _ENDS:
            self.ends.extend(results)
        for transaction, (version, at, location, end, headers) in zip(transactions, results, strict=True):
            if transaction.producer != NO_PRODUCER:
                self.tables.committed(transaction.producer, ProducerState(transaction.sequence, version, at))
            if end > index.next:
                offset = location.offset
                for header in headers:
                    index.add(version, header.first_index, at, offset)
                    offset += header.extent
            self.appended = version
            self._committed_at = at

    def _free(self) -> int | None:
        try:
            return self._filesystem.free_bytes(self._directory)
        except OSError:
            return None

    def sync(self) -> int:
        """See `Wal.sync`."""
        health = self.health
        if health.why is not None:
            health.check()
        live = self.live
        offset = live.offset
        end = (live.number, offset)
        if end != self.synced_end:
            clock = self._clock
            before = clock()
            try:
                live.file.sync()
            except BaseException as error:
                health.fail(error)
                if isinstance(error, OSError):
                    raise LogFailed("unknown", str(error)) from error
                raise
            if health.why is not None:
                raise LogFailed("unknown", health.why)
            elapsed = clock() - before
            if elapsed > _SLOW_SYNC:
                _LOG.warning("a sync took %.1f s", elapsed / 1e6)
            self.synced = self.appended
            self.synced_end = end
        self.limit = Limit(self.synced, live.number, offset)
        return self.synced

    def evidence(self) -> Limit:
        """The newest synced version and where the synced data end, for HEAD; may be asked from any thread."""
        # The version is read first: it may be older than the place, never newer.
        version = self.synced
        return Limit(version, *self.synced_end)

    def roll(self) -> None:
        """Closes the live segment and begins the next one."""
        old = self.live
        options = self._options
        now = self._clock()
        chain = Chain(self._crc, self.appended, self._committed_at)
        trailer = Trailer(self.appended, self._crc, old.offset, self._committed_at)
        try:
            with old.lock:
                old.finish()
                self.synced = self.appended
                self.synced_end = (old.number, old.offset)
                oldest = self._catalog.entries[0].first_version
                self.tables.prune(options.producers, now - int(options.producer_ttl * 1e6), oldest)
                header = SegmentHeader(
                    old.number + 1, self.appended + 1, self._catalog.log_id, now, self._crc
                )
                frame = control_frame(self.tables.encode(), chain, now, self.synced)
                new = create_segment(
                    self._filesystem,
                    self._directory,
                    header,
                    frame,
                    spare=self.spares.take(),
                )
                old.close()
        except OSError as error:
            if means_full(error):
                raise LogFull(self._free(), min(options.fill_step, FIRST_FILL)) from error
            raise
        self.closed.append(Closed(old, trailer))
        self._catalog.ended(old.number, trailer.end)
        self._catalog.add(SegmentEntry(new.number, new.first_version, new.created_at), new.index)
        self._crc = chain.crc
        self._committed_at = chain.committed_at
        self.live = new
        self.synced_end = (new.number, new.offset)
        try:
            self._head.write(self.epoch, self.synced, *self.synced_end)
        except OSError as error:
            # Without room HEAD stays as it is: the sealed segment before is evidence enough.
            if not means_full(error):
                raise

    def restart(self, epoch: int, live: LiveSegment, chain: Chain, tables: Tables) -> None:
        """Goes on behind a cut, in a new epoch; `open_epoch` is to follow.

        Args:
            epoch: The new one.
            live: The segment that was cut.
            chain: What is left.
            tables: As they were then.
        """
        gone, self.live = self.live, live
        gone.close()
        tables.forgotten += self.tables.forgotten
        self.tables = tables
        self.epoch = epoch
        self.appended = self.synced = chain.version
        self.synced_end = (live.number, live.offset)
        self.limit = Limit(chain.version, *self.synced_end)
        self._crc = chain.crc
        self._committed_at = chain.committed_at
        while self.closed and self.closed[-1].live.number >= live.number:
            self.closed.pop()
        while self.ends and self.ends[-1].version > chain.version:
            self.ends.pop()

    def open_epoch(self) -> None:
        """Writes and syncs the EPOCH frame, after which the log may be read and written.

        Raises:
            OSError: What the file raises.
        """
        live = self.live
        chain = Chain(self._crc, self.appended, self._committed_at)
        self.tables.opened(self.epoch, self.appended + 1)
        live.put(control_frame(encode_epoch(self.tables.epochs[-1]), chain, self._clock(), self.synced))
        self._crc = chain.crc
        self._committed_at = chain.committed_at
        self.sync()

    def close(self) -> None:
        """Closes the files; nothing is written."""
        self.spares.close()
        self.live.close()

"""Writing: one ``pwrite`` for a group of transactions, one sync, and a roll where a segment is full.

`Writer.append` and `Writer.sync` are called under the write gate, by one thread at a time. `Writer.maintain` and the
writes of HEAD belong to the housekeeping thread, which may be at work meanwhile; what the two share is

* the zeros behind the end of the active segment, and the swap at a roll: `ActiveSegment.lock`;
* the spare segment: the lock of `Spares`;
* HEAD: its own lock;
* the catalog: its own lock.

No lock is held by the housekeeping for longer than a write of 256 KiB, except that of HEAD for one sync.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from flow.clock import Clock
from publishers.errors import LogFailed, LogFull
from publishers.options import LogOptions
from publishers.wal.append.active_segment import (
    FIRST_FILL,
    ActiveSegment,
    Closed,
    Spare,
    control_frame,
    create_segment,
)
from publishers.wal.append.appender import Appender
from publishers.wal.append.sealed import Appended, Transaction
from publishers.wal.append.spare_segment import Spares
from publishers.wal.disk.filesystem import FileSystem, means_full, memory_as_error
from publishers.wal.disk.reserve import Reserve
from publishers.wal.files.head import Head
from publishers.wal.files.segment import FORMAT, SegmentHeader, Trailer
from publishers.wal.format.control import ControlTables, encode_epoch
from publishers.wal.format.frame import Chain
from publishers.wal.keep.segment_ages import Ages
from publishers.wal.read.catalog import Catalog, Limit, SegmentEntry

__all__ = ["Writer"]

_LOG: Final = logging.getLogger("penstock.housekeeping")
_SLOW_SYNC: Final = 1.0


class Writer(Appender):
    """The one writer of a log: appends, rolls, syncs, and begins epochs.

    Attributes:
        limit: The end of the durable data, for readers.
        synced_end: The end of the synced data: segment and offset.
        epoch: The epoch of this opening, or of the last truncation.
        random: The random bits of the epoch; HEAD contains them before the epoch begins.
        closed: Closed segments without an index file.
        spares: The spare segment for the next roll.
        ages: The ages of segments.
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
        active: ActiveSegment,
        chain: Chain,
        tables: ControlTables,
        reserve: Reserve,
    ) -> None:
        super().__init__(filesystem, directory, clock, active, chain, tables, options.producers)
        self.limit: Limit = Limit(chain.version, active.number, active.offset)
        self.synced_end: tuple[int, int] = (active.number, active.offset)
        self.syncs: int = 0
        self.sync_seconds: float = 0.0
        self.closed: deque[Closed] = deque()
        self.epoch: int = epoch
        self.random: int = head.state.random
        self.spares: Spares = Spares(filesystem, directory, options)
        self._options = options
        self._catalog = catalog
        self._head = head
        self._reserve = reserve
        self._os_durable = options.sync == "os"
        self._segment_bytes = options.segment_bytes
        self._segment_age = options.segment_age
        self._monotonic = clock.monotonic
        self.ages: Ages = Ages(clock)
        self._began = self._beginning(active)

    def append(self, transactions: Sequence[Transaction]) -> list[Appended]:
        """See `Wal.append`."""
        health = self.health
        if health.why is not None:
            health.check()
        results: list[Appended] = []
        try:
            if self._reserve.low:
                self._replenish()
            active = self.active
            if len(transactions) == 1:
                transaction = transactions[0]
                end = active.offset + transaction.size
                if (end > self._segment_bytes or self._segment_age is not None) and self.must_roll(
                    transaction.size, active.offset
                ):
                    self.roll()
                if transaction.spool is not None:
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
        except (OSError, MemoryError) as error:
            health.fail(error)
            raise LogFailed("unknown", health.why or "") from error
        except BaseException as error:
            health.fail(error)
            raise
        if self._os_durable:
            active = self.active
            self.limit = tuple.__new__(Limit, (self.appended, active.number, active.offset))
        return results

    def _replenish(self) -> None:
        """Fills the reserve before changes are written: they must not use the room of writes that must succeed on a full disk."""
        try:
            self._reserve.fill()
        except OSError as error:
            if not means_full(error):
                raise
            raise self.health.refuse(error, self._free(), self._reserve.lacking) from error

    def _append_group(self, transactions: Sequence[Transaction], results: list[Appended]) -> None:
        waiting: list[Transaction] = []
        size = 0
        for transaction in transactions:
            if self.must_roll(transaction.size, self.active.offset + size, waiting=bool(waiting)):
                results += self._write(waiting)
                waiting, size = [], 0
                self.roll()
            if transaction.spool is not None:
                results += self._write(waiting)
                waiting, size = [], 0
                results.append(self._copy(transaction))
            else:
                waiting.append(transaction)
                size += transaction.size
        results += self._write(waiting)

    def must_roll(self, size: int = 0, offset: int = 0, *, waiting: bool = False) -> bool:
        """Whether the active segment is not empty, and is too full for ``size`` bytes at ``offset``, or too old."""
        if offset + size <= self._segment_bytes and self._segment_age is None:
            return False
        active = self.active
        if self.appended < active.first_version and not waiting:
            return False
        age = self._segment_age
        return offset + size > self._segment_bytes or (
            age is not None and self._monotonic() - self._began >= age
        )

    def _beginning(self, active: ActiveSegment) -> float:
        """The creation of a segment in seconds of the monotonic clock; now, if its time lies in the future."""
        return self._monotonic() - max(self._clock() - active.created_at, 0) / 1e6

    @property
    def ahead(self) -> float:
        """Seconds by which the time of the last commit is ahead of the clock, else 0."""
        return max(self._committed_at - self._clock(), 0) / 1e6

    def sync(self) -> int:
        """See `Wal.sync`."""
        health = self.health
        if health.why is not None:
            health.check()
        active = self.active
        offset = active.offset
        end = (active.number, offset)
        if end != self.synced_end:
            clock = self._monotonic
            before = clock()
            try:
                active.file.sync()
            except BaseException as error:
                health.fail(error)
                if isinstance(error, OSError):
                    raise LogFailed("unknown", str(error)) from error
                raise
            if health.why is not None:
                raise LogFailed("unknown", health.why)
            elapsed = clock() - before
            self.syncs += 1
            self.sync_seconds += elapsed
            if elapsed > _SLOW_SYNC:
                _LOG.warning("a sync took %.1f s", elapsed)
            self.synced = self.appended
            self.synced_end = end
        self.limit = tuple.__new__(Limit, (self.synced, active.number, offset))
        return self.synced

    def evidence(self) -> Limit:
        """The newest synced version and the end of the synced data, for HEAD; for any thread."""
        # The version is read first: it may be older than the end, never newer.
        version = self.synced
        return Limit(version, *self.synced_end)

    def roll(self) -> None:
        """Closes the active segment and begins the next one."""
        try:
            self._roll(self.spares.take)
        except OSError as error:
            if means_full(error):
                needed = min(self._options.fill_step, FIRST_FILL)
                raise self.health.refuse(error, self._free(), needed) from error
            raise

    def _roll(self, spare: Callable[[], Spare]) -> None:
        """Rolls. If it raises because the disk is full, nothing has changed, and it can be repeated."""
        old = self.active
        options = self._options
        now = self._clock()
        chain = Chain(self._crc, self.appended, self._committed_at)
        trailer = Trailer(self.appended, self._crc, old.offset, self._committed_at)
        with old.lock:
            with memory_as_error():
                old.finish()
                self.synced = self.appended
                self.synced_end = (old.number, old.offset)
                oldest = self._catalog.entries[0].first_version
                # By a clock that is wrong for a moment no producer is idle: a retry would be written twice.
                believed = min(self.ages.now or 0, now)
                self.tables.prune(options.producers, believed - int(options.producer_ttl * 1e6), oldest)
                number = old.number + 1
                header = SegmentHeader(number, self.appended + 1, self._catalog.log_id, now, self._crc)
                frame = control_frame(self.tables.encode(), chain, now, self.synced)
                new = create_segment(self._filesystem, self._directory, header, frame, spare=spare())
            old.close()
        self.closed.append(Closed(old, trailer))
        self._catalog.ended(old.number, trailer.end)
        self._catalog.add(
            SegmentEntry(new.number, new.first_version, new.created_at, self._monotonic()), new.index
        )
        self._crc = chain.crc
        self._committed_at = chain.committed_at
        self.active = new
        self._began = self._monotonic()
        self.synced_end = (new.number, new.offset)
        try:
            self._head.write(self.epoch, self.synced, *self.synced_end)
        except OSError as error:
            # Without room HEAD stays as it is: the sealed segment before is evidence enough.
            if not means_full(error):
                raise

    def restart(self, epoch: int, active: ActiveSegment, chain: Chain, tables: ControlTables) -> None:
        """Continues after a truncation, in a new epoch; the caller then calls `open_epoch`.

        Args:
            epoch: The new epoch.
            active: The truncated segment.
            chain: The state that the next frame continues.
            tables: Producers and epochs at the end of the truncated segment.
        """
        gone = self.active
        self.active: ActiveSegment = active
        self._began = self._beginning(active)
        gone.close()
        tables.forgotten += self.tables.forgotten
        self.tables = tables
        self.epoch = epoch
        self.random = self._head.state.random
        self.appended: int = chain.version
        self.synced: int = chain.version
        self.synced_end = (active.number, active.offset)
        self.limit = Limit(chain.version, *self.synced_end)
        self._crc = chain.crc
        self._committed_at = chain.committed_at
        while self.closed and self.closed[-1].active.number >= active.number:
            self.closed.pop()
        while self.ends and self.ends[-1].version > chain.version:
            self.ends.pop()

    def open_epoch(self) -> None:
        """Writes and syncs the EPOCH frame, after which the log may be read and written.

        Raises:
            OSError: From the file.
        """
        if self.active.form < FORMAT:
            # No segment mixes formats. Without zeros ahead, because there may be no room for them.
            self._reserve.holding(partial(self._roll, partial(Spare, self._filesystem, self._directory, 0)))
        active = self.active
        chain = Chain(self._crc, self.appended, self._committed_at)
        self.tables.opened(self.epoch, self.appended + 1, self.random)
        frame = control_frame(encode_epoch(self.tables.epochs[-1]), chain, self._clock(), self.synced)
        self._reserve.holding(partial(active.put, frame))
        self._crc = chain.crc
        self._committed_at = chain.committed_at
        self.sync()

    def close(self) -> None:
        """Closes the files without writing."""
        self.spares.close()
        self.active.close()

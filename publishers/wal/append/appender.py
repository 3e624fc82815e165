"""Appends transactions as frames to the active segment; a failed append leaves nothing there."""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flow.clock import Clock
from publishers.wal.append.active_segment import ActiveSegment
from publishers.wal.append.health import Health
from publishers.wal.append.sealed import Appended, Transaction
from publishers.wal.disk.filesystem import FileSystem, means_full
from publishers.wal.format.columns import PADDING
from publishers.wal.format.control import ControlTables, ProducerState
from publishers.wal.format.frame import FIRST, LAST, NO_PRODUCER, Chain, FrameHeader, seal
from publishers.wal.read.catalog import Location

__all__ = ["Appender"]

_ENDS: Final = 4096
# A payload of as many bytes is written from where it is: a copy costs more than a call.
_LARGE: Final = 1 << 18


class Appender:
    """The end of a log: the state that the next frame continues, and the writing of frames. It never rolls or syncs.

    Attributes:
        health: Whether the log has failed, and what it lacks.
        active: The active segment.
        tables: Producers and epochs, up to the last appended transaction.
        appended: The newest version written.
        synced: The newest version synced, as it is written into frames.
        ends: The ends of versions that are not visible yet, at most the first 4096 of them.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        clock: Clock,
        active: ActiveSegment,
        chain: Chain,
        tables: ControlTables,
        producers: int,
    ) -> None:
        self.health: Health = Health()
        self.active: ActiveSegment = active
        self.tables = tables
        self.appended: int = chain.version
        self.synced: int = chain.version
        self.ends: deque[Appended] = deque()
        self._filesystem = filesystem
        self._directory = directory
        self._clock = clock.now_us
        self._producers = producers
        self._crc = chain.crc
        self._committed_at = chain.committed_at

    def _write_one(self, transaction: Transaction) -> Appended:
        """`_write` without its loops, for the most common case: one transaction of one frame."""
        data, length, crc, count, first_index, _, flags, _ = transaction.payloads[0]
        if length >= _LARGE:
            return self._write((transaction,))[0]
        active = self.active
        start = active.offset
        version = self.appended + 1
        at = max(self._clock(), self._committed_at + 1)
        _, _, nbytes, size, producer, sequence, _, _ = transaction
        sealed, header = seal(
            length,
            crc,
            self._crc,
            count,
            version,
            first_index,
            flags | FIRST | LAST,
            self.synced,
            at,
            producer,
            sequence,
            count + 1,
            nbytes,
        )
        filled = active.filled
        end = start + size
        try:
            active.put(b"".join((sealed, data, PADDING[-length & 7])))
        except (OSError, MemoryError) as error:
            self._undo(error, start, end, filled, size)
        if producer != NO_PRODUCER:
            state = ProducerState(sequence, version, at)
            self.tables.committed(producer, state, self._producers)
        if start >= active.index.next:
            active.index.add(version, 1, at, start)
        self._crc = header.crc
        self.appended = version
        self._committed_at = at
        result: Appended = tuple.__new__(
            Appended, (version, at, tuple.__new__(Location, (active.number, start)), end, (header,))
        )
        if len(self.ends) < _ENDS:
            self.ends.append(result)
        return result

    def _write(self, transactions: Sequence[Transaction]) -> list[Appended]:
        """Writes transactions that are in memory: with one ``pwrite``, and one more at each end of a large payload."""
        if not transactions:
            return []
        active = self.active
        number = active.number
        start = offset = active.offset
        crc = self._crc
        version = self.appended
        durable = self.synced
        at = self._committed_at
        now = self._clock()
        parts: list[bytes] = []
        writes: list[bytes] = []
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
                parts.append(sealed)
                if payload.length < _LARGE:
                    parts.append(payload.data)
                else:
                    writes += (b"".join(parts), payload.data)
                    parts = []
                parts.append(PADDING[-payload.length & 7])
            offset += transaction.size
            results.append(
                tuple.__new__(
                    Appended,
                    (version, at, tuple.__new__(Location, (number, begin)), offset, tuple(headers)),
                )
            )
        filled = active.filled
        writes.append(b"".join(parts))
        try:
            for data in filter(None, writes):
                active.put(data)
        except (OSError, MemoryError) as error:
            self._undo(error, start, offset, filled, offset - start)
        self._crc = crc
        self._counted(transactions, results)
        return results

    def _copy(self, transaction: Transaction) -> Appended:
        """Copies a spooled transaction, frame by frame."""
        active = self.active
        start = active.offset
        filled = active.filled
        crc = self._crc
        version = self.appended + 1
        at = max(self._clock(), self._committed_at + 1)
        headers: list[FrameHeader] = []
        for place, (payload, data) in enumerate(transaction.read()):
            sealed, header = transaction.seal(place, crc, version, self.synced, at)
            try:
                active.put(b"".join((sealed, data, PADDING[-payload.length & 7])))
            except (OSError, MemoryError) as error:
                self._undo(error, start, active.offset + header.extent, filled, transaction.size)
            crc = header.crc
            headers.append(header)
        result = Appended(version, at, Location(active.number, start), active.offset, tuple(headers))
        self._crc = crc
        self._counted((transaction,), [result])
        return result

    def _undo(self, error: BaseException, start: int, end: int, filled: int, needed: int) -> None:
        """Undoes a write that failed for want of room or memory; any other error is raised again, and fails the log."""
        if not means_full(error):
            raise error
        self.active.undo(start, end, filled)
        raise self.health.refuse(error, self._free(), needed) from error

    def _counted(self, transactions: Sequence[Transaction], results: list[Appended]) -> None:
        """Advances the appended version, the producers and the index past the written transactions."""
        index = self.active.index
        if len(self.ends) < _ENDS:
            self.ends.extend(results)
        for transaction, (version, at, location, end, headers) in zip(transactions, results, strict=True):
            if transaction.producer != NO_PRODUCER:
                state = ProducerState(transaction.sequence, version, at)
                self.tables.committed(transaction.producer, state, self._producers)
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

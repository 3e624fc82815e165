"""The spool of a transaction that arrives in parts: in memory while small, then in an unnamed file."""

import contextlib
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from publishers.errors import TooCostly
from publishers.mutations.mutation import columns_of
from publishers.mutations.rows import Mutation
from publishers.wal.disk.filesystem import full, means_full
from transports.codec.changes import read_array
from transports.quotas.shared_bytes import DividedBytes, SharedBytes

if TYPE_CHECKING:
    from publishers.wal import Columns

__all__ = ["LEAST", "OPENED", "SMALL", "PartSpool"]

SMALL: Final = 256 * 1024
"""Bytes up to which a transaction in parts, or in lines, stays in memory."""
LEAST: Final = 2**20
"""The least number of bytes that the file of a transaction in parts is charged."""
OPENED: Final = 2048
"""The bytes that an open transaction is charged beside those of its messages."""
_ROWS: Final = 4096
_HEAD: Final = 8


class PartSpool:
    """The parts of one transaction. ``put`` is for one thread; the other methods for any thread, one at a time.

    A spool is charged what it holds. One that is too large for memory, or for which the shared memory has no room, uses a
    file, which is charged at least ``LEAST`` bytes; this bounds the number of files.

    Args:
        principal: The principal to which the spool is charged.
        spooled: The bytes of all spools, on disk and in memory.
        memory: The memory of the small spools.
        waiting: The bytes that wait to be stored.
        held: The bytes of the message that began the transaction.

    Attributes:
        nbytes: The bytes that have arrived.
        stored: The number of parts that are stored.

    Raises:
        TooCostly: If a budget is exhausted; retryable.
    """

    def __init__(
        self,
        principal: str,
        spooled: DividedBytes,
        memory: SharedBytes,
        waiting: SharedBytes,
        held: int = 0,
    ) -> None:
        held += OPENED
        memory.take(held)
        try:
            spooled.take_for(principal, held)
        except TooCostly:
            memory.give(held)
            raise
        self.stored = 0
        self._principal = principal
        self._spooled = spooled
        self._memory = memory
        self._way = waiting
        self.nbytes = 0
        self._held = self._kept = self._charged = held
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()
        self._failure: OSError | None = None
        self._closed = False
        self._in_memory = True
        self._file: tempfile.SpooledTemporaryFile[bytes] = tempfile.SpooledTemporaryFile()  # noqa: SIM115 - ``close`` closes it

    @property
    def small(self) -> bool:
        """Whether the spool is in memory, so that storing does not wait for a disk."""
        return self._in_memory

    def put(self, changes: bytes) -> bool:
        """Queues a part. Returns whether the caller has to run ``store`` on a thread.

        Raises:
            TooCostly: If a budget is exhausted; retryable.
        """
        size = len(changes) + _HEAD
        self._way.take(size)
        kept = self._keep(size)
        costs = self._held + self.nbytes + size
        more = max(0, (costs if kept else max(costs, LEAST)) - self._charged)
        try:
            self._spooled.take_for(self._principal, more)
        except TooCostly:
            self._way.give(size)
            if kept:
                self._memory.give(size)
                self._kept -= size
            raise
        self._charged += more
        self.nbytes += size
        self._in_memory = kept
        self._waiting.append(changes)
        if kept:
            self.store()
        return not kept

    def _keep(self, size: int) -> bool:
        """Takes memory for a part; returns whether the spool stays in memory."""
        if not self._in_memory or self.nbytes + size > SMALL:
            return False
        try:
            self._memory.take(size)
        except TooCostly:
            return False
        self._kept += size
        return True

    def store(self) -> int:
        """Stores the queued parts and returns the number of stored parts.

        Raises:
            LogFull: If the disk is full; LogExhausted: if there is no descriptor for a file.
            OSError: If the disk has failed.
        """
        with self._lock:
            try:
                if not self._in_memory and not self._closed:
                    self._file.rollover()  # no effect if it is on the disk already
                    kept, self._kept = self._kept, self._held
                    self._memory.give(kept - self._kept)
                while self._waiting and self._failure is None and not self._closed:
                    part = self._waiting[0]
                    self._file.write(len(part).to_bytes(_HEAD, "big"))
                    self._file.write(part)
                    self._waiting.popleft()
                    self.stored += 1
                    self._way.give(len(part) + _HEAD)
            except OSError as error:
                self._failure = error
            if self._failure is not None:
                if means_full(self._failure):
                    raise full(self._failure, 0, self.nbytes) from self._failure
                raise self._failure
            return self.stored

    def mutations(self) -> Iterator[Mutation]:
        """Iterates the changes of all parts.

        Raises:
            InvalidChange: If a change is invalid; names its path, such as ``parts[3].changes[0].key``.
            LogFull, OSError: As ``store``.
        """
        self.store()
        self._file.seek(0)
        for place in range(self.stored):
            size = int.from_bytes(self._file.read(_HEAD), "big")
            yield from read_array(self._file.read(size), f"parts[{place}].changes")

    def batches(self) -> "Iterator[Columns]":
        """Iterates the changes of all parts as columns."""
        mutations = self.mutations()
        while rows := list(islice(mutations, _ROWS)):
            yield columns_of(rows, keyed=True)

    def close(self) -> None:
        """Discards everything. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._way.give(sum(len(part) + _HEAD for part in self._waiting))
            self._waiting.clear()
            with contextlib.suppress(OSError):  # closing flushes first, for which a full disk has no room
                self._file.close()
        self._memory.give(self._kept)
        self._spooled.give_for(self._principal, self._charged)

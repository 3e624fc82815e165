"""What has arrived of one transaction: in memory while small, then in an unnamed file."""

import contextlib
import tempfile
import threading
from collections.abc import Hashable
from typing import Final

from publishers.errors import TooCostly
from publishers.wal.disk.filesystem import full, means_full
from transports.quotas.shared_bytes import Charge, SharedBytes

__all__ = ["LEAST", "OPENED", "SMALL", "ChargedFile"]

SMALL: Final = 256 * 1024
"""Bytes up to which a transaction in parts, or in lines, stays in memory."""
LEAST: Final = 2**20
"""The least number of bytes that the file of one is charged, which bounds the number of files."""
OPENED: Final = 2048
"""The bytes that one is charged beside what has arrived."""


class ChargedFile:
    """The bytes of one transaction, which is charged what it holds.

    One that is too large for memory, or for which the memory of all has no room, uses a file, which is charged at least
    ``LEAST`` bytes. Bytes are charged by one thread, and then stored by any, one at a time.

    Attributes:
        nbytes: The bytes that were charged and are stored, or about to be.
        file: The bytes.

    Args:
        payer: Who is charged.
        spooled: The bytes of all spools, on disk and in memory.
        memory: The part of them that is in memory.
        held: The bytes of what began the transaction, which stay in memory.

    Raises:
        TooCostly: If a budget is exhausted; retryable.
    """

    def __init__(self, payer: Hashable, spooled: SharedBytes, memory: SharedBytes, held: int = 0) -> None:
        self.nbytes: int = 0
        self._held = held + OPENED
        self._spooled = Charge(spooled, payer)
        self._memory = Charge(memory, payer)
        self._memory.take(self._held)
        try:
            self._spooled.take(self._held)
        except TooCostly:
            self._memory.give(self._held)
            raise
        self._closed = False
        self._in_memory = True
        self._lock = threading.RLock()
        self.file: tempfile.SpooledTemporaryFile[bytes] = tempfile.SpooledTemporaryFile()  # noqa: SIM115 - ``close`` closes it

    @property
    def small(self) -> bool:
        """Whether everything is in memory, so that storing does not wait for a disk."""
        return self._in_memory

    def charge(self, nbytes: int) -> None:
        """Charges bytes that are about to be stored, and decides where.

        Raises:
            TooCostly: If a budget is exhausted; retryable.
        """
        kept = self._keep(nbytes)
        costs = self._held + self.nbytes + nbytes
        try:
            self._spooled.take(max(0, (costs if kept else max(costs, LEAST)) - self._spooled.nbytes))
        except TooCostly:
            if kept:
                self._memory.give(nbytes)
            raise
        self.nbytes += nbytes
        self._in_memory = kept

    def _keep(self, nbytes: int) -> bool:
        """Takes memory for bytes; returns whether everything stays there."""
        if not self._in_memory or self.nbytes + nbytes > SMALL:
            return False
        try:
            self._memory.take(nbytes)
        except TooCostly:
            return False
        return True

    def write(self, data: bytes) -> None:
        """Stores bytes that were charged; may wait for the disk unless the spool is small.

        Raises:
            LogFull: If the disk is full, or there is no descriptor for a file.
            OSError: If the disk has failed.
        """
        with self._lock:
            if self._closed:
                return
            try:
                if not self._in_memory:
                    self.file.rollover()  # no effect if it is on the disk already
                    self._memory.give(self._memory.nbytes - self._held)
                self.file.write(data)
            except OSError as error:
                if means_full(error):
                    raise full(error, 0, self.nbytes) from error
                raise

    def close(self) -> None:
        """Discards everything. Idempotent; may wait for the disk unless the spool is small."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with contextlib.suppress(OSError):  # closing flushes first, for which a full disk has no room
                self.file.close()
            for charge in (self._memory, self._spooled):
                charge.give(charge.nbytes)

"""The spool of a transaction that arrives in parts."""

from collections import deque
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final

from publishers.errors import LogFull, TooCostly
from publishers.mutations.rows import Mutation
from transports.appends import batches
from transports.codec.changes import read_array
from transports.quotas.charged_file import ChargedFile
from transports.quotas.shared_bytes import SharedBytes

if TYPE_CHECKING:
    from publishers.wal import Columns

__all__ = ["PartSpool"]

_HEAD: Final = 8


class PartSpool(ChargedFile):
    """The parts of one transaction. ``put`` is for one thread; the other methods for any thread, one at a time.

    Args:
        payer: Who is charged.
        spooled: The bytes of all spools, on disk and in memory.
        memory: The memory of the small spools.
        waiting: The bytes that wait to be stored.
        held: The bytes of the message that began the transaction.

    Attributes:
        payer: Who is charged.
        stored: The number of parts that are stored.

    Raises:
        TooCostly: If a budget is exhausted; retryable.
    """

    def __init__(
        self,
        payer: Hashable,
        spooled: SharedBytes,
        memory: SharedBytes,
        waiting: SharedBytes,
        held: int = 0,
    ) -> None:
        super().__init__(payer, spooled, memory, held)
        self.stored: int = 0
        self.payer: Hashable = payer
        self._way = waiting
        self._waiting: deque[bytes] = deque()
        self._failure: OSError | LogFull | None = None

    def put(self, changes: bytes) -> bool:
        """Queues a part. Returns whether the caller has to run ``store`` on a thread.

        Raises:
            TooCostly: If a budget is exhausted; retryable.
        """
        size = len(changes) + _HEAD
        self._way.take(self.payer, size)
        try:
            self.charge(size)
        except TooCostly:
            self._way.give(self.payer, size)
            raise
        self._waiting.append(changes)
        if not self.small:
            return True
        self.store()
        return False

    def store(self) -> int:
        """Stores the queued parts and returns the number of stored parts.

        Raises:
            LogFull, OSError: As ``write``; every later call raises it again.
        """
        with self._lock:
            try:
                while self._waiting and self._failure is None and not self._closed:
                    part = self._waiting[0]
                    self.write(len(part).to_bytes(_HEAD, "big"))
                    self.write(part)
                    self._waiting.popleft()
                    self.stored += 1
                    self._way.give(self.payer, len(part) + _HEAD)
            except (OSError, LogFull) as error:
                self._failure = error
            if self._failure is not None:
                raise self._failure
            return self.stored

    def mutations(self) -> Iterator[Mutation]:
        """Iterates the changes of all parts.

        Raises:
            InvalidChange: If a change is invalid; names its path, such as ``parts[3].changes[0].key``.
            LogFull, OSError: As ``store``.
        """
        self.store()
        self.file.seek(0)
        for place in range(self.stored):
            size = int.from_bytes(self.file.read(_HEAD), "big")
            yield from read_array(self.file.read(size), f"parts[{place}].changes")

    def batches(self) -> "Iterator[Columns]":
        """Iterates the changes of all parts as columns."""
        return batches(self.mutations())

    def close(self) -> None:
        """Discards everything. Idempotent."""
        with self._lock:
            if not self._closed:
                self._way.give(self.payer, sum(len(part) + _HEAD for part in self._waiting))
                self._waiting.clear()
            super().close()

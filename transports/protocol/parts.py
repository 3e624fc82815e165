"""Transactions in parts as a machine: how many a connection may have open, how large they are, and how long they may idle.

Before its ``commit`` a transaction has no place among the appends of the connection: it delays none of them, and its refusal
refuses no other append. With ``commit`` it enters the window like any other append.
"""

import math
from typing import Final

import msgspec

from publishers.errors import TransactionTooLarge
from publishers.mutations.arguments import encode_value
from transports.codec.appends import AppendRequest
from transports.errors import TooManyAppends
from transports.limits import Limits
from transports.protocol.appends import AppendEntry
from transports.protocol.connection import Effect, WireEntry
from transports.protocol.states import EntryStage

__all__ = [
    "TRANSACTIONS",
    "TRANSACTION_IDLE",
    "BeginSpool",
    "DropSpool",
    "OpenTransactions",
    "Spool",
    "TransactionEntry",
    "WriteSpool",
]

TRANSACTIONS: Final = 4
"""Most transactions in parts that a connection has begun and not committed: each has a file, and one is enough for a thread of a program."""

TRANSACTION_IDLE: Final = 60.0
"""Seconds that such a transaction may wait for its next part; then it is dropped, since it holds bytes of ``spooled_bytes``."""

_BOUNDS: Final = ("transaction_bytes", "principal_spooled_bytes", "spooled_bytes")
_LARGE: Final = "the parts of the transaction have %d bytes, but %s is %d; commit less at once"


class TransactionEntry(WireEntry):
    """A transaction in parts that is not committed yet.

    Attributes:
        request: Its request, without the annotations.
        held: The bytes of the message that began it.
        nbytes: The bytes of the messages of its parts.
        waiting: The bytes of each part that is not stored yet, in order of arrival.
        parts: The number of stored parts.
        touched: The time at which its last part arrived.
    """

    __slots__ = ("_meta", "held", "nbytes", "parts", "request", "touched", "waiting")

    def __init__(self, name: str, request: AppendRequest, now: float, held: int = 0) -> None:
        super().__init__(name, b"")
        self.held: int = held
        # Kept as text: objects take many times the memory, for as long as the client likes.
        self._meta = None if request.meta is None else encode_value("meta", request.meta)
        self.request: AppendRequest = msgspec.structs.replace(request, meta=None)
        self.nbytes: int = 0
        self.waiting: list[int] = []
        self.parts: int = 0
        self.touched: float = now

    def annotated(self, request: AppendRequest) -> AppendRequest:
        """Returns the request with the annotations of the transaction."""
        if self._meta is None:
            return request
        return msgspec.structs.replace(request, meta=msgspec.json.decode(self._meta))


class BeginSpool(Effect, frozen=True):
    """Authorise a transaction and reserve space for it; call ``part_failed`` if it is refused."""

    entry: TransactionEntry


class Spool(Effect, frozen=True):
    """Store a part, and call ``spooled`` or ``part_failed``."""

    entry: TransactionEntry
    changes: bytes


class DropSpool(Effect, frozen=True):
    """Discard the stored parts of a transaction; the machine has forgotten it."""

    entry: TransactionEntry


class WriteSpool(Effect, frozen=True):
    """As ``Write``, for the stored parts of a transaction, which the machine has forgotten."""

    entry: AppendEntry
    request: AppendRequest
    transaction: TransactionEntry


class OpenTransactions:
    """The transactions of a connection that have begun and are not committed.

    Args:
        limits: Bounds of the connection.

    Attributes:
        waiting: The bytes of parts that are not stored yet.
    """

    def __init__(self, limits: Limits) -> None:
        self.waiting: int = 0
        self._limits = limits
        self._entries: dict[str, TransactionEntry] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, name: str, request: AppendRequest, now: float, held: int = 0) -> TransactionEntry:
        """Opens a transaction, whose first message has ``held`` bytes.

        Raises:
            TooManyAppends: If too many transactions are open.
            InvalidChange: If its annotations cannot be stored.
        """
        if len(self._entries) >= TRANSACTIONS:
            raise TooManyAppends("transactions", TRANSACTIONS)
        entry = self._entries[name] = TransactionEntry(name, request, now, held)
        return entry

    def find(self, name: str) -> TransactionEntry | None:
        """Returns an open transaction by its id."""
        return self._entries.get(name)

    def add(self, entry: TransactionEntry, nbytes: int, now: float) -> None:
        """Counts a part.

        Raises:
            TransactionTooLarge: If the transaction exceeds a limit.
            TooManyAppends: If more bytes wait to be stored than a connection may have.
        """
        size = entry.nbytes + nbytes
        option = min(_BOUNDS, key=lambda name: getattr(self._limits, name))
        most = getattr(self._limits, option)
        if size > most:
            raise TransactionTooLarge(option, size, most, _LARGE % (size, option, most))
        if self.waiting and self.waiting + nbytes > self._limits.append_bytes:
            raise TooManyAppends("append_bytes", self._limits.append_bytes)
        self.waiting += nbytes
        entry.waiting.append(nbytes)
        entry.nbytes += nbytes
        entry.touched = now

    def stored(self, entry: TransactionEntry, parts: int) -> bool:
        """Records that ``parts`` parts are stored; returns whether that is progress of an open transaction."""
        count = parts - entry.parts
        if entry.ended or count <= 0:
            return False
        self.waiting -= sum(entry.waiting[:count])
        del entry.waiting[:count]
        entry.parts = parts
        return True

    def end(self, entry: TransactionEntry) -> None:
        """Removes a transaction that was committed, refused or aborted."""
        entry.stage = EntryStage.ENDED
        del self._entries[entry.id]
        self.waiting -= sum(entry.waiting)
        entry.waiting.clear()

    def clear(self) -> list[TransactionEntry]:
        """Removes and returns all transactions, because the connection is gone."""
        entries = list(self._entries.values())
        for entry in entries:
            self.end(entry)
        return entries

    @property
    def due(self) -> float:
        """The time at which the first transaction has been idle too long; infinite for never."""
        return min((entry.touched + TRANSACTION_IDLE for entry in self._entries.values()), default=math.inf)

    def overdue(self, now: float) -> list[TransactionEntry]:
        """Returns the transactions that have been idle too long."""
        return [entry for entry in self._entries.values() if entry.touched + TRANSACTION_IDLE <= now]

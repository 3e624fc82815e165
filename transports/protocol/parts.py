"""Transactions that come in parts, as a machine: how many are open on a connection, how large they are, and how long they wait.

Until its ``commit`` a transaction has no place among the appends of the connection: it keeps none of them waiting, and what is
refused of it refuses nothing else. With ``commit`` it takes its place in the window, and is an append as any other.
"""

import math
from typing import Final

import msgspec

from publishers.errors import TransactionTooLarge
from publishers.mutations.arguments import encode_value
from transports.codec.appends import AppendWish
from transports.errors import TooManyAppends
from transports.limits import Limits
from transports.protocol.appends import AppendEntry
from transports.protocol.connection import Effect, WireEntry
from transports.protocol.states import EntryStage

__all__ = ["BeginSpool", "DropSpool", "OpenTransactions", "Spool", "TransactionEntry", "WriteSpool"]

_BOUNDS: Final = ("transaction_bytes", "principal_spooled_bytes", "spooled_bytes")
_LARGE: Final = "the parts of the transaction have %d bytes, but %s is %d; commit less at once"


class TransactionEntry(WireEntry):
    """A transaction that comes in parts, and is not committed yet.

    Attributes:
        wish: What is said of it, without its annotations.
        nbytes: Of the messages of its parts.
        waiting: Of those that are not stored yet, in the order in which they came.
        parts: How many parts are stored.
        touched: When its last part came.
    """

    __slots__ = ("_meta", "nbytes", "parts", "touched", "waiting", "wish")

    def __init__(self, name: str, wish: AppendWish, now: float) -> None:
        super().__init__(name, b"")
        # As text, since objects take many times as much, for as long as the client likes.
        self._meta = None if wish.meta is None else encode_value("meta", wish.meta)
        self.wish = msgspec.structs.replace(wish, meta=None)
        self.nbytes = 0
        self.waiting: list[int] = []
        self.parts = 0
        self.touched = now

    def annotated(self, wish: AppendWish) -> AppendWish:
        """A wish with the annotations of the transaction."""
        if self._meta is None:
            return wish
        return msgspec.structs.replace(wish, meta=msgspec.json.decode(self._meta))


class BeginSpool(Effect, frozen=True):
    """Look whether its client may write it, and make room for it; ``part_failed`` if it is refused."""

    entry: TransactionEntry


class Spool(Effect, frozen=True):
    """Keep a part, and call ``spooled`` or ``part_failed``."""

    entry: TransactionEntry
    changes: bytes


class DropSpool(Effect, frozen=True):
    """Forget what was kept of a transaction, which the machine has forgotten."""

    entry: TransactionEntry


class WriteSpool(Effect, frozen=True):
    """As ``Write``, of what was kept of a transaction, which the machine has forgotten."""

    entry: AppendEntry
    wish: AppendWish
    transaction: TransactionEntry


class OpenTransactions:
    """The transactions of a connection that are begun and not committed.

    Args:
        limits: Bounds of the connection.

    Attributes:
        waiting: Bytes of parts that are not stored yet.
    """

    def __init__(self, limits: Limits) -> None:
        self.waiting = 0
        self._limits = limits
        self._entries: dict[str, TransactionEntry] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, name: str, wish: AppendWish, now: float) -> TransactionEntry:
        """Takes a transaction up.

        Raises:
            TooManyAppends: If too many are open.
            InvalidChange: If its annotations cannot be stored.
        """
        if len(self._entries) >= self._limits.transactions:
            raise TooManyAppends("transactions", self._limits.transactions)
        entry = self._entries[name] = TransactionEntry(name, wish, now)
        return entry

    def find(self, name: str) -> TransactionEntry | None:
        """An open transaction, by its id."""
        return self._entries.get(name)

    def add(self, entry: TransactionEntry, nbytes: int, now: float) -> None:
        """Counts a part.

        Raises:
            TransactionTooLarge: If the transaction becomes too large.
            TooManyAppends: If more waits to be stored than a connection may have.
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
        """So many parts are stored by now; answers whether that is news of an open transaction."""
        count = parts - entry.parts
        if entry.ended or count <= 0:
            return False
        self.waiting -= sum(entry.waiting[:count])
        del entry.waiting[:count]
        entry.parts = parts
        return True

    def end(self, entry: TransactionEntry) -> None:
        """It is committed, refused or aborted."""
        entry.stage = EntryStage.ENDED
        del self._entries[entry.id]
        self.waiting -= sum(entry.waiting)
        entry.waiting.clear()

    def clear(self) -> list[TransactionEntry]:
        """The connection is gone."""
        entries = list(self._entries.values())
        for entry in entries:
            self.end(entry)
        return entries

    @property
    def due(self) -> float:
        """When the first of them has waited too long; infinite for never."""
        idle = self._limits.transaction_idle
        return min((entry.touched + idle for entry in self._entries.values()), default=math.inf)

    def overdue(self, now: float) -> list[TransactionEntry]:
        """Those that have waited too long."""
        return [
            entry for entry in self._entries.values() if entry.touched + self._limits.transaction_idle <= now
        ]

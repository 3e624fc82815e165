"""Reads the log for a group: ahead, within its bounds, and again for redeliveries."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from publishers.criteria.predicate import Predicate
from publishers.errors import HistoryPruned
from publishers.groups.book import GroupBook
from publishers.groups.delivery import GroupDelivery
from publishers.groups.members import GroupConsumer
from publishers.groups.ports import GroupLog
from publishers.groups.unit import GroupUnit, ReadRow
from publishers.model.change import Area, Change, Operation
from publishers.model.position import Position
from publishers.views.view import Content, View

__all__ = ["GroupSupply"]

_PAGE: Final = 100
_KEPT: Final = 4  # times ``max_bytes``
_VIEW: Final = View.of(Content.BODY)


class GroupSupply:
    """Reads changes for one group.

    Changes that are read ahead stay in memory until they are delivered, up to four times ``max_bytes``. Beyond that they are read
    again.

    Args:
        log: The log.
        book: The state of the group.
    """

    def __init__(self, log: GroupLog, book: GroupBook) -> None:
        self._log = log
        self._book = book
        self._predicate = Predicate(book.criteria)
        self._reading = threading.Lock()
        self._kept_bytes = 0
        self._events = any(
            Area.INFRASTRUCTURE in one.areas or Operation.TRANSACTION in one.operations
            for one in book.criteria.criterions
        )

    def take(self, consumer: GroupConsumer, most: int, *, history: bool) -> list[GroupUnit]:
        """Delivers up to ``most`` units to a consumer, reading ahead as needed.

        Raises:
            ConsumerFenced: If the consumer is not current.
            GroupLost: If retention deleted the changes to read, and the group stops there.
            WalCorrupted: If the log is damaged there.
        """
        book, settings = self._book, self._book.record.settings
        with book.lock:
            machine = book.machine
            units = machine.take(consumer, most, history=history)
        try:
            with self._reading:
                while len(units) < most:
                    with book.lock:
                        room, since = machine.room, machine.reading
                        full = machine.paused or len(consumer.pending) >= settings.max_consumer_pending
                    if machine is not book.machine or not room or full or since >= self._log.find("latest"):
                        break
                    try:
                        page = self._log.page(
                            self._predicate, since, min(room, max(most, _PAGE)), settings.max_bytes, _VIEW
                        )
                    except HistoryPruned as error:
                        book.gap(error.oldest)
                        continue
                    after = page.next if len(page.changes) <= room else page.changes[room].position
                    with book.lock:
                        if machine.reading == since:
                            self._make_room(page.nbytes)
                            machine.feed(self._rows(page.changes[:room]), after)
                        units += machine.take(consumer, most - len(units))
        except BaseException:
            with book.lock:
                machine.give_back(consumer, units)
            raise
        return units

    def fetch(
        self, consumer: GroupConsumer, units: Sequence[GroupUnit], most: int | None = None
    ) -> list[GroupDelivery]:
        """Returns taken units with their changes, up to ``max_bytes``, or ``most`` bytes if that is less; takes back the rest.

        Raises:
            HistoryPruned: If retention deleted one of the changes.
            WalCorrupted: If the log is damaged there.
        """
        found: list[GroupDelivery] = []
        nbytes = freed = 0
        bound = self._book.record.settings.max_bytes
        bound = bound if most is None else min(bound, most)
        try:
            for at, unit in enumerate(units):
                kept = unit.kept
                changes = self.changes(unit.position) if kept is None else kept
                weight = sum(map(_weight, changes)) if kept is None else unit.nbytes
                nbytes += weight
                if found and nbytes > bound:
                    with self._book.lock:
                        self._book.machine.give_back(consumer, units[at:])
                    break
                if kept is not None:
                    unit.kept = None
                    freed += weight
                if changes:
                    found.append(GroupDelivery(unit.position, changes, unit.count, consumer.generation))
        finally:
            with self._book.lock:
                self._kept_bytes = max(self._kept_bytes - freed, 0)
        return found

    def changes(self, position: Position) -> tuple[Change, ...]:
        """The change at a position, or all matching changes of the transaction that starts there.

        Raises:
            HistoryPruned: If retention deleted it.
            WalCorrupted: If the log is damaged there.
        """
        most = self._book.record.settings.max_bytes
        if self._book.record.settings.ack != "transaction":
            page = self._log.page(self._predicate, position, 1, most, _VIEW)
            return tuple(one for one in page.changes if one.position == position)
        changes: list[Change] = []
        since = position
        while since.version == position.version:
            page = self._log.page(self._predicate, since, _PAGE, most, _VIEW)
            changes += [
                one
                for one in page.changes
                if one.version == position.version
                and (self._events or one.operation is not Operation.TRANSACTION)
            ]
            since = page.next
        return tuple(changes)

    def _rows(self, changes: Iterable[Change]) -> Iterator[ReadRow]:
        """Yields the rows for ``GroupMachine.feed``; the caller holds the lock."""
        keeps = self._book.record.settings.ack != "transaction"
        for one in changes:
            event = one.operation is Operation.TRANSACTION
            if event and not self._events:
                continue
            lane = None if event else (one.entity_type or "", one.key)
            kept, nbytes = ((one,), _weight(one)) if keeps else (None, 0)
            self._kept_bytes += nbytes
            # Equivalent to Position(...), but calls neither its constructor nor the property for each change.
            yield tuple.__new__(Position, (one.version, one.index)), lane, kept, nbytes

    def _make_room(self, nbytes: int) -> None:
        """Drops all kept changes if ``nbytes`` more would exceed their bound; the caller holds the lock."""
        if self._kept_bytes + nbytes > _KEPT * self._book.record.settings.max_bytes:
            for unit in self._book.machine.units.values():
                unit.kept = None
            self._kept_bytes = 0


def _weight(change: Change) -> int:
    return len(change.body_bytes or b"") + len(change.before_bytes or b"") + len(change.key or "") + 256

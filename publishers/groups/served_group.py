"""The serving half of a group: reads the log ahead and again for redeliveries, waits, and writes dead letters."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from flow.contracts import Subscriber
from flow.executors import AnyExecutor
from publishers.criteria.predicate import Predicate
from publishers.errors import HistoryPruned, PenstockError
from publishers.groups.book import GroupBook
from publishers.groups.consumers import GroupConsumer
from publishers.groups.dead_letters import DeadLetters, letter_of
from publishers.groups.delivery import GroupDelivery
from publishers.groups.ports import GroupLog
from publishers.groups.state import GroupState
from publishers.groups.subscription import DeliverySubscription, ReadBounds
from publishers.groups.unit import GroupUnit, ReadRow
from publishers.model.change import Area, Change, Operation
from publishers.model.position import Position
from publishers.views.view import Content, View

__all__ = ["ServedGroup"]

_SOON: Final = 10.0
"""Seconds ahead that a timeout keeps the housekeeping of the log awake; an idle log has a step each five seconds."""

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


class _Call:
    """A waiter whose ``set`` calls a function."""

    __slots__ = ("set",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.set: Callable[[], object] = call


_Waiter = threading.Event | DeliverySubscription | _Call


class ServedGroup:
    """A group as its consumers, their subscriptions and the log use it. Thread-safe.

    Args:
        log: The log.
        book: The state of the group.
        dead: Its dead letters.

    Attributes:
        book: The state of the group; for the log.
        dead: Its dead letters, to inspect, replay or discard.
    """

    def __init__(self, log: GroupLog, book: GroupBook, dead: DeadLetters) -> None:
        self.book = book
        self.dead = dead
        self._log = log
        self.check_open: Callable[[], None] = log.check
        self.monotonic: Callable[[], float] = log.monotonic
        self._supply = GroupSupply(log, book)
        self._burying = threading.Lock()
        self._waiting: set[_Waiter] = set()

    @property
    def name(self) -> str:
        """The name of the group."""
        return self.book.name

    # --- for the log ----------------------------------------------------------------------------------------------------

    @property
    def owes(self) -> bool:
        """Whether a timeout or an acknowledgement waits for the housekeeping."""
        due = self.book.machine.next_due()
        return self.book.owes or (due is not None and due <= self._log.monotonic() + _SOON)

    def tick(self) -> None:
        """Handles timeouts while no consumer reads; called by the housekeeping. It does not raise errors of the disk."""
        if self.book.state not in (GroupState.SERVING, GroupState.PAUSED, GroupState.TRIPPED):
            return
        with self.book.lock:
            machine = self.book.machine
            due, found = machine.next_due(), bool(machine.dying)
            if due is not None and due <= self._log.monotonic():
                found = machine.tick() or found
        if found:
            self.book.note_tripped()
            self.notify()
            with contextlib.suppress(OSError, PenstockError):  # the next tick or read retries it
                self.bury()

    # --- for its consumers ----------------------------------------------------------------------------------------------

    def deliver(
        self, consumer: GroupConsumer, most: int, *, history: bool, nbytes: int | None = None
    ) -> list[GroupDelivery]:
        """Returns the deliveries ready for a consumer, up to ``most`` and ``max_bytes``, or ``nbytes`` if that is less."""
        book = self.book
        book.check_serving()
        self._log.rouse()  # deliveries have timeouts
        with book.lock:
            book.machine.tick()
        self.bury()
        units = self._supply.take(consumer, most, history=history)
        try:
            found = self._supply.fetch(consumer, units, nbytes)
            if book.record.settings.max_deliver is not None and found:
                book.flush()  # before the delivery, so that a change that kills its process is counted too
            if book.record.settings.ack == "none":
                with book.lock:
                    book.acked(book.machine.ack(consumer, [one.position for one in found]))
        except BaseException as error:
            with book.lock:
                book.machine.give_back(consumer, units)
            if isinstance(error, HistoryPruned):
                book.gap(error.oldest)
                return []
            raise
        try:
            self.bury()
        except (OSError, PenstockError):
            if not found:  # else the deliveries are returned, and the next read retries the dead letters
                raise
        return found

    def fetch(self, consumer: GroupConsumer, units: list[GroupUnit]) -> list[GroupDelivery]:
        """Reads the changes of units that a consumer has claimed."""
        return self._supply.fetch(consumer, units)

    def bury(self) -> None:
        """Writes dying units to the dead letters; a unit is done only after that.

        Raises:
            LogFull, LogFailed, GroupUnwritten: If they cannot be written now; the next read or tick retries.
        """
        with self._burying:
            with self.book.lock:
                dying = list(self.book.machine.dying.values())
            for unit in dying:
                changes: tuple[Change, ...] = ()
                with contextlib.suppress(HistoryPruned):  # then the letter has no changes
                    changes = self._supply.changes(unit.position)
                errors = unit.errors or ("", "")
                consumer = None if unit.holder is None else unit.holder.consumer
                cursor = self._log.token(unit.position)
                letter = letter_of(cursor, consumer, unit.count, errors, self._log.clock.now_us(), changes)
                self.dead.put(unit.position, letter)
                with self.book.lock:
                    self.book.machine.bury(unit.position)
                    self.book.count_dead()
                    self.book.acked(1, durable=True)
        if dying:
            self.book.flush()
            self.notify()

    @contextlib.contextmanager
    def listening(self, consumer: GroupConsumer) -> Iterator[threading.Event]:
        """Provides an event that is set when there may be deliveries; the consumer counts as present meanwhile."""
        event = threading.Event()
        self.attend(consumer, event)
        try:
            yield event
        finally:
            self.desert(consumer, event)

    def wait(self, event: threading.Event, consumer: GroupConsumer, seconds: float) -> None:
        """Waits until there may be deliveries, at most ``seconds``."""
        with self.book.lock:
            due = self.book.machine.next_due()
        if due is not None:
            seconds = min(seconds, max(due - self._log.monotonic(), 0.0))
        end = self.listen(consumer, event.set)
        try:
            event.wait(seconds)
        finally:
            end()

    def listen(self, consumer: GroupConsumer, notify: Callable[[], object]) -> Callable[[], object]:
        """Calls ``notify`` when there is a change to read; returns a function that ends this."""
        with self.book.lock:
            machine = self.book.machine
            most = self.book.record.settings.max_consumer_pending
            full = machine.paused or not machine.room or len(consumer.pending) >= most
            since = machine.reading
        if full:  # nothing new can be read, whatever is committed
            return _nothing
        return self._log.listen(self.book.criteria, since, notify)

    def watch(
        self, consumer: GroupConsumer, notify: Callable[[], object]
    ) -> tuple[float | None, Callable[[], None]]:
        """See `GroupMember.watch`."""
        waiter = _Call(notify)
        self.attend(consumer, waiter)
        try:
            with self.book.lock:
                due = self.book.machine.next_due()
            unlisten = self.listen(consumer, notify)
        except BaseException:
            self.desert(consumer, waiter)
            raise

        def end() -> None:
            self.desert(consumer, waiter)
            unlisten()

        return None if due is None else max(due - self.monotonic(), 0.0), end

    def attend(self, consumer: GroupConsumer, waiter: _Waiter) -> None:
        """Registers a waiter to be set when there may be deliveries; the consumer counts as present meanwhile."""
        with self.book.lock:
            self._waiting.add(waiter)
            self.book.machine.consumers.begin_wait(consumer)

    def desert(self, consumer: GroupConsumer, waiter: _Waiter) -> None:
        """Removes a waiter."""
        with self.book.lock:
            self._waiting.discard(waiter)
            self.book.machine.consumers.end_wait(consumer, self._log.monotonic())

    def give_back(self, consumer: GroupConsumer, deliveries: Sequence[GroupDelivery]) -> None:
        """Returns deliveries that the consumer did not receive; they count as no delivery."""
        with self.book.lock:
            machine = self.book.machine
            machine.give_back(
                consumer,
                [
                    machine.units[one.position]
                    for one in deliveries
                    if machine.has(consumer, one.position, one.count)
                ],
            )
        self.notify()

    def serve(
        self,
        consumer: GroupConsumer,
        subscriber: Subscriber[GroupDelivery],
        executor: AnyExecutor | None,
        *,
        history: bool = False,
        nbytes: int | None = None,
    ) -> DeliverySubscription:
        """Creates a subscription of a consumer."""
        bounds = ReadBounds(self.book.record.settings.batch, nbytes, history=history)
        return DeliverySubscription(self, self._log, consumer, subscriber, executor, bounds)

    def notify(self, *, moved: bool = False) -> None:
        """Wakes all waiters to look for deliveries.

        Args:
            moved: Whether some consumers may have ended; subscriptions then check that, too.
        """
        with self.book.lock:
            waiting = list(self._waiting)
        for one in waiting:
            one.set()
            if moved and isinstance(one, DeliverySubscription):
                one.look()

    def check(self, consumer: GroupConsumer) -> None:
        """Raises the error for which a consumer can receive no more deliveries, if there is one."""
        self.book.check()
        with self.book.lock:
            self.book.machine.consumers.check(consumer)

    def close(self) -> None:
        """Writes acknowledgements and closes the dead letters; called when the log closes."""
        try:
            self.book.close()
        finally:
            self.dead.close()
            self.notify(moved=True)


def _nothing() -> None:
    """Does nothing; stands for a listener that is not there."""

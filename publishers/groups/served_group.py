"""A group as it serves its consumers."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from flow.contracts import Subscriber
from flow.executors import AnyExecutor
from publishers.errors import HistoryPruned, PenstockError
from publishers.groups.book import GroupBook
from publishers.groups.dead_letters import DeadLetters, letter_of
from publishers.groups.delivery import GroupDelivery
from publishers.groups.members import GroupConsumer
from publishers.groups.ports import GroupLog
from publishers.groups.state import GroupState
from publishers.groups.subscription import DeliverySubscription, ReadBounds
from publishers.groups.supply import GroupSupply
from publishers.groups.unit import GroupUnit
from publishers.model.change import Change

__all__ = ["ServedGroup"]


class _Call:
    """Something that is called in place of being set."""

    __slots__ = ("set",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.set = call


_Waiter = threading.Event | DeliverySubscription | _Call


class ServedGroup:
    """The serving half of a group: what its consumers, their subscriptions and the log do with it. Thread-safe.

    Args:
        log: The log.
        book: What is known of the group.
        dead: Its dead letters.

    Attributes:
        book: The same; for the log.
        dead: Its dead letters: inspect, replay, discard.
    """

    def __init__(self, log: GroupLog, book: GroupBook, dead: DeadLetters) -> None:
        self.book = book
        self.dead = dead
        self._log = log
        self.check_open = log.check
        self.monotonic = log.monotonic
        self._supply = GroupSupply(log, book)
        self._burying = threading.Lock()
        self._waiting: set[_Waiter] = set()

    @property
    def name(self) -> str:
        """What it is called."""
        return self.book.name

    # --- for the log ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Does what is due although no consumer reads; for the housekeeping. It never raises for the disk."""
        if self.book.state not in (GroupState.SERVING, GroupState.PAUSED, GroupState.TRIPPED):
            return
        with self.book.lock:
            machine = self.book.machine
            due, found = machine.next_due(), bool(machine.dying)
            if due is not None and due <= self._log.monotonic():
                found = machine.tick() or found
        if found:
            self.book.tell_tripped()
            self.notify()
            with contextlib.suppress(OSError, PenstockError):  # what could not be buried is tried again
                self.bury()

    # --- for its consumers ----------------------------------------------------------------------------------------------

    def deliver(
        self, consumer: GroupConsumer, most: int, *, history: bool, nbytes: int | None = None
    ) -> list[GroupDelivery]:
        """What there is for a consumer now, up to ``max_bytes``, or to fewer bytes."""
        book = self.book
        book.check_serving()
        with book.lock:
            book.machine.tick()
        self.bury()
        units = self._supply.take(consumer, most, history=history)
        try:
            found = self._supply.fetch(consumer, units, nbytes)
            if book.record.settings.max_deliver is not None and found:
                book.flush()  # a change that kills its process is counted all the same
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
            if not found:  # else it is tried again by the next read, and what was found is delivered
                raise
        return found

    def fetch(self, consumer: GroupConsumer, units: list[GroupUnit]) -> list[GroupDelivery]:
        """The changes of what a consumer has claimed."""
        return self._supply.fetch(consumer, units)

    def bury(self) -> None:
        """Writes what was given up to the dead letters, and only then takes it for done.

        Raises:
            LogFull, LogFailed, GroupUnwritten: If they cannot be written now; it is tried again.
        """
        with self._burying:
            with self.book.lock:
                dying = list(self.book.machine.dying.values())
            for unit in dying:
                changes: tuple[Change, ...] = ()
                with contextlib.suppress(HistoryPruned):  # the letter tells that it was there
                    changes = self._supply.changes(unit.position)
                errors = unit.errors or ("", "")
                consumer = None if unit.holder is None else unit.holder.consumer
                cursor = self._log.token(unit.position)
                letter = letter_of(cursor, consumer, unit.count, errors, self._log.clock.now_us(), changes)
                self.dead.put(unit.position, letter)
                with self.book.lock:
                    self.book.machine.bury(unit.position)
                    self.book.count_dead()
                    self.book.acked(1)
        if dying:
            self.book.flush()
            self.notify()

    @contextlib.contextmanager
    def listening(self, consumer: GroupConsumer) -> Iterator[threading.Event]:
        """What is set when there may be something to deliver; the consumer is there meanwhile."""
        event = threading.Event()
        self.attend(consumer, event)
        try:
            yield event
        finally:
            self.desert(consumer, event)

    def wait(self, event: threading.Event, consumer: GroupConsumer, seconds: float) -> None:
        """Waits until there may be something to deliver."""
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
        """Has something called when there is a change to be read; answers with what ends that."""
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
        """Tells a waiter when there may be something to deliver; the consumer is there meanwhile."""
        with self.book.lock:
            self._waiting.add(waiter)
            self.book.machine.consumers.begin_wait(consumer)

    def desert(self, consumer: GroupConsumer, waiter: _Waiter) -> None:
        """Ends that."""
        with self.book.lock:
            self._waiting.discard(waiter)
            self.book.machine.consumers.end_wait(consumer, self._log.monotonic())

    def give_back(self, consumer: GroupConsumer, deliveries: Sequence[GroupDelivery]) -> None:
        """What was read and not given to the consumer counts as not delivered."""
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
        """Begins a subscription of a consumer."""
        bounds = ReadBounds(self.book.record.settings.batch, nbytes, history=history)
        return DeliverySubscription(self, self._log, consumer, subscriber, executor, bounds)

    def notify(self, *, moved: bool = False) -> None:
        """There may be something for those who wait.

        Args:
            moved: Whether some of them may have nothing any more.
        """
        with self.book.lock:
            waiting = list(self._waiting)
        for one in waiting:
            one.set()
            if moved and isinstance(one, DeliverySubscription):
                one.look()

    def check(self, consumer: GroupConsumer) -> None:
        """Raises what a consumer can have nothing any more for."""
        self.book.check()
        with self.book.lock:
            self.book.machine.consumers.check(consumer)

    def close(self) -> None:
        """Writes what was acknowledged; for the log."""
        try:
            self.book.close()
        finally:
            self.dead.close()
            self.notify(moved=True)


def _nothing() -> None:
    """Ends nothing."""

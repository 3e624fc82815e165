"""A group that is open, and the consumers that have joined it."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Self

import msgspec

from publishers.errors import HistoryPruned, InvalidOption, PenstockError
from publishers.groups.book import GroupBook
from publishers.groups.dead_letters import DeadLetters, letter_of
from publishers.groups.delivery import (
    ClaimedDeliveries,
    GroupDelivery,
    GroupStatistics,
    PendingRow,
    PendingSummary,
)
from publishers.groups.machine import GroupMachine
from publishers.groups.members import GroupConsumer
from publishers.groups.ports import GroupLog
from publishers.groups.state import DeliveryState, GroupState
from publishers.groups.supply import GroupSupply
from publishers.groups.unit import GroupUnit
from publishers.model.change import Change, time_of
from publishers.model.position import Position, check_position
from publishers.options import check_switches, check_whole

__all__ = ["ConsumerGroup", "GroupMember"]


class ConsumerGroup:
    """A group of a log: ``log.groups.open(name)``. All methods may be called from any thread.

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
        self._waiting: set[threading.Event] = set()

    @property
    def name(self) -> str:
        """What it is called."""
        return self.book.name

    def join(self, consumer: str) -> "GroupMember":
        """Joins with a new generation, which is durable when it returns; an older consumer of the same name is fenced.

        Args:
            consumer: What the consumer is called: a text of 1 to 256 characters.

        Raises:
            InvalidOption: If it is no such text.
            TooCostly: If there are ``max_consumers`` already.
            GroupLost, GroupForked, NoSuchGroup: If the group cannot be used.
            GroupUnwritten: If the disk has no room or fails.
        """
        if not isinstance(consumer, str) or not 1 <= len(consumer) <= 256:
            raise InvalidOption("consumer", consumer, "a text of 1 to 256 characters")
        self.book.check()
        with self.book.lock:
            self.book.machine.consumers.check_room(consumer)
        generation = self.book.raise_generation()
        with self.book.lock:
            self.book.machine.consumers.check_room(consumer)  # others may have joined while that was written
            joined = self.book.machine.join(consumer, generation)
        self.notify()
        return GroupMember(self, joined)

    def pause(self) -> bool:
        """Gives nothing until `resume`, over restarts too; answers whether it was not paused before."""
        return self._pause(paused=True)

    def resume(self) -> bool:
        """Goes on, also after its breaker has paused it; answers whether it was paused."""
        return self._pause(paused=False)

    def _pause(self, *, paused: bool) -> bool:
        self.book.check()
        with self.book.lock:
            machine = self.book.machine
            changed = machine.paused is not paused
            if paused:
                machine.paused = True
            else:
                machine.resume()
            self.book.record = msgspec.structs.replace(self.book.record, paused=paused, tripped=False)
            self.book.state = GroupState.PAUSED if paused else GroupState.SERVING
        if changed:
            self.book.write()
            self.notify()
        return changed

    def pending(self) -> PendingSummary:
        """What is delivered and not acknowledged, in all."""
        self.book.check()
        with self.book.lock:
            units = self._pending()
            counts = {one.name: len(one.pending) for one in self.book.machine.consumers.listed()}
        places = [unit.position for unit in units]
        return PendingSummary(len(units), min(places, default=None), max(places, default=None), counts)

    def pending_rows(
        self,
        start: Position | None = None,
        end: Position | None = None,
        *,
        consumer: str | None = None,
        min_idle: float = 0.0,
        limit: int = 100,
    ) -> list[PendingRow]:
        """What is delivered and not acknowledged, one by one, as it lies in the log.

        Args:
            start: From where on.
            end: Up to and with which position.
            consumer: Only of this one.
            min_idle: Only what was delivered at least so many seconds ago.
            limit: Most rows.
        """
        check_whole("limit", limit, "a whole number from 1", 1)
        self.book.check()
        now = self._log.monotonic()
        rows: list[PendingRow] = []
        with self.book.lock:
            for unit in self._pending():
                holder = unit.holder
                assert holder is not None
                if (
                    (start is None or unit.position >= start)
                    and (end is None or unit.position <= end)
                    and (consumer is None or holder.consumer == consumer)
                    and now - unit.last >= min_idle
                    and len(rows) < limit
                ):
                    times = time_of(unit.first_us), time_of(unit.last_us)
                    rows.append(
                        PendingRow(
                            unit.position,
                            holder.consumer,
                            holder.generation,
                            *times,
                            now - unit.last,
                            unit.count,
                        )
                    )
        return rows

    def info(self) -> GroupStatistics:
        """What the group tells of itself, in whatever state it is."""
        with self.book.lock:
            book, machine = self.book, self.book.machine
            state = GroupState.TRIPPED if machine.tripped else book.state
            numbers = (machine.pending, book.due, machine.parked, len(machine.dying))
            totals, floor, head = dict(machine.totals), machine.floor, machine.head
            names = tuple(one.name for one in machine.consumers.listed())
            record, unsynced, redelivered = book.record, machine.unsynced, machine.redelivered
        return GroupStatistics(
            record.name,
            state,
            floor,
            head,
            record.generation,
            names,
            *numbers,
            totals[DeliveryState.ACKED],
            redelivered,
            record.dead,
            record.lost_changes,
            self._log.behind(floor),
            unsynced,
        )

    def _pending(self) -> list[GroupUnit]:
        return [one for one in self.book.machine.units.values() if one.state is DeliveryState.PENDING]

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

    def deliver(self, consumer: GroupConsumer, most: int, *, history: bool) -> list[GroupDelivery]:
        """What there is for a consumer now."""
        book = self.book
        book.check_serving()
        with book.lock:
            book.machine.tick()
        self.bury()
        units = self._supply.take(consumer, most, history=history)
        try:
            found = self._supply.fetch(consumer, units)
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
        with self.book.lock:
            self._waiting.add(event)
            self.book.machine.consumers.begin_wait(consumer)
        try:
            yield event
        finally:
            with self.book.lock:
                self._waiting.discard(event)
                self.book.machine.consumers.end_wait(consumer, self._log.monotonic())

    def wait(self, event: threading.Event, consumer: GroupConsumer, seconds: float) -> None:
        """Waits until there may be something to deliver."""
        with self.book.lock:
            machine = self.book.machine
            due = machine.next_due()
            most = self.book.record.settings.max_consumer_pending
            full = machine.paused or not machine.room or len(consumer.pending) >= most
            since = machine.reading
        if due is not None:
            seconds = min(seconds, max(due - self._log.monotonic(), 0.0))
        if full:  # nothing new can be read, whatever is committed
            event.wait(seconds)
            return
        end = self._log.listen(self.book.criteria, since, event.set)
        try:
            event.wait(seconds)
        finally:
            end()

    def notify(self) -> None:
        """There may be something for those who wait."""
        with self.book.lock:
            waiting = list(self._waiting)
        for event in waiting:
            event.set()

    def close(self) -> None:
        """Writes what was acknowledged; for the log."""
        try:
            self.book.close()
        finally:
            self.dead.close()
            self.notify()

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.name!r} {self.book.state.value} at {self.book.machine.floor}>"


class GroupMember:
    """A consumer that has joined a group; a context manager that leaves. All methods may be called from any thread.

    Once a consumer of its name has joined again, each raises ``ConsumerFenced`` and changes nothing.

    Args:
        group: The group.
        consumer: What the group knows of it.
    """

    def __init__(self, group: ConsumerGroup, consumer: GroupConsumer) -> None:
        self._group = group
        self._consumer = consumer

    @property
    def name(self) -> str:
        """What it is called."""
        return self._consumer.name

    @property
    def generation(self) -> int:
        """Of its joining."""
        return self._consumer.generation

    def read(
        self, most: int | None = None, *, history: bool = False, wait: float | None = None
    ) -> list[GroupDelivery]:
        """Gives deliveries: first what is due again, whichever consumer had it, then what is new, each as it lies in the log.

        Args:
            most: How many; None for ``batch``.
            history: Whether what a consumer of this name had before it joined again comes first; that counts as no delivery.
            wait: Longest time in seconds until there is one; None for ``max_wait``.

        Raises:
            ConsumerFenced: See the class.
            GroupPaused: If its breaker has paused the group.
            GroupLost, GroupForked, NoSuchGroup: If the group cannot be used.
            GroupUnwritten: If counts cannot be written, with ``max_deliver``; nothing is delivered.
        """
        settings = self._group.book.record.settings
        most = settings.batch if most is None else most
        check_whole("most", most, "a whole number from 1", 1)
        check_switches(history=history)
        left = settings.max_wait if wait is None else wait
        monotonic = self._group.monotonic
        until = monotonic() + left
        with self._group.listening(self._consumer) as event:
            while True:
                event.clear()
                found = self._group.deliver(self._consumer, most, history=history)
                left = until - monotonic()
                if found or left <= 0:
                    return found
                self._group.wait(event, self._consumer, left)

    def ack(self, *places: Position | GroupDelivery, durable: bool = False) -> int:
        """Acknowledges deliveries; with ``ack="all"`` everything that this consumer has up to the last of them.

        Args:
            places: Their positions, or themselves. What is not known counts as acknowledged before.
            durable: Whether to return only when a crash cannot take it.

        Returns:
            How many were newly acknowledged.

        Raises:
            ConsumerFenced: Also if one was given to another consumer since; nothing has changed.
            GroupUnwritten: With ``durable``, if the disk has no room or fails; it is tried again.
        """
        positions = [_position(one) for one in places]
        if positions and self._group.book.record.settings.ack == "all":
            return self.ack_upto(max(positions), durable=durable)
        return self._acked(lambda machine: machine.ack(self._consumer, positions), durable=durable)

    def ack_upto(self, place: Position | GroupDelivery, *, durable: bool = False) -> int:
        """Acknowledges everything that this consumer has up to and with a position; otherwise as `ack`."""
        position = _position(place)
        return self._acked(lambda machine: machine.ack_upto(self._consumer, position), durable=durable)

    def nack(
        self,
        place: Position | GroupDelivery,
        delay: float | None = None,
        *,
        count: bool = True,
        error: str = "refused",
    ) -> bool:
        """Refuses a delivery: it is due again after a delay, for every consumer, and so are later ones of its key.

        Args:
            place: Which.
            delay: In seconds; None for the next one of ``backoff``.
            count: False if it was not tried, such as where a worker stops: then it counts as no delivery.
            error: Why; for the dead letters.

        Returns:
            False if it was not pending.

        Raises:
            ConsumerFenced: As `ack`.
        """
        position = _position(place)
        found = self._said(
            lambda machine: machine.nack(self._consumer, position, delay, count=count, error=error)
        )
        self._group.bury()
        self._group.notify()
        return found

    def in_progress(self, place: Position | GroupDelivery) -> bool:
        """Begins ``ack_wait`` anew, so that a delivery that takes long is not given to another consumer; False if it is not pending."""
        position = _position(place)
        return self._said(lambda machine: machine.in_progress(self._consumer, position))

    def term(self, place: Position | GroupDelivery, reason: str) -> bool:
        """Gives a delivery up: it is written to the dead letters, and then done. Answers whether it was not done before."""
        position = _position(place)
        found = self._said(lambda machine: machine.term(self._consumer, position, reason))
        self._group.bury()
        return found

    def claim(
        self,
        min_idle: float,
        positions: Iterable[Position] | None = None,
        *,
        start: Position | None = None,
        limit: int = 100,
        only_ids: bool = False,
    ) -> ClaimedDeliveries:
        """Takes over what other consumers have, and begins its ``ack_wait`` anew.

        Args:
            min_idle: Only what was delivered at least so many seconds ago.
            positions: Which; None for all from ``start`` on.
            start: From where on; None for the first.
            limit: Most of them.
            only_ids: Whether they are only looked at: their count stays, and so do the changes.

        Raises:
            ConsumerFenced: See the class.
        """
        book = self._group.book
        book.check_serving()
        check_whole("limit", limit, "a whole number from 1", 1)
        asked = None if positions is None else [_position(one) for one in positions]
        now = self._group.monotonic()
        with book.lock:
            known = sorted(book.machine.units) if asked is None else sorted(set(asked))
            units = [
                book.machine.units[one]
                for one in known
                if one in book.machine.units and (start is None or one >= start)
            ]
            chosen = [
                one.position
                for one in units
                if one.state is DeliveryState.PENDING and now - one.last >= min_idle
            ]
            following = chosen[limit] if len(chosen) > limit else None
            moved = book.machine.claim(self._consumer, chosen[:limit], min_idle, only_ids=only_ids)
            lost = tuple(one for one in asked or () if one in book.lost)
        try:
            if book.record.settings.max_deliver is not None:
                book.flush()
            if only_ids:
                found = [GroupDelivery(one.position, (), one.count, self.generation) for one in moved]
            else:
                found = self._group.fetch(self._consumer, moved)
        except BaseException:
            with book.lock:
                book.machine.give_back(self._consumer, moved)
            raise
        return ClaimedDeliveries(tuple(found), following, lost)

    def leave(self) -> None:
        """Leaves: what it has pending is due at once. Harmless if it was fenced, or the log is closed."""
        book = self._group.book
        try:
            self._group.check_open()  # a child of fork takes no lock, and does not touch the journal
            with book.lock:
                book.machine.remove(self._consumer)
            book.flush()
        except PenstockError:  # it is tried again by whoever settles or closes
            return
        self._group.notify()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<GroupMember {self.name!r} of {self._group.name!r}, generation {self.generation}>"

    def _said(self, say: Callable[[GroupMachine], bool]) -> bool:
        self._group.book.check()
        with self._group.book.lock:
            return say(self._group.book.machine)

    def _acked(self, say: Callable[[GroupMachine], int], *, durable: bool) -> int:
        check_switches(durable=durable)
        book = self._group.book
        book.check()
        with book.lock:
            count = say(book.machine)
            if count:
                book.acked(count)
        if durable:
            book.flush()
        if count:
            self._group.notify()
        return count


def _position(place: object) -> Position:
    if isinstance(place, GroupDelivery):
        return place.position
    check_position("place", place)
    assert isinstance(place, Position)
    return place

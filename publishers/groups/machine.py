"""The decisions of a group, without threads, files and log: what was read, which consumer holds it, and what is done.

The machine is fed with positions and lanes in log order and keeps only the units that are not done. Every change before its
*head* was read; a change before the head without a unit is done. So acknowledged changes take no memory, in whatever order they
are acknowledged, and the memory is bounded by ``max_ack_pending`` and ``max_parked``.

Durations are measured by the monotonic clock, so setting the wall clock makes no delivery early, late or repeated.
"""

import random
from collections.abc import Collection, Iterable, Sequence

from flow.clock import Clock
from publishers.groups.consumers import GroupConsumer, GroupConsumers
from publishers.groups.intake import GroupIntake
from publishers.groups.record import JournalChanges, OpenRow, row_of
from publishers.groups.schedule import GroupBreaker, GroupTimers, ReadyHeap
from publishers.groups.settings import GroupSettings
from publishers.groups.state import DELIVERY_TABLE, DONE, DeliveryEvent, DeliveryState
from publishers.groups.unit import GroupUnit, Holder, LanePlan, ReadRow
from publishers.model.position import Position

__all__ = ["GroupMachine"]

_PARKED, _PENDING, _DUE = DeliveryState.PARKED, DeliveryState.PENDING, DeliveryState.DUE


class GroupMachine:
    """See the module. Not thread-safe: its callers hold the lock of the book.

    Args:
        name: The name of the group, for errors.
        settings: Its options.
        head: The position up to which it has read.
        opens: The rows before ``head`` that are not done, in order; the log is read again from the first of them on.
        generation: The last generation assigned to a consumer.
        clock: The clock.
        chance: Varies delays.

    Attributes:
        units: The units that are not done, by position.
        consumers: The joined consumers.
        breaker: The outcomes of the last deliveries.
        dying: Units to write to the dead letters, by position.
        paused: Whether the group delivers nothing, and turns no failed delivery into a dead letter.
        tripped: Whether the breaker has paused it.
        totals: Number of units that reached each final state since the group was opened.
        pending: Number of deliveries that are not acknowledged.
        parked: Number of units read ahead and not delivered yet.
        redelivered: Number of deliveries since the group was opened that were not the first of their unit.
        last_error: The reason of the last failed delivery; None if there was none.
    """

    def __init__(
        self,
        name: str,
        settings: GroupSettings,
        head: Position,
        opens: Sequence[OpenRow] = (),
        *,
        generation: int = 0,
        clock: Clock,
        chance: random.Random | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.units: dict[Position, GroupUnit] = {}
        self.consumers: GroupConsumers = GroupConsumers(name, settings, generation)
        self.breaker: GroupBreaker = GroupBreaker()
        self.dying: dict[Position, GroupUnit] = {}
        self.paused: bool = False
        self.tripped: bool = False
        self.totals: dict[DeliveryState, int] = dict.fromkeys(DONE, 0)
        self.redelivered: int = 0
        self.last_error: str | None = None
        self._clock = clock
        self._chance = chance or random.Random()  # noqa: S311 - it spreads retries, and keeps no secret
        self._plan = LanePlan(self.units)
        self._timers = GroupTimers(self.units)
        self._ready = ReadyHeap(self.units)
        self.pending: int = 0
        self.parked: int = 0
        self._changes = JournalChanges(head)
        self._intake = GroupIntake(settings, head, opens, self._changes)

    # --- where it is -----------------------------------------------------------------------------------------------------

    @property
    def reading(self) -> Position:
        """The next position to read."""
        return self._intake.reading

    @property
    def head(self) -> Position:
        """The position up to which it has read, now or before a restart; a change before it without a unit is done."""
        return self._intake.head

    @property
    def stored_head(self) -> Position:
        """The head for the journal. Units read ahead of every delivery lie behind it, and are read again after a restart."""
        first = self._ready.first_fresh()
        return self.head if first is None else max(first, self._intake.read_before)

    @property
    def floor(self) -> Position:
        """The position before which every change is done."""
        first, resumed = next(iter(self.units), None), self._intake.resumed
        found = self.head if first is None else first
        return min(found, resumed[0].position) if resumed else found

    @property
    def room(self) -> int:
        """How many changes may be read now: the room for parked units, or the rows open since a restart if these are more.

        Those rows were read within the bounds before the restart.
        """
        return max(self.settings.max_parked - self.parked, len(self._intake.resumed))

    # --- reading ---------------------------------------------------------------------------------------------------------

    def feed(self, rows: Iterable[ReadRow], after: Position) -> None:
        """Adds units for changes that were read.

        Args:
            rows: The changes from ``reading`` on, in order.
            after: The next position to read. With ``ack="transaction"``, ``rows`` hold every matching change before it.
        """
        add, fresh = self._plan.add, list[GroupUnit]()
        for unit in self._intake.take(rows, after):
            self.units[unit.position] = unit
            if unit.lanes:
                add(unit)
            if unit.state is _DUE:
                self._ready.push(unit)
            else:
                fresh.append(unit)
        self.parked += len(fresh)
        self._ready.push_fresh(fresh)

    # --- delivering ------------------------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Takes back deliveries that have timed out and removes absent consumers; returns whether there was anything to do."""
        now = self._clock.monotonic()
        absent = self.consumers.absent(now)
        for consumer in absent:
            self.remove(consumer)
        due = self._timers.due(now)
        for unit in due:
            if unit.state is _DUE:
                self._ready.push(unit)
            else:
                delay = 0.0 if unit.count < 2 else self.settings.delay_after(unit.count - 1, self._chance)
                self._failed(unit, "not acknowledged in time", now + delay, late=True)
        return bool(absent or due)

    def next_due(self) -> float | None:
        """Monotonic time of the next tick that may have something to do; None if none will."""
        times = (self._timers.next(), self.consumers.next_absent)
        return min((one for one in times if one is not None), default=None)

    @property
    def first_due(self) -> float | None:
        """Monotonic time at which the first unit is due for redelivery; None if there is none."""
        return min((one.until for one in self.units.values() if one.state is _DUE), default=None)

    def take(self, consumer: GroupConsumer, most: int, *, history: bool = False) -> list[GroupUnit]:
        """Delivers units to a consumer: first those due for redelivery, then new ones, each in log order.

        Args:
            consumer: The consumer.
            most: Most units.
            history: Whether its pending units from earlier generations come first; they count as no delivery.

        Raises:
            ConsumerFenced: If the consumer is not current.
        """
        self._heard(consumer)
        holder, settings = consumer.holder, self.settings
        taken: list[GroupUnit] = []
        if self.paused:
            return taken
        if history:
            taken = self._again(consumer, holder, most)
        again, now, wall = len(taken), self._clock.monotonic(), self._clock.now_us()
        pop, blocker, pending = self._ready.pop, self._plan.blocker, consumer.pending
        changed = self._changes.changed
        most_given = settings.max_ack_pending - self._intake.resumed_given
        while len(taken) < most and len(pending) < settings.max_consumer_pending:
            unit = pop(consumer.ready, now)
            if unit is None:
                break
            if not unit.stored:
                changed.add(unit)
            if unit.state is _PARKED and len(self.units) - self.parked >= most_given:
                # Redeliveries come before new units, so none of them is left.
                self._ready.push(unit)
                break
            if settings.max_deliver is not None and unit.count >= settings.max_deliver:
                self._condemn(unit)
            elif (found := blocker(unit, holder)) is None:
                if unit.state is _PARKED:
                    self.parked -= 1
                unit.state = DELIVERY_TABLE[unit.state, DeliveryEvent.DELIVER]
                self._give(unit, consumer, now, wall)
                taken.append(unit)
            else:
                self._wait(unit, *found)
        if len(taken) > again:
            self._timers.set_all(taken[again:], now + settings.ack_wait)
        return taken

    def _again(self, consumer: GroupConsumer, holder: Holder, most: int) -> list[GroupUnit]:
        """Delivers again what the consumer's name has pending from earlier generations."""
        taken: list[GroupUnit] = []
        for position in sorted(consumer.pending):
            unit = consumer.pending[position]
            if len(taken) == most:
                break
            found = self._plan.blocker(unit, holder)
            if unit.holder != holder and found is None:
                unit.holder, unit.recalled = holder, True
                self._timers.set(unit, self._clock.monotonic() + self.settings.ack_wait)
                taken.append(unit)
        for unit in taken:
            self._wake(unit)
        return taken

    def _give(
        self, unit: GroupUnit, consumer: GroupConsumer, now: float, wall: int, *, count: bool = True
    ) -> None:
        """Records a delivery to a consumer; the caller sets the timer."""
        unit.holder, unit.last, unit.last_us = consumer.holder, now, wall
        unit.first_us = unit.first_us or wall
        unit.blocker, unit.recalled, unit.late = None, not count, False
        if count:
            unit.count += 1
            self.redelivered += unit.count > 1
        consumer.pending[unit.position] = unit
        self.pending += 1
        if unit.stored:  # else take() has added it already
            self._changes.changed.add(unit)
        if unit.waiters:
            self._wake(unit)

    def _wait(self, unit: GroupUnit, blocker: GroupUnit, same_key: bool) -> None:
        unit.blocker = blocker
        if blocker.waiters is None:
            blocker.waiters = {}
        blocker.waiters[unit] = None
        if same_key and blocker.state is _PENDING and blocker.holder is not None:
            consumer = self.consumers.get(blocker.holder)
            if consumer is not None:  # this consumer may also receive the later unit of the key
                consumer.ready.push(unit)

    def _wake(self, unit: GroupUnit) -> None:
        """Makes the units that waited for a unit ready again."""
        waiters, unit.waiters = unit.waiters, None
        for one in waiters or ():
            if one.blocker is unit:
                one.blocker = None
                if one.state in (_PARKED, _DUE):
                    self._ready.push(one)

    # --- what consumers say ----------------------------------------------------------------------------------------------

    def join(self, name: str, generation: int) -> GroupConsumer:
        """Adds a consumer, which takes over the pending units of its name.

        Args:
            name: Its name.
            generation: Its generation: a new one, durable already.
        """
        return self.consumers.join(name, generation, self._clock.monotonic(), self.units)

    def remove(self, consumer: GroupConsumer) -> None:
        """Removes a consumer that has left or is absent; its pending units are due at once."""
        now = self._clock.monotonic()
        for unit in sorted(consumer.pending.values(), key=lambda one: one.position):
            if unit.state is _PENDING:
                self._take_back(unit, now)
        self.consumers.remove(consumer)

    def ack(self, consumer: GroupConsumer, positions: Iterable[Position]) -> int:
        """Acknowledges deliveries of a consumer.

        Returns:
            The number newly acknowledged; an unknown position counts as acknowledged before.

        Raises:
            ConsumerFenced: If the consumer is not current, or a unit was delivered to another one since; nothing is acknowledged.
        """
        self._heard(consumer)
        places = map(self._place, positions) if self.settings.ack == "transaction" else positions
        pending = consumer.pending
        found = {place: pending.get(place) or self.own(consumer, place) for place in places}
        return self._done([one for one in found.values() if one is not None])

    def ack_delivered(self, positions: Iterable[Position]) -> int:
        """Acknowledges units delivered to any consumer, now or before a restart; returns how many are newly acknowledged."""
        found = {self.units.get(self._place(position)) for position in positions}
        return self._done([one for one in found if one and one.count and one.state in (_PENDING, _DUE)])

    def ack_upto(self, consumer: GroupConsumer, position: Position) -> int:
        """Acknowledges the deliveries of a consumer up to and including a position; otherwise as `ack`.

        These are its pending deliveries, and those that timed out and were not redelivered. Deliveries that it refused are not
        included, nor those of earlier generations of its name that it did not receive.
        """
        self._heard(consumer)
        limit, holder = self._place(position), consumer.holder
        found = []
        for unit in self.units.values():  # in log order
            if unit.position > limit:
                break
            if unit.holder == holder and (unit.state is _PENDING or (unit.state is _DUE and unit.late)):
                found.append(unit)
        return self._done(found)

    def nack(
        self,
        consumer: GroupConsumer,
        position: Position,
        delay: float | None = None,
        *,
        count: bool = True,
        error: str = "refused by its consumer",
    ) -> bool:
        """Refuses a delivery: it is due again after a delay, and later ones of its key are taken back with it.

        Args:
            consumer: The consumer that holds it.
            position: The position of the delivery.
            delay: Seconds; None for the next delay of ``backoff``.
            count: Whether it counts as a delivery.
            error: The reason, for the dead letters.

        Returns:
            False if it is not pending, because it is acknowledged or already due.

        Raises:
            ConsumerFenced: As `ack`.
        """
        unit = self.own(consumer, position)
        if unit is None or unit.state is not _PENDING:
            return False
        if delay is None:
            delay = self.settings.delay_after(unit.count, self._chance) if count else 0.0
        until = self._clock.monotonic() + delay
        if count:
            self._failed(unit, error, until)
        else:
            self._uncount(unit)
            self._take_back(unit, until)
        return True

    def has(self, consumer: GroupConsumer, position: Position, count: int) -> bool:
        """Whether a delivery is still pending at a consumer: not done, not taken back, not redelivered since."""
        found = (unit := self.units.get(position)) and (unit.state, unit.holder, unit.count)
        return found == (_PENDING, consumer.holder, count)

    def give_back(self, consumer: GroupConsumer, units: Iterable[GroupUnit]) -> None:
        """Takes back units that the consumer did not receive; they count as no delivery."""
        for unit in sorted(units, key=lambda one: one.position, reverse=True):
            known = self.units.get(unit.position) is unit  # False if the group was reset meanwhile
            if known and unit.state is _PENDING and consumer.pending.get(unit.position) is unit:
                if not unit.recalled:
                    self._uncount(unit)
                self._take_back(unit, self._clock.monotonic())

    def recall(self, consumer: GroupConsumer) -> bool:
        """Treats all pending units of a consumer as those of an earlier generation, so that ``history`` delivers them again.

        Returns:
            Whether there are any.
        """
        self._heard(consumer)
        for unit in consumer.pending.values():
            unit.holder = Holder(consumer.name, 0)
        return bool(consumer.pending)

    def in_progress(self, consumer: GroupConsumer, position: Position) -> bool:
        """Restarts ``ack_wait`` of a delivery; returns whether it is pending."""
        unit = self.own(consumer, position)
        if unit is None or unit.state is not _PENDING:
            return False
        self._timers.set(unit, self._clock.monotonic() + self.settings.ack_wait)
        return True

    def term(self, consumer: GroupConsumer, position: Position, reason: str) -> bool:
        """Terminates a delivery, which becomes a dead letter; returns whether it was pending or due."""
        unit = self.own(consumer, position)
        if unit is None:
            return False
        self._blame(unit, reason)
        self._condemn(unit)
        return True

    def claim(
        self,
        consumer: GroupConsumer,
        positions: Iterable[Position],
        min_idle: float,
        *,
        only_ids: bool = False,
    ) -> list[GroupUnit]:
        """Moves pending deliveries to a consumer and restarts their time; takes back later ones of their keys at other consumers.

        Args:
            consumer: The new consumer.
            positions: The positions of the deliveries.
            min_idle: Seconds; only deliveries made at least so long ago are moved.
            only_ids: Whether the move counts as no delivery.

        Returns:
            The moved units: those pending, idle for long enough, and not behind a unit of their key at another consumer.

        Raises:
            ConsumerFenced: If the consumer is not current.
        """
        self._heard(consumer)
        now, moved = self._clock.monotonic(), []
        holder, settings = consumer.holder, self.settings
        for position in sorted(dict.fromkeys(map(self._place, positions))):
            unit = self.units.get(position)
            if unit is None or unit.state is not _PENDING or now - unit.last < min_idle:
                continue
            elsewhere = unit.position not in consumer.pending
            full = elsewhere and len(consumer.pending) >= settings.max_consumer_pending
            often = settings.max_deliver is not None and unit.count >= settings.max_deliver
            if full or (often and not only_ids) or self._plan.blocker(unit, holder) is not None:
                continue
            if unit.holder != holder:
                self._take_back_behind(unit, now)
            self._forget_pending(unit)
            self._become(unit, DeliveryEvent.CLAIM)
            self._give(unit, consumer, now, self._clock.now_us(), count=not only_ids)
            self._timers.set(unit, now + settings.ack_wait)
            moved.append(unit)
        return moved

    def release(self, min_idle: float) -> int:
        """Takes back the deliveries made at least ``min_idle`` seconds ago; they are due at once, and did not fail."""
        now = self._clock.monotonic()
        found = [one for one in self.units.values() if one.state is _PENDING and now - one.last >= min_idle]
        for unit in found:
            if unit.state is _PENDING:  # else it was taken back behind an earlier unit of its key
                self._take_back(unit, now)
        return len(found)

    # --- what is done ----------------------------------------------------------------------------------------------------

    def bury(self, position: Position) -> None:
        """Notes that a unit was written to the dead letters."""
        unit = self.dying.get(position)
        if unit is not None:
            self._close(unit, DeliveryEvent.BURY)

    def prune(self, oldest: Position, head: Position) -> list[Position]:
        """Drops units before ``oldest``, which retention deleted; reading continues at ``head`` or later.

        Returns:
            The positions that had been read and are lost.
        """
        lost = self._intake.prune(oldest, head)
        self.totals[DeliveryState.LOST] += len(lost)
        for unit in [one for one in self.units.values() if one.position < oldest]:
            lost.append(unit.position)
            self._close(unit, DeliveryEvent.LOSE)
        return sorted(lost)

    def resume(self) -> None:
        """Ends a pause and clears the breaker."""
        self.paused = self.tripped = False
        self.breaker.clear()

    def own(self, consumer: GroupConsumer, position: Position) -> GroupUnit | None:
        """The pending or due unit at a position that was last delivered to a consumer's name; None if it is done or unknown.

        Raises:
            ConsumerFenced: If the consumer is not current, or another one has it.
        """
        self._heard(consumer)
        unit = self.units.get(self._place(position))
        if unit is None or unit.state not in (_PENDING, _DUE):
            return None
        if unit.holder is None or unit.holder.consumer != consumer.name:
            other = "no consumer" if unit.holder is None else f"consumer {unit.holder.consumer!r}"
            raise self.consumers.fenced(consumer, f"{other} has {unit.position} now")
        return unit

    def _heard(self, consumer: GroupConsumer) -> None:
        self.consumers.check(consumer)
        consumer.seen = self._clock.monotonic()

    def _place(self, position: Position) -> Position:
        return Position(position.version) if self.settings.ack == "transaction" else position

    def _failed(self, unit: GroupUnit, error: str, until: float, *, late: bool = False) -> None:
        """Handles a failed delivery: redelivers it, or after ``max_deliver`` deliveries condemns it or trips the breaker."""
        self._blame(unit, error)
        most = self.settings.max_deliver
        if most is not None and unit.count >= most:
            if self.settings.breaker and self.breaker.tripped:
                self.paused = self.tripped = True
            if not self.paused:
                self._condemn(unit)
                return
            until = self._clock.monotonic()
        self._take_back(unit, until, late=late)

    def _blame(self, unit: GroupUnit, error: str) -> None:
        self.breaker.note(failed=True)
        self.last_error = error
        unit.blame(error)

    def _uncount(self, unit: GroupUnit) -> None:
        unit.count -= 1
        self._changes.changed.add(unit)

    def _take_back(self, unit: GroupUnit, until: float, *, late: bool = False) -> None:
        """Takes a unit back from its consumer, together with later pending ones of its keys; it is due at ``until``."""
        self._take_back_behind(unit, self._clock.monotonic(), late=late)
        self._forget_pending(unit)
        self._become(unit, DeliveryEvent.TAKE_BACK)
        unit.until, unit.late = until, late
        if until <= self._clock.monotonic():
            self._ready.push(unit)
        else:
            self._timers.set(unit, until)

    def _take_back_behind(self, unit: GroupUnit, now: float, *, late: bool = False) -> None:
        """Takes back the later pending units of its keys, and those behind them; they count as not failed."""
        found, todo = [], self._plan.behind(unit)
        seen = {unit}
        while todo:
            one = todo.pop()
            if one not in seen and one.state is _PENDING:
                seen.add(one)
                found.append(one)
                todo += self._plan.behind(one)
        for one in found:
            self._forget_pending(one)
            self._become(one, DeliveryEvent.TAKE_BACK)
            one.until, one.late = now, late
            self._ready.push(one)

    def _forget_pending(self, unit: GroupUnit) -> None:
        if unit.holder is not None:
            self.consumers.forget(unit.holder.consumer, unit.position)
        self.pending -= 1

    def _condemn(self, unit: GroupUnit) -> None:
        if unit.state is _PENDING:
            self._take_back_behind(unit, self._clock.monotonic())
            self._forget_pending(unit)
        self._become(unit, DeliveryEvent.CONDEMN)
        self.dying[unit.position] = unit

    def _done(self, units: Collection[GroupUnit]) -> int:
        self.breaker.note(failed=False, count=len(units))
        for unit in units:
            self._close(unit, DeliveryEvent.ACK)
        return len(units)

    def _close(self, unit: GroupUnit, event: DeliveryEvent) -> None:
        if unit.state is _PENDING:
            self._forget_pending(unit)
        elif unit.state is _PARKED:
            self.parked -= 1
        else:
            self.dying.pop(unit.position, None)
        unit.state = state = DELIVERY_TABLE[unit.state, event]
        self.totals[state] += 1
        del self.units[unit.position]
        if unit.lanes:
            self._plan.remove(unit)
        self._changes.close(unit)
        if unit.waiters:
            self._wake(unit)

    @staticmethod
    def _become(unit: GroupUnit, event: DeliveryEvent) -> None:
        unit.state = DELIVERY_TABLE[unit.state, event]

    # --- for the journal -------------------------------------------------------------------------------------------------

    @property
    def unsynced(self) -> bool:
        """Whether the journal is stale."""
        return self._changes.behind(self.stored_head)

    def opens(self) -> list[OpenRow]:
        """The rows before the stored head that are not done, in order."""
        head = self.stored_head
        read = [row_of(one) for one in self.units.values() if one.position < head]
        return sorted([*read, *self._intake.resumed], key=lambda row: row.position)

    def news(self) -> tuple[Position, list[OpenRow], list[Position]]:
        """The differences since the last `stored`: head, rows newly open or delivered again, and positions that are done."""
        return (self.stored_head, *self._changes.news())

    def stored(self, head: Position, opened: Iterable[OpenRow], closed: Iterable[Position]) -> None:
        """Notes that the journal holds these differences durably."""
        self._changes.stored(head, opened, closed, self.units)

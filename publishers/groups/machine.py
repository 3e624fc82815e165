"""A group without threads, files and log: what was read, to which consumer it was delivered, and what is done.

It is fed with positions and lanes as they lie in the log, and keeps only those that are not done. Everything before its *head* was
read; whatever of that it does not keep is done. So what it remembers of the acknowledged is nothing, however many there are and
in whatever order they come, and its memory is bounded by ``max_ack_pending`` and ``max_parked``.

Time is the clock's: durations by its monotonic hand, so that a clock that is put back or forth delivers nothing twice and nothing late.
"""

import random
from collections.abc import Collection, Iterable, Sequence

from flow.clock import Clock
from publishers.groups.breaker import GroupBreaker
from publishers.groups.intake import GroupIntake
from publishers.groups.journal_changes import JournalChanges, row_of
from publishers.groups.members import GroupConsumer, GroupConsumers
from publishers.groups.ready_heap import ReadyHeap
from publishers.groups.record import OpenRow
from publishers.groups.settings import GroupSettings
from publishers.groups.state import DELIVERY_TABLE, DeliveryEvent, DeliveryState
from publishers.groups.timers import GroupTimers
from publishers.groups.unit import GroupUnit, Holder, LanePlan, ReadRow
from publishers.model.position import Position

__all__ = ["GroupMachine"]

_PARKED, _PENDING, _DUE = DeliveryState.PARKED, DeliveryState.PENDING, DeliveryState.DUE


class GroupMachine:
    """See the module. For one thread at a time.

    Args:
        name: What errors call the group.
        settings: Its options.
        head: Everything before it was read.
        opens: What of that is not done, in order; it is read again, from the first of them on.
        generation: The last one that was given to a consumer.
        clock: What time it is.
        chance: Varies delays.

    Attributes:
        units: What is not done, by its position.
        consumers: Those that have joined.
        breaker: The outcomes of the last deliveries.
        dying: What is to be written to the dead letters.
        paused: Whether nothing is delivered, and nothing becomes a dead letter.
        tripped: Whether the breaker has paused it.
        totals: How many came to each end, since the group was opened.
        pending: How many deliveries are not acknowledged.
        parked: How many changes were read ahead.
        redelivered: How many deliveries were not the first of a change, since then.
        last_error: Why one failed last.
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
        self.consumers = GroupConsumers(name, settings, generation)
        self.breaker = GroupBreaker()
        self.dying: dict[Position, GroupUnit] = {}
        self.paused = self.tripped = False
        self.totals = dict.fromkeys((DeliveryState.ACKED, DeliveryState.DEAD, DeliveryState.LOST), 0)
        self.redelivered = 0
        self.last_error: str | None = None
        self._clock = clock
        self._chance = chance or random.Random()  # noqa: S311 - it spreads retries, and keeps no secret
        self._plan = LanePlan(self.units)
        self._timers = GroupTimers(self.units)
        self._ready = ReadyHeap(self.units)
        self.pending = self.parked = 0
        self._told = JournalChanges(head)
        self._intake = GroupIntake(settings, head, opens, self._told)

    # --- where it is -----------------------------------------------------------------------------------------------------

    @property
    def reading(self) -> Position:
        """What is to be read next."""
        return self._intake.reading

    @property
    def head(self) -> Position:
        """Everything before it was read, now or before a restart; what of that is not kept is done."""
        return self._intake.head

    @property
    def stored_head(self) -> Position:
        """The head as the journal is told: what was read ahead of all deliveries is simply read again."""
        first = self._ready.first_fresh()
        return self.head if first is None else max(first, self._intake.read_before)

    @property
    def floor(self) -> Position:
        """Everything before it is done."""
        first, resumed = next(iter(self.units), None), self._intake.resumed
        found = self.head if first is None else first
        return min(found, resumed[0].position) if resumed else found

    @property
    def room(self) -> int:
        """How many changes may be read: as many as may be parked, or what is not done from before a restart, which was read within the bounds then."""
        return max(self.settings.max_parked - self.parked, len(self._intake.resumed))

    # --- reading ---------------------------------------------------------------------------------------------------------

    def feed(self, rows: Iterable[ReadRow], after: Position) -> None:
        """Takes what was read.

        Args:
            rows: From ``reading`` on, in order.
            after: Where reading goes on. Of a transaction that is delivered as one, everything before it was given.
        """
        add, push = self._plan.add, self._ready.push_fresh
        for unit in self._intake.take(rows, after):
            self.units[unit.position] = unit
            if unit.lanes:
                add(unit)
            if unit.state is _DUE:
                self._ready.push(unit)
            else:
                self.parked += 1
                push(unit)

    # --- delivering ------------------------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Takes back what has timed out, and removes the consumers that were not heard of; answers whether there was anything."""
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
        """When a tick may find something, by the monotonic clock; None if never."""
        times = (self._timers.next(), self.consumers.next_absent)
        return min((one for one in times if one is not None), default=None)

    @property
    def first_due(self) -> float | None:
        """From when on the first of what is to be delivered again is; None if there is none."""
        return min((one.until for one in self.units.values() if one.state is _DUE), default=None)

    def take(self, consumer: GroupConsumer, most: int, *, history: bool = False) -> list[GroupUnit]:
        """Delivers: what is to be delivered again first, then what is new, each as they lie in the log.

        Args:
            consumer: To which.
            most: How many.
            history: Whether what it has pending comes first of all, which counts as no delivery.

        Raises:
            ConsumerFenced: If the consumer does not count any more.
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
        changed = self._told.changed
        most_given = settings.max_ack_pending - self._intake.resumed_given
        while len(taken) < most and len(pending) < settings.max_consumer_pending:
            unit = pop(consumer.ready, now)
            if unit is None:
                break
            if not unit.stored:
                changed.add(unit)
            if unit.state is _PARKED and len(self.units) - self.parked >= most_given:
                # Whatever is delivered again comes before it, so there is nothing of that.
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
        """What a consumer has pending from before it joined again."""
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
        """Something is the consumer's; its timer is set by whoever calls."""
        unit.holder, unit.last, unit.last_us = consumer.holder, now, wall
        unit.first_us = unit.first_us or wall
        unit.blocker, unit.recalled, unit.late = None, not count, False
        if count:
            unit.count += 1
            self.redelivered += unit.count > 1
        consumer.pending[unit.position] = unit
        self.pending += 1
        if unit.stored:  # else it is among those since it was first looked at
            self._told.changed.add(unit)
        if unit.waiters:
            self._wake(unit)

    def _wait(self, unit: GroupUnit, blocker: GroupUnit, same_key: bool) -> None:
        unit.blocker = blocker
        if blocker.waiters is None:
            blocker.waiters = {}
        blocker.waiters[unit] = None
        if same_key and blocker.state is _PENDING and blocker.holder is not None:
            consumer = self.consumers.get(blocker.holder)
            if consumer is not None:  # which may have the later one of the key too
                consumer.ready.push(unit)

    def _wake(self, unit: GroupUnit) -> None:
        """Whatever waited for it looks again."""
        waiters, unit.waiters = unit.waiters, None
        for one in waiters or ():
            if one.blocker is unit:
                one.blocker = None
                if one.state in (_PARKED, _DUE):
                    self._ready.push(one)

    # --- what consumers say ----------------------------------------------------------------------------------------------

    def join(self, name: str, generation: int) -> GroupConsumer:
        """A consumer comes, or comes again; it may be given what the one of its name has pending.

        Args:
            name: What it is called.
            generation: A new one, which is durable.
        """
        return self.consumers.join(name, generation, self._clock.monotonic(), self.units)

    def remove(self, consumer: GroupConsumer) -> None:
        """A consumer has left, or was absent for too long: what it has pending is due at once."""
        now = self._clock.monotonic()
        for unit in sorted(consumer.pending.values(), key=lambda one: one.position):
            if unit.state is _PENDING:
                self._take_back(unit, now)
        self.consumers.remove(consumer)

    def ack(self, consumer: GroupConsumer, positions: Iterable[Position]) -> int:
        """Takes acknowledgements.

        Returns:
            How many were newly acknowledged; what is not known counts as acknowledged before.

        Raises:
            ConsumerFenced: If the consumer does not count any more, or something is another one's by now; nothing has changed.
        """
        self._heard(consumer)
        places = map(self._place, positions) if self.settings.ack == "transaction" else positions
        pending = consumer.pending
        found = {place: pending.get(place) or self._own(consumer, place) for place in places}
        return self._done([one for one in found.values() if one is not None])

    def ack_delivered(self, positions: Iterable[Position]) -> int:
        """Takes acknowledgements of whatever was delivered, now or before a restart, to whichever consumer; answers how many are new."""
        found = {self.units.get(self._place(position)) for position in positions}
        return self._done([one for one in found if one and one.count and one.state in (_PENDING, _DUE)])

    def ack_upto(self, consumer: GroupConsumer, position: Position) -> int:
        """Acknowledges what a consumer was given up to and with a position; otherwise as `ack`.

        That is what it has pending, and what has timed out there since and was given to none. What it refused, and what its
        name had before it joined again and it was not given, is not meant.
        """
        self._heard(consumer)
        limit, holder = self._place(position), consumer.holder
        found = []
        for unit in self.units.values():  # as they lie in the log
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
        """A delivery is refused: it is due again after a delay, and later ones of its key with it.

        Args:
            consumer: Which has it.
            position: Of the delivery.
            delay: In seconds; None for the next one of ``backoff``.
            count: Whether it counts as a delivery.
            error: Why, for the dead letters.

        Returns:
            False if it is not pending, as it is acknowledged or due already.

        Raises:
            ConsumerFenced: As `ack`.
        """
        unit = self._own(consumer, position)
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
        """Whether a delivery is still the consumer's: not done, not taken back, and not given again since."""
        found = (unit := self.units.get(position)) and (unit.state, unit.holder, unit.count)
        return found == (_PENDING, consumer.holder, count)

    def give_back(self, consumer: GroupConsumer, units: Iterable[GroupUnit]) -> None:
        """What was taken and not given to the consumer counts as not delivered."""
        for unit in sorted(units, key=lambda one: one.position, reverse=True):
            known = self.units.get(unit.position) is unit  # not if the group was moved meanwhile
            if known and unit.state is _PENDING and consumer.pending.get(unit.position) is unit:
                if not unit.recalled:
                    self._uncount(unit)
                self._take_back(unit, self._clock.monotonic())

    def recall(self, consumer: GroupConsumer) -> bool:
        """What a consumer has pending is as if it had joined again: its own, and not given yet; answers whether there is any."""
        self._heard(consumer)
        for unit in consumer.pending.values():
            unit.holder = Holder(consumer.name, 0)
        return bool(consumer.pending)

    def in_progress(self, consumer: GroupConsumer, position: Position) -> bool:
        """The time until a delivery is due again begins anew; answers whether it is pending."""
        unit = self._own(consumer, position)
        if unit is None or unit.state is not _PENDING:
            return False
        self._timers.set(unit, self._clock.monotonic() + self.settings.ack_wait)
        return True

    def term(self, consumer: GroupConsumer, position: Position, reason: str) -> bool:
        """A delivery is given up: it becomes a dead letter. Answers whether it was pending or due."""
        unit = self._own(consumer, position)
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
        """Moves deliveries to a consumer, and begins their time anew; later ones of their keys elsewhere are taken back.

        Args:
            consumer: To which.
            positions: Of which.
            min_idle: Only those that were delivered at least so many seconds ago.
            only_ids: Whether they are only looked at, so that their count stays.

        Returns:
            Those that were moved: pending, idle for long enough, and not behind one of their key that is elsewhere.

        Raises:
            ConsumerFenced: If the consumer does not count any more.
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

    # --- what is done ----------------------------------------------------------------------------------------------------

    def bury(self, position: Position) -> None:
        """Something was written to the dead letters."""
        unit = self.dying.get(position)
        if unit is not None:
            self._close(unit, DeliveryEvent.BURY)

    def prune(self, oldest: Position, head: Position) -> list[Position]:
        """Retention has taken everything before a position. What was not done of it is lost; reading goes on at ``head``, or later.

        Returns:
            The changes that were read, and are lost.
        """
        lost = self._intake.prune(oldest, head)
        self.totals[DeliveryState.LOST] += len(lost)
        for unit in [one for one in self.units.values() if one.position < oldest]:
            lost.append(unit.position)
            self._close(unit, DeliveryEvent.LOSE)
        return sorted(lost)

    def resume(self) -> None:
        """Delivers again, and forgets what tripped the breaker."""
        self.paused = self.tripped = False
        self.breaker.clear()

    def _own(self, consumer: GroupConsumer, position: Position) -> GroupUnit | None:
        """What a consumer speaks of, if it is not done, and was delivered to it last."""
        self._heard(consumer)
        unit = self.units.get(self._place(position))
        if unit is None or unit.state not in (_PENDING, _DUE):
            return None
        if unit.holder is None or unit.holder.consumer != consumer.name:
            whose = "nobody's" if unit.holder is None else f"consumer {unit.holder.consumer!r}'s"
            raise self.consumers.fenced(consumer, f"{unit.position} is {whose} now")
        return unit

    def _heard(self, consumer: GroupConsumer) -> None:
        self.consumers.check(consumer)
        consumer.seen = self._clock.monotonic()

    def _place(self, position: Position) -> Position:
        return Position(position.version) if self.settings.ack == "transaction" else position

    def _failed(self, unit: GroupUnit, error: str, until: float, *, late: bool = False) -> None:
        """A delivery has failed; if it was the last one, the change is given up, or the whole group is paused."""
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
        self._told.changed.add(unit)

    def _take_back(self, unit: GroupUnit, until: float, *, late: bool = False) -> None:
        """Something is not with its consumer any more, and what follows it in its lines is not either."""
        self._take_back_behind(unit, self._clock.monotonic(), late=late)
        self._forget_pending(unit)
        self._become(unit, DeliveryEvent.TAKE_BACK)
        unit.until, unit.late = until, late
        if until <= self._clock.monotonic():
            self._ready.push(unit)
        else:
            self._timers.set(unit, until)

    def _take_back_behind(self, unit: GroupUnit, now: float, *, late: bool = False) -> None:
        """The later ones of its keys that are pending, and those behind them; none of them failed."""
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
        self._told.close(unit)
        if unit.waiters:
            self._wake(unit)

    @staticmethod
    def _become(unit: GroupUnit, event: DeliveryEvent) -> None:
        unit.state = DELIVERY_TABLE[unit.state, event]

    # --- what the journal is told ----------------------------------------------------------------------------------------

    @property
    def unsynced(self) -> bool:
        """Whether the journal knows less."""
        return self._told.behind(self.stored_head)

    def opens(self) -> list[OpenRow]:
        """Everything before the stored head that is not done, in order."""
        head = self.stored_head
        read = [row_of(one) for one in self.units.values() if one.position < head]
        return sorted([*read, *self._intake.resumed], key=lambda row: row.position)

    def news(self) -> tuple[Position, list[OpenRow], list[Position]]:
        """The stored head, what is newly open or was delivered again, and what is done, since `stored` was told of the last ones."""
        return (self.stored_head, *self._told.news())

    def stored(self, head: Position, opened: Iterable[OpenRow], closed: Iterable[Position]) -> None:
        """The journal knows that much."""
        self._told.stored(head, opened, closed, self.units)

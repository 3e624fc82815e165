"""An open group: joining, pausing, statistics."""

from collections.abc import Callable
from typing import Final

import msgspec

from publishers.errors import InvalidOption
from publishers.groups.delivery import (
    GroupDelivery,
    GroupStatistics,
    PendingRow,
    PendingSummary,
)
from publishers.groups.member import GroupMember
from publishers.groups.served_group import ServedGroup
from publishers.groups.state import DeliveryState, GroupState
from publishers.groups.unit import GroupUnit
from publishers.groups.worker import GroupWorker, WorkOptions
from publishers.model.change import time_of
from publishers.model.position import Position, check_position
from publishers.options import check_label, check_switches, check_whole

__all__ = ["ConsumerGroup"]

_PREFETCH: Final = 100


class ConsumerGroup(ServedGroup):
    """A group of a log: ``log.groups.open(name)``. All methods may be called from any thread."""

    def join(self, consumer: str) -> "GroupMember":
        """Joins with a new generation, durable on return; an earlier consumer of the same name is fenced.

        Args:
            consumer: The name of the consumer, 1 to 256 printable characters.

        Raises:
            InvalidOption: If ``consumer`` is not such a text.
            TooCostly: If there are already ``max_consumers``.
            GroupLost, GroupForked, NoSuchGroup: If the group cannot be used.
            GroupUnwritten: If the disk has no room or fails.
        """
        check_label("consumer", consumer)
        self.book.check()
        with self.book.lock:
            self.book.machine.consumers.check_room(consumer)
        generation = self.book.raise_generation()
        with self.book.lock:
            self.book.machine.consumers.check_room(consumer)  # others may have joined while that was written
            joined = self.book.machine.join(consumer, generation)
        self.notify(moved=True)
        return GroupMember(self, joined)

    def work(
        self,
        consumer: str,
        apply: Callable[[GroupDelivery], object],
        *,
        concurrency: int = 4,
        prefetch: int | None = None,
        longest: float = 3_600.0,
    ) -> GroupWorker:
        """Joins with a worker: a consumer that runs a function for each delivery until it is stopped.

        Deliveries of one key run one after the other, in order; others run in parallel. When the function returns, the delivery
        is acknowledged; when it raises, the delivery is refused and comes again after ``backoff``. `GroupWorker.stop` waits for
        running functions and returns the other deliveries to the group.

        Args:
            consumer: The name of the consumer.
            apply: The function; called with a `GroupDelivery`.
            concurrency: Most functions that run at once, each on its own thread.
            prefetch: Most deliveries in the worker, running ones included; None for 100, or ``max_consumer_pending`` if that is
                less.
            longest: Seconds after which a running function counts as stuck; its delivery is not extended any more and comes due.

        Raises:
            InvalidOption: If an argument is not valid.
            TooCostly, GroupLost, GroupForked, NoSuchGroup, GroupUnwritten: As for `join`.
        """
        settings = self.book.record.settings
        most = min(_PREFETCH, settings.max_consumer_pending)
        options = WorkOptions(concurrency, most if prefetch is None else prefetch, longest)
        options.check(apply)
        return GroupWorker(
            self.join(consumer),
            apply,
            options,
            ack_wait=settings.ack_wait,
            keyed=settings.ordering != "none",
            monotonic=self.monotonic,
        )

    def pause(self) -> bool:
        """Stops delivery until `resume`, across restarts too; returns whether the group was not paused before."""
        return self._pause(paused=True)

    def resume(self) -> bool:
        """Resumes delivery, also after the breaker has paused the group; returns whether it was paused."""
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

    def ack(self, *positions: Position, durable: bool = False) -> int:
        """Acknowledges deliveries of any consumers; for callers that do not name a consumer.

        Args:
            positions: The positions of the deliveries. Positions that are unknown or were never delivered are ignored.
            durable: Whether to return only once the acknowledgement survives a crash.

        Returns:
            The number of deliveries newly acknowledged.

        Raises:
            InvalidOption: If the group has ``ack="all"``, where an acknowledgement covers the deliveries of one consumer.
            GroupUnwritten: With ``durable``, if the disk has no room or fails; the write is retried.
        """
        check_switches(durable=durable)
        if self.book.record.settings.ack == "all":
            right = "given, as an acknowledgement to this group is of all that one has"
            raise InvalidOption("consumer", None, right)
        for position in positions:
            check_position("position", position)
        self.book.check()
        with self.book.lock:
            count = self.book.machine.ack_delivered(positions)
            if count:
                self.book.acked(count, durable=durable)
        if durable:
            self.book.flush()
        if count:
            self.notify()
        return count

    def pending(self) -> PendingSummary:
        """A summary of the deliveries that are not acknowledged."""
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
        """Lists deliveries that are not acknowledged, in log order.

        Args:
            start: The first position; None for the first delivery.
            end: The last position, included; None for the last delivery.
            consumer: Lists only deliveries of this consumer; None for all.
            min_idle: Seconds; lists only deliveries made at least so long ago.
            limit: Most rows, from 1.
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

    def release(self, min_idle: float = 0.0) -> int:
        """Takes pending deliveries back from their consumers: they are due at once, for every consumer.

        Args:
            min_idle: Seconds; only deliveries made at least so long ago.

        Returns:
            Their number, without later deliveries of the same keys, which are taken back too.
        """
        self.book.check()
        with self.book.lock:
            count = self.book.machine.release(min_idle)
        self.notify()
        return count

    def info(self) -> GroupStatistics:
        """The statistics of the group, in any state."""
        with self.book.lock:
            book, machine = self.book, self.book.machine
            state = GroupState.TRIPPED if machine.tripped else book.state
            numbers = (machine.pending, book.due, machine.parked, len(machine.dying))
            totals, floor, head = dict(machine.totals), machine.floor, machine.head
            names = tuple(one.name for one in machine.consumers.listed())
            record, unsynced, redelivered = book.record, machine.unsynced, machine.redelivered
            error, due = machine.last_error, machine.first_due
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
            error,
            None if due is None else max(due - self._log.monotonic(), 0.0),
        )

    def _pending(self) -> list[GroupUnit]:
        return [one for one in self.book.machine.units.values() if one.state is DeliveryState.PENDING]

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.name!r} {self.book.state.value} at {self.book.machine.floor}>"

"""The groups of a log: creates, opens, resets and drops them; and an open group: joining, pausing, statistics."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption, LogExhausted, PenstockError, TooCostly
from publishers.groups.book import GroupBook
from publishers.groups.dead_letters import DeadLetters
from publishers.groups.delivery import (
    GroupDelivery,
    GroupStatistics,
    GroupTotals,
    PendingRow,
    PendingSummary,
)
from publishers.groups.errors import GroupCorrupted, GroupError, GroupExists, NoSuchGroup
from publishers.groups.member import GroupMember
from publishers.groups.ports import DeadLog, GroupLog
from publishers.groups.record import GROUPS_NAME, GroupRecord, replay_group
from publishers.groups.served_group import ServedGroup
from publishers.groups.settings import GroupSettings
from publishers.groups.state import DeliveryState, GroupState
from publishers.groups.unit import GroupUnit
from publishers.groups.worker import GroupWorker, WorkOptions
from publishers.journal import Journal, JournalDamaged
from publishers.model.change import time_of
from publishers.model.position import Position, Start, check_position
from publishers.options import LogOptions, check_label, check_switches, check_whole
from publishers.slots.slots import check_slot_name
from publishers.wal import FileSystem

__all__ = ["ConsumerGroup", "ConsumerGroups"]


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


_LOG: Final = logging.getLogger("penstock.groups")
_STOPPED: Final = (GroupState.LOST, GroupState.FORKED, GroupState.TRIPPED)


class ConsumerGroups:
    """The groups of one log, for its owner: ``log.groups``. Thread-safe; iterating yields their names.

    Args:
        log: The log.
        filesystem: The file system of the log.
        path: The directory of the log.
        log_id: The id of the log.
        options: The options of the log, of which ``slots`` and ``ack_sync`` count.
        insist: See `Journal`.
        open_dead: Opens the log of dead letters in a directory.
    """

    def __init__(
        self,
        log: GroupLog,
        filesystem: FileSystem,
        path: Path,
        log_id: UUID,
        options: LogOptions,
        insist: Callable[[Callable[[], None]], None],
        open_dead: Callable[[Path], DeadLog],
    ) -> None:
        self._log = log
        self._filesystem = filesystem
        self._directory = path / GROUPS_NAME
        self._log_id = log_id
        self._options = options
        self._insist = insist
        self._open_dead = open_dead
        self._groups: dict[str, ConsumerGroup] = {}
        self._journals: dict[str, Journal] = {}
        self._broken: dict[str, PenstockError] = {}
        self._making = threading.Lock()
        self._loaded = False

    def load(self) -> None:
        """Reads all journals and holds the history that the groups need.

        A damaged journal is noted and logged. While there is one, retention deletes no segment.
        """
        try:
            names = self._filesystem.listing(self._directory)
        except FileNotFoundError:
            names = []
        for name in names:
            if not name.endswith(".dead"):
                self._load(name)
        self._loaded = not self._broken

    def _load(self, name: str) -> None:
        journal = self._journal(name)
        try:
            record = replay_group(journal.load(owned=True))
            if record is not None and not record.dropped:
                self._add(journal, record)
        except JournalDamaged as error:
            self._broken[name] = GroupCorrupted(name, error.path, error.why)
        except LogExhausted:
            raise  # the log cannot be opened now
        except (OSError, ValueError, PenstockError) as error:
            self._broken[name] = GroupCorrupted(name, journal.path, f"not what was written there ({error})")
        if name in self._broken:
            _LOG.error("%s; until then retention deletes no segment", self._broken[name])

    def create(
        self,
        name: str,
        criteria: Criteria | Criterion | Iterable[Criterion] | None = None,
        *,
        since: Any = Start.LATEST,
        **options: Any,
    ) -> ConsumerGroup:
        """Creates a group, durable on return. From then on the log holds history for it, within its caps.

        Args:
            name: Its name: 1 to 64 small letters, digits, ``_`` and ``-``.
            criteria: The criteria of its changes, fixed for the life of the group; None for every change.
            since: Its position, as for ``ChangeLog.changes``; by default the next version.
            options: See `GroupSettings`.

        Raises:
            InvalidOption: If an argument is not valid.
            InvalidCriteria: If ``criteria`` are not valid.
            GroupExists: If there is a group of that name.
            PositionError: If ``since`` is beyond the end of the log, or no longer kept.
            TooCostly: If there are already as many groups as the option ``slots`` of the log allows.
            GroupUnwritten: If the disk has no room or fails; the group does not exist then.
        """
        check_slot_name(name)
        settings = GroupSettings.chosen(options)
        self._log.check()
        wanted, position = Criteria.of(criteria), self._log.find(since)
        if not wanted.criterions:
            raise InvalidOption("criteria", criteria, "some that a change can fulfil")
        with self._making:
            if name in self._broken:
                raise self._broken[name]
            if name in self._groups:
                raise GroupExists(name)
            count, most = len(self._groups) + 1, self._options.slots
            if count > most:
                raise TooCostly(
                    "slots", count, most, "to drop those that nobody needs", what="groups of the log"
                )
            journal = self._journals.get(name)
            if journal is None:
                journal = self._journal(name)
                journal.load(owned=True)
            record = GroupRecord(
                name=name, criteria=wanted.to_stored(), settings=settings, head=self._log.token(position)
            )
            group = self._add(journal, record)
            try:
                group.book.check()
                group.book.write()
            except BaseException:
                group.book.release()
                del self._groups[name]
                raise
            return group

    def open(self, name: str) -> ConsumerGroup:
        """Returns a group of the log.

        Raises:
            NoSuchGroup: If there is none of that name.
            GroupCorrupted: If its journal is damaged.
        """
        self._log.check()
        if isinstance(name, str) and name in self._broken:
            raise self._broken[name]
        found = self._groups.get(name) if isinstance(name, str) else None
        if found is None:
            raise NoSuchGroup(name, self._groups)
        return found

    def join(self, name: str, consumer: str) -> GroupMember:
        """``open(name).join(consumer)``."""
        return self.open(name).join(consumer)

    def info(self, name: str) -> GroupStatistics:
        """The statistics of a group. Errors are those of `open`."""
        return self.open(name).info()

    def seek(self, name: str, since: Any = Start.LATEST) -> GroupStatistics:
        """Moves a group to a position in any state; a lost or forked group serves again. Fences its consumers and drops pending ones.

        Args:
            name: The name of the group.
            since: Its new position, as for `create`.

        Raises:
            NoSuchGroup: If there is none of that name.
            PositionError: If ``since`` is beyond the end of the log, or no longer kept.
            GroupUnwritten: If the disk has no room or fails. Whether the new position is stored is known once the log is opened again.
        """
        group = self.open(name)
        group.book.reset(self._log.find(since))
        group.notify(moved=True)
        return group.info()

    def drop(self, name: str) -> None:
        """Drops a group; the log holds no history for it any more. Its dead letters stay on disk.

        Raises:
            NoSuchGroup: If there is none of that name.
            GroupUnwritten: If the disk has no room or fails. Whether the group exists is known once the log is opened again.
        """
        with self._making:
            group = self.open(name)
            group.book.drop()
            del self._groups[name]
        group.notify(moved=True)
        group.dead.close()

    def statistics(self, *, listed: int | None = None) -> GroupTotals:
        """The statistics of all groups.

        Args:
            listed: Most groups to list one by one; None for all.
        """
        found = sorted(self._groups.items())
        stopped = sum(group.book.state in _STOPPED for _, group in found)
        return GroupTotals(len(found), stopped, tuple(group.info() for _, group in found[:listed]))

    def settle(self) -> bool:
        """Handles timeouts and writes acknowledgements that are due; called by the housekeeping.

        Returns:
            Whether retention may delete history: whether every journal could be read.
        """
        for group in list(self._groups.values()):
            group.tick()
            group.book.settle()
        return self._loaded

    @property
    def owe(self) -> bool:
        """Whether a timeout or an acknowledgement of a group waits for the housekeeping."""
        return any(group.owes for group in list(self._groups.values()))

    def close(self) -> None:
        """Writes the acknowledgements of every group; called when the log closes."""
        for group in list(self._groups.values()):
            try:
                group.close()
            except (OSError, GroupError, PenstockError) as error:
                _LOG.warning("%s", error)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._groups))

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, name: object) -> bool:
        return name in self._groups

    def _journal(self, name: str) -> Journal:
        return Journal(self._filesystem, self._directory / name, self._log_id, self._insist)

    def _add(self, journal: Journal, record: GroupRecord) -> ConsumerGroup:
        book = GroupBook(self._log, journal, record, self._options)
        book.begin()
        directory = self._directory / f"{record.name}.dead"
        group = ConsumerGroup(self._log, book, DeadLetters(lambda: self._open_dead(directory)))
        self._journals[record.name] = journal
        self._groups[record.name] = group
        return group

"""The state of one group, in memory and in its journal.

Two locks, as in the book of slots. ``_writing`` is held while the journal is written. ``lock`` is acquired inside of it or alone,
and never held during I/O. Before either is acquired, HEAD vouches for the versions that are about to be written. A generation
is used only once it is durable.
"""

import contextlib
import logging
import threading
from typing import Final

import msgspec

from publishers.criteria.criteria import Criteria
from publishers.errors import HistoryPruned, InvalidOption, LogClosed, PenstockError, PositionError
from publishers.groups.errors import GroupForked, GroupLost, GroupPaused, GroupUnwritten, NoSuchGroup
from publishers.groups.machine import GroupMachine
from publishers.groups.ports import GroupLog
from publishers.groups.record import GROUP_FORMAT, GroupEntry, GroupRecord
from publishers.groups.state import GroupState
from publishers.journal import Journal
from publishers.model.position import Position, PositionToken
from publishers.options import LogOptions
from publishers.slots.book import ACK_EVERY, advance, wrote
from publishers.wal import Hold, HoldState

__all__ = ["GroupBook"]

_LOG: Final = logging.getLogger("penstock.groups")
_LOST_KEPT: Final = 1_000


class GroupBook:
    """One group. Thread-safe.

    Args:
        log: The log.
        journal: The journal of the group.
        record: The record in the journal, or the first one to write.
        options: The options of the log, of which ``ack_sync`` counts.

    Attributes:
        lock: Guards the machine and the other fields.
        machine: Decides the deliveries.
        record: The stored record; its head and opens are stale, because the machine keeps these.
        criteria: The criteria of the changes that the group delivers.
        state: The state of the group.
        lost: The last 1,000 positions that retention deleted before they were done.
    """

    def __init__(self, log: GroupLog, journal: Journal, record: GroupRecord, options: LogOptions) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.record: GroupRecord = record
        self.criteria: Criteria = Criteria.from_json(record.criteria)
        self.state: GroupState = GroupState.SERVING
        self.lost: dict[Position, None] = {}
        self._log = log
        self._journal = journal
        self._options = options
        self._writing = threading.Lock()
        self._gapping = threading.Lock()
        self._hold: Hold | None = None
        self._oldest: Position | None = None
        self._acks = 0
        self._since: float | None = None
        self._vouched = 0
        self._complained = False
        self._closed = False
        self.machine: GroupMachine = self._made()

    @property
    def name(self) -> str:
        """The name of the group."""
        return self.record.name

    def begin(self) -> None:
        """Holds the history that the group needs. If its position is lost or forked, sets the state instead of raising."""
        if self.record.paused:
            self.state = GroupState.TRIPPED if self.record.tripped else GroupState.PAUSED
            self.machine.paused, self.machine.tripped = True, self.record.tripped
        try:
            if self.record.lost:
                raise HistoryPruned(self._log.find("earliest"))
            self._take_hold()
            self._log.judge(self.record.head)
        except HistoryPruned as error:
            if self.record.lost:
                self._lose(error.oldest)
            else:
                with contextlib.suppress(PenstockError):  # a failed write is retried later
                    self.gap(error.oldest)
        except PositionError as error:
            self.state = GroupState.FORKED
            _LOG.error("group %s: %s", self.name, error)

    def check(self) -> None:
        """Checks that the group can be used; an operator's pause is no obstacle.

        Raises:
            GroupLost, GroupForked, NoSuchGroup: By the state of the group.
        """
        self._log.check()
        hold = self._hold
        if hold is not None and hold.state is HoldState.LOST:
            self.gap(hold.oldest or self._log.find("earliest"))
        if self.state is GroupState.LOST:
            raise GroupLost(self._oldest or self._log.find("earliest"), self.name)
        if self.state is GroupState.FORKED:
            raise GroupForked(self.name, self.record.head)
        if self.state is GroupState.DROPPED:
            raise NoSuchGroup(self.name, ())

    def check_serving(self) -> None:
        """Checks that the group can be used and that its breaker has not paused it.

        Raises:
            GroupPaused: If the breaker has paused it.
            GroupLost, GroupForked, NoSuchGroup: See `check`.
        """
        self.check()
        if self.note_tripped():
            raise GroupPaused(self.name, "more than half of its last deliveries failed")

    def note_tripped(self) -> bool:
        """Returns whether the breaker has paused the group; the first time, logs that and writes it to the journal."""
        with self.lock:
            tripped = self.machine.tripped
            noted = not tripped or self.state is not GroupState.SERVING
            if not noted:
                self.state = GroupState.TRIPPED
                self.record = msgspec.structs.replace(self.record, paused=True, tripped=True)
                _LOG.error("group %s is paused: more than half of its last deliveries failed", self.name)
        if not noted:
            with contextlib.suppress(PenstockError):  # the next write then holds the whole group
                self.write()
        return tripped

    def gap(self, oldest: Position) -> None:
        """Applies ``on_gap`` after retention deleted changes that were not done: stops, or logs it and continues behind the gap.

        Raises:
            GroupLost: If the group stops.
        """
        with self._gapping:
            hold, policy = self._hold, self.record.settings.on_gap
            with self.lock:
                passed = self.machine.floor >= oldest and self.machine.reading >= oldest
            if passed and hold is not None and hold.state is not HoldState.LOST:
                return  # another thread has handled this gap
            if policy == "error":
                self._lose(oldest)
                raise GroupLost(oldest, self.name)
            place = self._log.find("latest") if policy == "latest" else self._log.find("earliest")
            with self.lock:
                found = self.machine.prune(place, place)
                self._note_lost(found)
            if hold is not None:
                hold.release()
            self._take_hold()
            text = "group %s continues at %s: the changes before it are lost, %d of them had been read"
            _LOG.error(text, self.name, place, len(found))
            self.flush(force=True)

    def _note_lost(self, found: list[Position]) -> None:
        self.lost |= dict.fromkeys(found)
        for old in list(self.lost)[:-_LOST_KEPT]:
            del self.lost[old]
        lost = self.record.lost_changes + len(found)
        self.record = msgspec.structs.replace(self.record, lost_changes=lost)

    def _lose(self, oldest: Position) -> None:
        with self.lock:
            self.state, self._oldest = GroupState.LOST, oldest
            self.record = msgspec.structs.replace(self.record, lost=True)
        _LOG.error("%s", GroupLost(oldest, self.name))

    # --- writing --------------------------------------------------------------------------------------------------------

    def acked(self, count: int, *, durable: bool = False) -> None:
        """Counts acknowledgements; the caller holds ``lock``. They are written after ``ack_sync`` seconds or `ACK_EVERY` of them.

        Args:
            count: The number of them.
            durable: Whether the caller writes them at once, so that the housekeeping need not.
        """
        self._acks += count
        if self._since is None:
            self._since = self._log.monotonic()
            self._log.rouse()
        if not durable and self._acks >= ACK_EVERY:
            self._log.poke()

    @property
    def owes(self) -> bool:
        """Whether acknowledgements wait to be written."""
        return self._since is not None

    def settle(self) -> None:
        """Writes acknowledgements if they are due; called by the housekeeping. It logs errors of the disk and does not raise them."""
        with self.lock:
            since, acks = self._since, self._acks
        if since is None or self._writing.locked():  # a later step writes what the writer of now leaves out
            return
        late = self._log.monotonic() - since >= self._options.ack_sync
        if late or acks >= ACK_EVERY:
            try:
                self.flush()
            except (OSError, PenstockError) as error:
                if not self._complained:
                    self._complained = True
                    _LOG.warning("%s", error)
            else:
                self._complained = False

    def flush(self, *, force: bool = False) -> None:
        """Writes the changes of state durably, then releases the history that is done.

        Args:
            force: Whether to write the whole group, changed or not.

        Raises:
            GroupUnwritten: If the disk has no room or fails; the write is retried.
            LogFailed: If the log has failed.
        """
        while not self._flushed(force=force):
            pass  # newer versions were read meanwhile, and the log must vouch for them first

    def _flushed(self, *, force: bool) -> bool:
        if self.state in (GroupState.FORKED, GroupState.DROPPED):
            return True
        self._vouch()
        with self._writing:
            with self.lock:
                if self.record.dropped:
                    return True
                machine, hold = self.machine, self._hold  # read once: a reset may replace them
                if not force and not machine.unsynced:
                    self._acks, self._since = 0, None
                    return True
                head, opened, closed = machine.news()
                if wrote(head) > self._vouched:
                    return False
                floor, acks = machine.floor, self._acks
                delta = GroupEntry(
                    head=self._place(head),
                    opened=opened,
                    closed=[(place.version, place.index) for place in closed],
                    dead=self.record.dead,
                    lost_changes=self.record.lost_changes,
                )
                payload = msgspec.json.encode(delta)
                # The whole record lists every open position, so it is built only if it is written.
                whole = self._whole() if force or self._journal.replaces(payload) else None
            self._append(_whole_entry(whole) if force else payload, whole)
            with self.lock:
                machine.stored(head, opened, closed)
                self._acks -= acks
                self._since = self._log.monotonic() if self._acks else None
        with contextlib.suppress(InvalidOption):  # the hold was released meanwhile
            advance(hold, floor)
        return True

    def raise_generation(self) -> int:
        """Raises the generation and returns it; it is durable on return.

        Raises:
            GroupUnwritten: If the disk has no room or fails.
        """
        with self.lock:
            generation = self.record.generation + 1
            self.record = msgspec.structs.replace(self.record, generation=generation)
        self.write()
        return generation

    def write(self) -> None:
        """Writes the whole group durably.

        Raises:
            NoSuchGroup: If it was dropped.
            GroupUnwritten, LogFailed: As for `flush`.
        """
        written = False
        while not written:
            self._vouch()
            with self._writing:
                with self.lock:
                    if self.record.dropped:
                        raise NoSuchGroup(self.name, ())
                    machine = self.machine
                    head, opened, closed = machine.news()
                    written = wrote(head) <= self._vouched
                    record = self._whole()
                if written:
                    self._append(_whole_entry(record), record)
                    with self.lock:
                        machine.stored(head, opened, closed)

    def reset(self, position: Position) -> None:
        """Restarts the group at a position with a new generation, which fences all consumers.

        Raises:
            GroupUnwritten: If the disk has no room or fails. Whether the reset is stored is known once the log is opened again.
        """
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()
        with self.lock:
            self.record = msgspec.structs.replace(
                self.record,
                head=self._log.token(position),
                opens=[],
                lost=False,
                generation=self.record.generation + 1,
            )
            self.machine = self._made()
            self.machine.paused, self.machine.tripped = self.record.paused, self.record.tripped
            self.state = GroupState.PAUSED if self.record.paused else GroupState.SERVING
            self._oldest = None
        self._take_hold()
        self.write()

    def drop(self) -> None:
        """Drops the group durably and releases its history."""
        with self._writing:
            record = msgspec.structs.replace(self.record, dropped=True, opens=[])
            self._append(_whole_entry(record), record)
            with self.lock:
                self.state = GroupState.DROPPED
                self.record = msgspec.structs.replace(self.record, dropped=True)
        if self._hold is not None:
            self._hold.release()

    def close(self) -> None:
        """Writes the last changes of state, and refuses every later write, because another process may then own the log."""
        try:
            self.flush()
        finally:
            with self._writing:
                self._closed = True

    def release(self) -> None:
        """Releases the history; for a group that could not be created."""
        if self._hold is not None:
            self._hold.release()

    def _vouch(self) -> None:
        with self.lock:
            newest = wrote(self.machine.stored_head)
        if newest > self._vouched:
            self._log.vouch(newest)
            self._vouched = max(self._vouched, newest)

    def _whole(self) -> GroupRecord:
        machine = self.machine
        return msgspec.structs.replace(
            self.record, head=self._place(machine.stored_head), opens=machine.opens()
        )

    def _place(self, head: Position) -> str:
        return self.record.head if self.state is GroupState.LOST else self._log.token(head)

    def _append(self, payload: bytes, record: GroupRecord | None) -> None:
        if self._closed:
            raise LogClosed
        try:
            self._journal.append(payload, lambda: _whole_entry(record))
        except OSError as error:
            raise GroupUnwritten(self.name, error.strerror or str(error)) from error

    def _made(self) -> GroupMachine:
        record = self.record
        head = PositionToken.parse(record.head).position
        return GroupMachine(
            record.name,
            record.settings,
            head,
            record.opens,
            generation=record.generation,
            clock=self._log.clock,
        )

    def _take_hold(self) -> None:
        settings = self.record.settings
        self._hold = self._log.hold(
            f"group:{self.name}",
            self.machine.floor,
            keep_bytes=settings.keep_bytes,
            keep_age=settings.keep_age,
            on_lost=lambda _hold: self._write_loss(),
        )

    def _write_loss(self) -> None:
        with contextlib.suppress(PenstockError):
            self.check()

    def count_dead(self) -> None:
        """Counts a dead letter; the caller holds ``lock``."""
        self.record = msgspec.structs.replace(self.record, dead=self.record.dead + 1)

    @property
    def due(self) -> int:
        """Number of deliveries that are due for redelivery; the caller holds ``lock``."""
        machine = self.machine
        return len(machine.units) - machine.pending - machine.parked - len(machine.dying)


def _whole_entry(record: GroupRecord | None) -> bytes:
    return msgspec.json.encode(GroupEntry(group=record, format=GROUP_FORMAT))

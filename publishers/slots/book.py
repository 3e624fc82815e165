"""What is known of the slots of a log, in memory and in the journal.

Two locks. ``_writing`` is held by the thread that writes the journal; ``lock``, taken inside of it or alone, is held for
no I/O, so an acknowledgement never waits for the disk. HEAD is made to cover what is to be written before either is taken: the
log may have to sync for it, and so to run subscribers, which may acknowledge.

What the journal records is installed here after it is durable: a generation before it is used, a seek before it counts. Only
what was acknowledged is here first, and a hold follows it when it is durable.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Final

import msgspec

from publishers.criteria.criteria import Criteria
from publishers.errors import (
    FormatTooNew,
    HistoryPruned,
    InvalidOption,
    LogUnreadable,
    PenstockError,
    PositionError,
    TooCostly,
)
from publishers.journal import Journal, JournalDamaged
from publishers.model.position import Position, PositionToken, Start
from publishers.options import LogOptions
from publishers.slots.entry import SlotEntry
from publishers.slots.errors import SlotsCorrupted, SlotsUnwritten
from publishers.slots.ports import PlaceLog
from publishers.slots.record import FORMAT, JournalEntry, SlotPlace, SlotRecord, replay
from publishers.slots.slot import Slot
from publishers.slots.state import SlotState
from publishers.wal import Hold

__all__ = ["SlotBook", "advance", "wrote"]

_LOG: Final = logging.getLogger("penstock.slots")


class SlotBook:
    """The slots of one log, and their journal. Thread-safe.

    Args:
        log: The log whose places they are.
        journal: Where they are written.
        options: ``slots``, ``slot_journal_bytes``, ``ack_sync`` and ``ack_every``.

    Attributes:
        kept: The slots by their names; changed by the holder of ``_writing``, under the lock.
        lock: For what is known of them.
        broken: Why the journal cannot be used; None if it can.
        loaded: Whether it was read, so that its slots hold what they need.
        next_id: Of the next slot that is made.
    """

    def __init__(self, log: PlaceLog, journal: Journal, options: LogOptions) -> None:
        self.kept: dict[str, SlotEntry] = {}
        self.lock = threading.Lock()
        self.broken: PenstockError | None = None
        self.loaded = False
        self.next_id = 1
        self._log = log
        self._journal = journal
        self._options = options
        self._writing = threading.Lock()
        self._moved: set[SlotEntry] = set()  # whose place, or loss, is not in the journal yet
        self._acks = 0  # since the journal was written
        self._since: float | None = None  # when the first of them came
        self._newest = 0  # no place lies behind more than this version
        self._vouched = 0  # what HEAD covers, as far as it was asked here
        self._nbytes = 0  # of the definitions, more or less: a place takes a few bytes more or less
        self._complained = False

    @property
    def journal_bytes(self) -> int:
        """Bytes of the journal, of which there are two."""
        return self._journal.nbytes

    # --- what was acknowledged ---------------------------------------------------------------------------------------

    def move(self, kept: SlotEntry, place: Position) -> bool:
        """Takes an acknowledgement; under the lock. Answers whether there are so many that they are to be written."""
        kept.place = place
        self._newest = max(self._newest, wrote(place))
        self._acks += 1
        self._note(kept)
        return self._acks >= self._options.ack_every

    def add(self, kept: SlotEntry) -> None:
        """A slot is in the journal; under the lock."""
        self.kept[kept.name] = kept
        self.next_id = max(self.next_id, kept.record.id + 1)
        self._nbytes += len(msgspec.json.encode(kept.record))

    def remove(self, kept: SlotEntry) -> None:
        """A slot is not in the journal any more; under the lock."""
        del self.kept[kept.name]
        self._moved.discard(kept)
        self._nbytes -= len(msgspec.json.encode(kept.record))

    def unsynced(self, kept: SlotEntry) -> bool:
        """Whether something of a slot is not in the journal yet; under the lock."""
        return kept in self._moved

    def forget(self, kept: SlotEntry) -> None:
        """What was acknowledged of a slot does not count any more; under the lock."""
        self._moved.discard(kept)

    def _note(self, kept: SlotEntry) -> None:
        self._moved.add(kept)
        if self._since is None:
            self._since = self._log.monotonic()

    def load(self) -> None:
        """Reads the journal, and holds what its slots need. If it is damaged the log goes on, and slots are refused.

        Nothing may be deleted from the log before.
        """
        try:
            for record in replay(self._journal.load()).values():
                self._adopt(record)
        except JournalDamaged as error:
            self.broken = SlotsCorrupted(error.path, error.why)
        except FormatTooNew as error:
            self.broken = error
        except OSError as error:
            self.broken = LogUnreadable(self._journal.path, error.strerror or str(error))
        except (ValueError, PenstockError) as error:
            self.broken = SlotsCorrupted(self._journal.path, f"not what was written there ({error})")
        if self.broken is not None:
            _LOG.error("%s; until then retention deletes no segment", self.broken)
        self.loaded = self.broken is None

    def settle(self) -> bool:
        """Writes what was acknowledged, if it is time; for the housekeeping. It never raises for the disk.

        Returns:
            Whether history may be deleted: whether every slot holds what it needs.
        """
        with self.lock:
            since, acks = self._since, self._acks
        if self.loaded and since is not None:
            late = self._log.monotonic() - since >= self._options.ack_sync
            if late or acks >= self._options.ack_every:
                try:
                    self.flush()
                except (OSError, PenstockError) as error:
                    if not self._complained:
                        self._complained = True
                        _LOG.warning("%s", error)
                else:
                    self._complained = False
        return self.loaded

    def flush(self) -> None:
        """Writes what was acknowledged, durably, and lets go of the history behind it.

        Raises:
            SlotsUnwritten: If the disk has no room or fails; it is tried again.
            LogFailed: If the log has failed.
        """
        written = not self._moved
        while not written:
            with self.journalling():
                try:
                    written = self._write_places()
                finally:
                    with self.lock:
                        self._since = self._log.monotonic() if self._moved else None

    def close(self) -> None:
        """Writes what was acknowledged. Errors are those of `flush`."""
        if self.loaded:
            self.flush()

    # --- writing --------------------------------------------------------------------------------------------------------

    def raised(self, kept: SlotEntry, place: str) -> SlotRecord:
        """The record of a slot at a place in its next generation."""
        generation = kept.record.generation + 1
        return msgspec.structs.replace(kept.record, generation=generation, place=place, lost=False)

    def place_of(self, kept: SlotEntry) -> str:
        """The text of its place, or of the last one that HEAD covers."""
        place = kept.place
        good = kept.state is not SlotState.FORKED and wrote(place) <= self._vouched
        return self._log.token(place) if good else kept.record.place

    @contextlib.contextmanager
    def journalling(self, position: Position | None = None) -> Iterator[None]:
        """Holds ``_writing``, after HEAD was made to cover a place and what was acknowledged before."""
        with self.lock:
            if position is not None:
                self._newest = max(self._newest, wrote(position))
            newest = self._newest
        if newest > self._vouched:
            self._log.vouch(newest)
            self._vouched = max(self._vouched, newest)
        with self._writing:
            yield

    def append(self, entry: JournalEntry) -> None:
        """Appends to the journal, durably; for the holder of ``_writing``.

        Raises:
            SlotsUnwritten: If the disk has no room or fails.
        """
        try:
            self._journal.append(msgspec.json.encode(entry), lambda: self._everything(entry))
        except OSError as error:
            raise SlotsUnwritten(error.strerror or str(error)) from error

    def _everything(self, entry: JournalEntry) -> bytes:
        now = JournalEntry(slots=[kept.record for kept in self.kept.values()])
        merged = replay(map(msgspec.json.encode, (now, entry)))
        return msgspec.json.encode(JournalEntry(slots=list(merged.values()), format=FORMAT))

    def _write_places(self) -> bool:
        """Writes the places that HEAD covers; answers whether none was left out, as one that came while the log vouched is."""
        with self.lock:
            self._acks = 0
            whole = not any(self._vouched < wrote(kept.place) <= self._newest for kept in self._moved)
            places = {kept: kept.place for kept in self._moved if wrote(kept.place) <= self._vouched}
            entries = [
                SlotPlace(kept.record.id, self._log.token(place), kept.state is SlotState.LOST)
                for kept, place in places.items()
            ]
        if not entries:
            return whole
        self.append(JournalEntry(places=entries))
        for one, (kept, place) in zip(entries, places.items(), strict=True):
            with self.lock:
                kept.record = msgspec.structs.replace(kept.record, place=one.place, lost=one.lost)
                if kept.place == place and one.lost is (kept.state is SlotState.LOST):
                    self._moved.discard(kept)
            advance(kept.hold, place)
        return whole

    def check_room(self, record: SlotRecord) -> None:
        """Refuses a new slot that is above a bound.

        Raises:
            TooCostly: If there are too many, or they are too large together.
            InvalidOption: If its criteria cannot be written.
        """
        count, most = len(self.kept) + 1, self._options.slots
        if count > most:
            raise TooCostly("slots", count, most, "to drop those that nobody needs", what="slots of the log")
        try:
            nbytes = self._nbytes + len(msgspec.json.encode(record))
        except UnicodeEncodeError:
            raise InvalidOption("criteria", record.criteria, "some whose texts UTF-8 can hold") from None
        most = self._options.slot_journal_bytes
        if nbytes > most:
            cheaper = "fewer criteria, or to drop slots that nobody needs"
            raise TooCostly("slot_journal_bytes", nbytes, most, cheaper, what="bytes of all slots")

    # --- history --------------------------------------------------------------------------------------------------------

    def hold(self, kept: SlotEntry, name: str, position: Position) -> Hold:
        """Holds history for a slot.

        Raises:
            HistoryPruned: If it is no longer kept.
            InvalidOption: If a cap is out of its range.
        """
        return self._log.hold(
            f"slot:{name}",
            position,
            keep_bytes=kept.record.keep_bytes,
            keep_age=kept.record.keep_age,
            on_lost=lambda _hold: self._lose(kept),
        )

    def _lose(self, kept: SlotEntry) -> None:
        """Its history is gone: notes that for the journal, and ends the subscription of its consumer."""
        with self.lock:
            kept.look()
            if kept.state is not SlotState.LOST:
                return
            self._note(kept)
            error, consumer = kept.refusal(), kept.consumer
        _LOG.error("%s", error)
        if isinstance(consumer, Slot):
            consumer.end(error)

    def _adopt(self, record: SlotRecord) -> None:
        """Takes a slot as the journal has it."""
        position = PositionToken.parse(record.place).position
        kept = SlotEntry(record, Criteria.from_json(record.criteria), position)
        try:
            if record.lost:
                raise HistoryPruned(self._log.find(Start.EARLIEST))
            self._log.judge(record.place)
            kept.hold = self.hold(kept, record.name, position)
        except HistoryPruned as error:
            kept.state, kept.oldest = SlotState.LOST, error.oldest
        except PositionError as error:
            kept.state = SlotState.FORKED
            _LOG.error("slot %s: %s", record.name, error)
        self.add(kept)


def wrote(position: Position) -> int:
    """The newest version with a change before a position."""
    return position.version if position.index else position.version - 1


def advance(hold: Hold | None, position: Position) -> None:
    """Lets go of the history before a place that is durable now."""
    if hold is not None and hold.position < position:
        with contextlib.suppress(HistoryPruned):  # it is lost: ``_lose`` notes that
            hold.move(position)

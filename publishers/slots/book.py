"""The slots of a log, in memory and in the journal.

Two locks: ``writing`` is held by the thread that writes the journal or opens or closes a slot. ``lock``, acquired alone or inside ``writing``, is never held
during I/O, so an acknowledgement does not wait for the disk. Before either is acquired, HEAD is made to cover the positions to
write: the log may sync for that, and so run subscribers, which may acknowledge.

A change in the journal takes effect here once it is durable: a new generation, a seek. Acknowledgements take effect at once; their
hold on history follows when they are durable.
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
    LogExhausted,
    LogUnreadable,
    PenstockError,
    PositionError,
    TooCostly,
)
from publishers.journal import Journal, JournalDamaged
from publishers.model.position import Position, PositionToken, Start
from publishers.options import MIB, LogOptions
from publishers.slots.errors import SlotsCorrupted, SlotsUnwritten
from publishers.slots.ports import PlaceLog
from publishers.slots.record import FORMAT, JournalEntry, SlotPlace, SlotRecord, replay
from publishers.slots.slot import Slot, SlotEntry
from publishers.slots.state import SlotState
from publishers.wal import Hold

__all__ = ["ACK_EVERY", "SLOT_JOURNAL_BYTES", "SlotBook", "advance", "hold_of", "wrote"]

_LOG: Final = logging.getLogger("penstock.slots")

ACK_EVERY: Final = 1_000
"""Acknowledgements that are made durable before ``ack_sync``: so many are delivered again after a crash at most, whatever that time is."""

SLOT_JOURNAL_BYTES: Final = 16 * MIB
"""Most bytes of the records of all slots, criteria included. Each of their two journal files grows to four times the size of the records,
or to 64 KiB if that is more, before it is rewritten. A thousand slots have 16 KiB each, which is far more than criteria of people have."""


class SlotBook:
    """The slots of one log, and their journal. Thread-safe.

    Args:
        log: The log of the slots.
        journal: Their journal.
        options: ``slots`` and ``ack_sync``.

    Attributes:
        kept: The slots by name; changed by the holder of ``writing``, under the lock.
        lock: Guards the slots.
        writing: Held from the check of a slot's state until its next state is stored.
        broken: The error for which the journal cannot be used; None if it can.
        loaded: Whether the journal was read, so its slots hold their history.
        next_id: The id of the next new slot.
    """

    def __init__(self, log: PlaceLog, journal: Journal, options: LogOptions) -> None:
        self.kept: dict[str, SlotEntry] = {}
        self.lock: threading.Lock = threading.Lock()
        self.broken: PenstockError | None = None
        self.loaded: bool = False
        self.next_id: int = 1
        self._log = log
        self._journal = journal
        self._options = options
        self.writing: threading.Lock = threading.Lock()
        self._moved: set[SlotEntry] = set()  # slots whose position, or loss, is not in the journal yet
        self._acks = 0  # since the last write of the journal
        self._since: float | None = None  # the time of the first of them
        self._newest = 0  # the newest version before any position
        self._vouched = 0  # a version that HEAD is known to cover
        self._nbytes = 0  # of the definitions, approximately
        self._complained = False

    @property
    def journal_bytes(self) -> int:
        """Bytes of one of the two copies of the journal."""
        return self._journal.nbytes

    # --- acknowledgements --------------------------------------------------------------------------------------------

    def move(self, kept: SlotEntry, place: Position) -> bool:
        """Applies an acknowledgement, under the lock; returns whether `ACK_EVERY` requires a write now."""
        kept.place = place
        self._newest = max(self._newest, wrote(place))
        self._acks += 1
        self._note(kept)
        return self._acks >= ACK_EVERY

    def add(self, kept: SlotEntry) -> None:
        """Adds a slot that is in the journal; under the lock."""
        self.kept[kept.name] = kept
        self.next_id = max(self.next_id, kept.record.id + 1)
        self._nbytes += len(msgspec.json.encode(kept.record))

    def remove(self, kept: SlotEntry) -> None:
        """Removes a slot that is no longer in the journal; under the lock."""
        del self.kept[kept.name]
        self._moved.discard(kept)
        self._nbytes -= len(msgspec.json.encode(kept.record))

    def unsynced(self, kept: SlotEntry) -> bool:
        """Whether the position of a slot is not in the journal yet; under the lock."""
        return kept in self._moved

    def forget(self, kept: SlotEntry) -> None:
        """Drops the unwritten acknowledgements of a slot; under the lock."""
        self._moved.discard(kept)

    def _note(self, kept: SlotEntry) -> None:
        self._moved.add(kept)
        if self._since is None:
            self._since = self._log.monotonic()
            self._log.rouse()

    def load(self) -> None:
        """Reads the journal, and holds the history of its slots. If it is damaged, the log works and slots are refused.

        Must be called before retention deletes anything.
        """
        try:
            for record in replay(self._journal.load(owned=True)).values():
                self._adopt(record)
        except JournalDamaged as error:
            self.broken = SlotsCorrupted(error.path, error.why)
        except FormatTooNew as error:
            self.broken = error
        except OSError as error:
            self.broken = LogUnreadable(self._journal.path, error.strerror or str(error))
        except LogExhausted:
            raise  # the log cannot be opened now
        except (ValueError, PenstockError) as error:
            self.broken = SlotsCorrupted(self._journal.path, f"not what was written there ({error})")
        if self.broken is not None:
            _LOG.error("%s; until then retention deletes no segment", self.broken)
        self.loaded = self.broken is None

    @property
    def owes(self) -> bool:
        """Whether acknowledgements wait to be written."""
        return self._since is not None

    def settle(self) -> bool:
        """Writes acknowledgements that are due; called by the housekeeping. Never raises an error of the disk.

        Returns:
            Whether retention may delete history: whether every slot holds its history.
        """
        with self.lock:
            since, acks = self._since, self._acks
        if self.loaded and since is not None:
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
        return self.loaded

    def flush(self) -> None:
        """Writes acknowledgements durably, and releases the history before them.

        Raises:
            SlotsUnwritten: If the disk is full or fails; the housekeeping retries.
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
        """Writes acknowledgements; raises as `flush` does."""
        if self.loaded:
            self.flush()

    # --- writing --------------------------------------------------------------------------------------------------------

    def raised(self, kept: SlotEntry, place: str, least: int = 1) -> SlotRecord:
        """The record of a slot at a position in its next generation, from ``least`` on."""
        generation = max(kept.record.generation + 1, least)
        return msgspec.structs.replace(kept.record, generation=generation, place=place, lost=False)

    def place_of(self, kept: SlotEntry) -> str:
        """The token of its position, or of the last position that HEAD covers."""
        place = kept.place
        good = kept.state is not SlotState.FORKED and wrote(place) <= self._vouched
        return self._log.token(place) if good else kept.record.place

    @contextlib.contextmanager
    def journalling(self, position: Position | None = None) -> Iterator[None]:
        """Holds ``writing``, after HEAD was made to cover a position and all acknowledgements."""
        with self.lock:
            if position is not None:
                self._newest = max(self._newest, wrote(position))
            newest = self._newest
        if newest > self._vouched:
            self._log.vouch(newest)
            self._vouched = max(self._vouched, newest)
        with self.writing:
            yield

    def append(self, entry: JournalEntry) -> None:
        """Appends to the journal, durably; for the holder of ``writing``.

        Raises:
            SlotsUnwritten: If the disk is full or fails.
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
        """Writes the positions that HEAD covers; returns whether these were all. A concurrent acknowledgement is left out."""
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
        """Checks the bounds for a new slot.

        Raises:
            TooCostly: If there are too many slots, or they are too large together.
            InvalidOption: If its criteria cannot be encoded.
        """
        count, most = len(self.kept) + 1, self._options.slots
        if count > most:
            raise TooCostly("slots", count, most, "to drop those that nobody needs", what="slots of the log")
        try:
            nbytes = self._nbytes + len(msgspec.json.encode(record))
        except UnicodeEncodeError:
            raise InvalidOption("criteria", record.criteria, "some whose texts UTF-8 can hold") from None
        if nbytes > SLOT_JOURNAL_BYTES:
            cheaper = "fewer criteria, or to drop slots that nobody needs"
            raise TooCostly(
                "slot_journal_bytes", nbytes, SLOT_JOURNAL_BYTES, cheaper, what="bytes of all slots"
            )

    # --- history --------------------------------------------------------------------------------------------------------

    def hold(self, kept: SlotEntry, name: str, position: Position) -> Hold:
        """Holds history for a slot.

        Raises:
            HistoryPruned: If the history was deleted.
            InvalidOption: If a cap is out of its range.
        """
        return self._log.hold(
            hold_of(name),
            position,
            keep_bytes=kept.record.keep_bytes,
            keep_age=kept.record.keep_age,
            on_lost=lambda _hold: self._lose(kept),
        )

    def _lose(self, kept: SlotEntry) -> None:
        """Notes that the history of a slot was deleted, and ends the subscription of its consumer."""
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
        """Adds a slot from the journal."""
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


def hold_of(name: str) -> str:
    """Returns the name of the hold of a slot."""
    return f"slot:{name}"


def advance(hold: Hold | None, position: Position) -> None:
    """Releases the history before a durable position."""
    if hold is not None and hold.position < position:
        with contextlib.suppress(HistoryPruned):  # the hold is lost, which ``_lose`` notes
            hold.move(position)

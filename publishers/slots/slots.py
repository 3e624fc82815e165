"""The slots of a log: create, open, move, pause and drop them."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from flow.misuse import names_arguments
from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import HistoryPruned, InvalidOption, LogForked, PenstockError
from publishers.model.position import Position, Start
from publishers.options import check_label, check_switches
from publishers.slots.book import SlotBook, advance, hold_of
from publishers.slots.errors import Fenced, NoSuchSlot, SlotExists
from publishers.slots.ports import PlaceLog
from publishers.slots.record import Granularity, JournalEntry, SlotRecord
from publishers.slots.slot import Slot, SlotEntry
from publishers.slots.state import SlotEvent, SlotState, SlotStatistics, SlotTotals, state_after
from publishers.wal import HoldState, HoldStatistics

__all__ = ["Slots", "check_slot_name"]

_NAME: Final = re.compile(r"[a-z0-9_-]{1,64}")


class Slots:
    """The slots of one log, for its owner: ``log.slots``. Thread-safe.

    Iterating yields their names.

    Args:
        log: The log of the slots.
        book: The slots in memory and in the journal.

    Attributes:
        book: The same; for the log.
    """

    def __init__(self, log: PlaceLog, book: SlotBook) -> None:
        self.book = book
        self._log = log

    # --- the slots ---------------------------------------------------------------------------------------------------

    @names_arguments(Criterion)
    def create(
        self,
        name: str,
        criteria: Criteria | Criterion | Iterable[Criterion] | None = None,
        *,
        since: Any = Start.LATEST,
        copy_from: str | None = None,
        granularity: Granularity = "transaction",
        paused: bool = False,
        keep_bytes: int | None = None,
        keep_age: float | None = None,
    ) -> SlotStatistics:
        """Creates a slot; durable when it returns. From now on history is held for it, within its caps.

        Args:
            name: Its name: 1 to 64 small letters, digits, ``_`` and ``-``.
            criteria: Selects its changes; fixed. None for everything, or with ``copy_from`` for the criteria of that slot.
            since: Its position, as for ``ChangeLog.changes``; the next version by default.
            copy_from: A slot whose position is used instead of ``since``.
            granularity: ``"change"`` stores positions inside a transaction, for huge transactions.
            paused: Whether it delivers nothing until `resume`, for example until its consumer has the state.
            keep_bytes: Most bytes of the log that are kept for it; None for the option ``slot_keep_bytes``.
            keep_age: Most seconds for which a closed segment is kept for it; None for ``slot_keep_age``.

        Raises:
            InvalidOption: If an argument is invalid.
            InvalidCriteria: If the criteria are invalid.
            SlotExists: If the name is in use.
            NoSuchSlot, SlotLost, SlotForked: If ``copy_from`` names no slot, or one that is lost or forked.
            PositionError: If ``since`` is beyond the end of the log, or no longer kept.
            TooCostly: If the log has ``slots`` of them, or their definitions exceed 16 MiB.
            SlotsUnwritten: If the disk is full or fails; then the slot was not created.
        """
        check_slot_name(name)
        if granularity not in ("transaction", "change"):
            raise InvalidOption("granularity", granularity, "'transaction' or 'change'")
        check_switches(paused=paused)
        self._check()
        wanted, position = self._beginning(criteria, since, copy_from)
        with self.book.journalling(position):
            if name in self.book.kept:
                raise SlotExists(name)
            record = SlotRecord(
                id=self.book.next_id,
                name=name,
                place=self._log.token(position),
                criteria=wanted.to_stored(),
                granularity=granularity,
                paused=paused,
                keep_bytes=keep_bytes,
                keep_age=keep_age,
            )
            kept = SlotEntry(record, wanted, position)
            kept.hold = self.book.hold(kept, name, position)
            try:
                self.book.check_room(record)
                self.book.append(JournalEntry(slots=[record]))
            except BaseException:
                kept.hold.release()
                raise
            with self.book.lock:
                self.book.add(kept)
        return self.info(name)

    def open(
        self,
        name: str,
        *,
        take_over: bool = False,
        owner: str | None = None,
        generation: int | None = None,
        least_generation: int = 1,
    ) -> Slot:
        """Opens a slot with a new generation, which is durable when it returns.

        Args:
            name: The slot.
            take_over: Whether to fence the consumer that has it open: its subscription ends with ``Fenced``, and its calls raise it.
            owner: Names the consumer in ``SlotBusy``, in 1 to 256 printable characters; the process by default.
            generation: The generation of an interrupted opening to continue; refused if the slot was opened since.
            least_generation: The least new generation; for a consumer whose target has those of a slot that was created before this one.

        Raises:
            NoSuchSlot: If there is no such slot.
            Fenced: If ``generation`` is not the last one.
            SlotBusy: If a consumer has it open.
            SlotLost, SlotForked: If its position cannot be read: bootstrap the consumer, then ``seek``.
            SlotsUnwritten: If the disk is full or fails; nothing has changed.
        """
        check_switches(take_over=take_over)
        if owner is not None:
            check_label("owner", owner)
        self._check()
        with self.book.journalling():
            kept = self._find(name)
            if generation is not None and generation != kept.record.generation:
                raise Fenced(name, generation, kept.record.generation)
            after = self._checked(kept, SlotEvent.TAKE_OVER if take_over else SlotEvent.OPEN)
            record = self.book.raised(kept, self.book.place_of(kept), least_generation)
            self.book.append(JournalEntry(slots=[record]))
            slot = Slot(self, self._log, kept, record.generation)
            with self.book.lock:
                before, kept.consumer = kept.consumer, slot
                kept.record, kept.state = record, after
                kept.owner = owner or f"process {os.getpid()}"
        _fence(before, kept)
        return slot

    def seek(self, name: str, since: Any = Start.LATEST) -> SlotStatistics:
        """Moves a slot that is not open; a lost or forked slot is usable again.

        Args:
            name: The slot.
            since: Its new position, as for `create`.

        Raises:
            NoSuchSlot: If there is no such slot.
            SlotBusy: If a consumer has it open; use `Slot.seek`.
            PositionError: If ``since`` is beyond the end of the log, or no longer kept.
            SlotsUnwritten: If the disk is full or fails; nothing has changed.
        """
        self._check()
        position = self._log.find(since)
        with self.book.journalling(position):
            self._relocate(self._find(name), position, SlotEvent.RESET)
        return self.info(name)

    def drop(self, name: str) -> None:
        """Drops a slot that is not open, and releases its hold on history.

        Raises:
            NoSuchSlot: If there is no such slot.
            SlotBusy: If a consumer has it open.
            SlotsUnwritten: If the disk is full or fails; after reopening the log, the slot may exist or not.
        """
        self._check()
        with self.book.journalling():
            kept = self._find(name)
            after = self._checked(kept, SlotEvent.DROP)
            self.book.append(JournalEntry(dropped=[kept.record.id]))
            with self.book.lock:
                self.book.remove(kept)
                kept.state = after
            if kept.hold is not None:
                kept.hold.release()

    def rename(self, old: str, new: str) -> None:
        """Renames a slot; an open slot stays open.

        Raises:
            InvalidOption: If ``new`` is invalid.
            NoSuchSlot: If there is no slot ``old``.
            SlotExists: If there is a slot ``new``.
            SlotsUnwritten: If the disk is full or fails; nothing has changed.
        """
        check_slot_name(new)
        self._check()
        with self.book.journalling():
            kept = self._find(old)
            if new in self.book.kept:
                raise SlotExists(new)
            with self.book.lock:
                kept.look()
            held = kept.hold
            good = held is not None and kept.state is not SlotState.LOST
            hold = self.book.hold(kept, new, held.position) if held is not None and good else None
            record = msgspec.structs.replace(kept.record, name=new, place=self.book.place_of(kept))
            try:
                self.book.append(JournalEntry(slots=[record]))
            except BaseException:
                if hold is not None:
                    hold.release()
                raise
            with self.book.lock:
                self.book.kept[new] = self.book.kept.pop(old)
                kept.record, kept.hold = record, hold
            if held is not None:
                held.release()

    def pause(self, name: str) -> bool:
        """Stops the deliveries of a slot until `resume`, also over restarts; returns whether that changed anything.

        Raises:
            NoSuchSlot: If there is no such slot.
            SlotsUnwritten: If the disk is full or fails; nothing has changed.
        """
        return self.set_paused(name, paused=True)

    def resume(self, name: str) -> bool:
        """Resumes a slot; returns whether it was paused. Raises as `pause` does."""
        return self.set_paused(name, paused=False)

    def info(self, name: str) -> SlotStatistics:
        """The statistics of a slot.

        Raises:
            NoSuchSlot: If there is no such slot.
        """
        self._check()
        with self.book.lock:
            kept = self._find(name)
        return self._statistics_of(kept, {one.name: one for one in self._log.holds(hold_of(name))})

    def statistics(self, *, listed: int | None = None) -> SlotTotals:
        """The statistics of all slots; empty if their journal is damaged.

        Args:
            listed: Most slots in ``SlotTotals.listed``; None for all.
        """
        holds = {one.name: one for one in self._log.holds()}
        with self.book.lock:
            found = sorted(self.book.kept.values(), key=lambda kept: kept.name)
            for kept in found:
                kept.look()
            lost = sum(kept.state in (SlotState.LOST, SlotState.FORKED) for kept in found)
        listed_slots = tuple(self._statistics_of(kept, holds) for kept in found[:listed])
        return SlotTotals(len(found), lost, self.book.journal_bytes, listed_slots)

    def __iter__(self) -> Iterator[str]:
        self._check()
        with self.book.lock:
            return iter(sorted(self.book.kept))

    def __len__(self) -> int:
        return len(self.book.kept)

    def __contains__(self, name: object) -> bool:
        return name in self.book.kept

    # --- open slots ----------------------------------------------------------------------------------------------

    def check(self, slot: Slot) -> None:
        """See `SlotKeeper.check`."""
        self._check()
        with self.book.lock:
            self._check_current(slot)

    def store(self, slot: Slot, position: Position, *, durable: bool) -> bool:
        """See `SlotKeeper.store`."""
        self._check()
        with self.book.lock:
            kept = self._check_current(slot)
            stored = position if kept.record.granularity == "change" else Position(position.version)
            if position < kept.place:
                return False
            enough = False
            if stored > kept.place:
                enough = self.book.move(kept, stored)
        if durable:
            self.book.flush()
        elif enough:
            self._log.poke()
        return True

    def relocate(self, slot: Slot, since: Any) -> Position:
        """See `SlotKeeper.relocate`."""
        self.check(slot)
        position = self._log.find(since)
        with self.book.journalling(position):
            with self.book.lock:
                kept = self._check_current(slot)
            self._relocate(kept, position, SlotEvent.SEEK)
            slot.generation = kept.record.generation
        return position

    def set_paused(self, name: str, *, paused: bool) -> bool:
        """See `SlotKeeper.set_paused`."""
        self._check()
        with self.book.journalling():
            kept = self._find(name)
            changed = kept.record.paused is not paused
            if changed:
                record = msgspec.structs.replace(kept.record, paused=paused, place=self.book.place_of(kept))
                self.book.append(JournalEntry(slots=[record]))
                with self.book.lock:
                    kept.record = record
        consumer = kept.consumer
        if changed and isinstance(consumer, Slot):
            consumer.hold_back(paused=paused)
        return changed

    def leave(self, slot: Slot) -> None:
        """See `SlotKeeper.leave`."""
        try:
            self._log.check()
        except LogForked:
            return  # the slot belongs to the parent process
        except PenstockError:
            pass  # acknowledgements were written when the log was closed
        with self.book.writing, self.book.lock:
            kept = slot.kept
            if kept.consumer is not slot:
                return
            kept.consumer = kept.owner = None
            kept.look()
            kept.state = state_after(kept.state, SlotEvent.CLOSE) or kept.state
        self.book.flush()

    def explain_to(self, slot: Slot) -> Callable[[Exception], Exception]:
        """See `SlotKeeper.explain_to`."""

        def explain(error: Exception) -> Exception:
            if isinstance(error, HistoryPruned):
                try:
                    self.check(slot)
                except PenstockError as why:
                    return why
            return error

        return explain

    # --- within ------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._log.check()
        if self.book.broken is not None:
            raise self.book.broken

    def _check_current(self, slot: Slot) -> SlotEntry:
        """Returns the entry of the current opening; under the lock."""
        kept = slot.kept
        if kept.consumer is not slot:
            raise Fenced(kept.name, slot.generation, kept.record.generation)
        kept.look()
        if kept.state is not SlotState.SERVED:
            raise kept.refusal(self.book.kept)
        return kept

    def _checked(self, kept: SlotEntry, event: SlotEvent) -> SlotState:
        with self.book.lock:
            return kept.check(event, self.book.kept)

    def _find(self, name: object) -> SlotEntry:
        kept = self.book.kept.get(name) if isinstance(name, str) else None
        if kept is None:
            raise NoSuchSlot(name, self.book.kept)
        return kept

    def _beginning(self, criteria: Any, since: Any, copy_from: str | None) -> tuple[Criteria, Position]:
        if copy_from is None:
            wanted, position = Criteria.of(criteria), self._log.find(since)
        else:
            if since != Start.LATEST:
                raise InvalidOption("since", since, "left out where copy_from is given")
            with self.book.lock:
                other = self._find(copy_from)
                other.look()
                if other.state in (SlotState.LOST, SlotState.FORKED):
                    raise other.refusal()
                wanted = other.criteria if criteria is None else Criteria.of(criteria)
                position = other.place
        if not wanted.criterions:
            raise InvalidOption("criteria", criteria, "some that a change can fulfil")
        return wanted, position

    def _relocate(self, kept: SlotEntry, position: Position, event: SlotEvent) -> None:
        """Moves a slot, forward or back, with a new generation; the caller holds ``SlotBook.journalling``."""
        after = self._checked(kept, event)
        held = kept.hold
        if held is None or held.state is HoldState.LOST:
            if held is not None:
                held.release()
            hold = self.book.hold(kept, kept.name, position)
        else:
            hold = held
            if position < hold.position:
                hold.move(position)  # first, so that the history exists once the position is stored
        record = self.book.raised(kept, self._log.token(position))
        try:
            self.book.append(JournalEntry(slots=[record]))
        except BaseException:
            if hold is not held:
                hold.release()
            raise
        with self.book.lock:
            kept.record, kept.place, kept.state = record, position, after
            kept.hold, kept.oldest = hold, None
            self.book.forget(kept)
        advance(hold, position)

    def _statistics_of(self, kept: SlotEntry, holds: dict[str, HoldStatistics]) -> SlotStatistics:
        with self.book.lock:
            kept.look()
            name, place, state, owner = kept.name, kept.place, kept.state, kept.owner
            record, unsynced = kept.record, self.book.unsynced(kept)
        hold = holds.get(hold_of(name))
        return SlotStatistics(
            name,
            state,
            place,
            record.generation,
            owner,
            record.paused,
            self._log.behind(place),
            unsynced,
            None if hold is None else hold.state,
            0 if hold is None else hold.held_bytes,
            None if hold is None else hold.bytes_left,
            None if hold is None else hold.seconds_left,
        )


def check_slot_name(name: object) -> None:
    """Checks the name of a slot.

    Raises:
        InvalidOption: If it is invalid.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidOption("name", name, "1 to 64 small letters, digits, '_' and '-'")


def _fence(before: object, kept: SlotEntry) -> None:
    """Ends the subscription of a fenced opening."""
    if isinstance(before, Slot):
        before.end(Fenced(kept.name, before.generation, kept.record.generation))

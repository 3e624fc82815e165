"""All slots of a log: made, opened, moved and dropped here."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import HistoryPruned, InvalidOption, LogForked, PenstockError
from publishers.model.position import Position, Start
from publishers.options import check_switches
from publishers.slots.book import SlotBook, advance
from publishers.slots.entry import SlotEntry
from publishers.slots.errors import Fenced, NoSuchSlot, SlotExists
from publishers.slots.ports import PlaceLog
from publishers.slots.record import Granularity, JournalEntry, SlotRecord
from publishers.slots.slot import Slot
from publishers.slots.state import SlotEvent, SlotState, state_after
from publishers.slots.statistics import SlotStatistics, SlotTotals
from publishers.wal import HoldState, HoldStatistics

__all__ = ["Slots", "check_slot_name"]

_NAME: Final = re.compile(r"[a-z0-9_-]{1,64}")


class Slots:
    """The slots of one log, for its owner: ``log.slots``. Thread-safe.

    Iterating gives their names.

    Args:
        log: The log whose places they are.
        book: What is known of them.

    Attributes:
        book: The same; for the log.
    """

    def __init__(self, log: PlaceLog, book: SlotBook) -> None:
        self.book = book
        self._log = log

    # --- the slots ---------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        criteria: Criteria | Criterion | Iterable[Criterion] | None = None,
        *,
        start: Any = Start.LATEST,
        copy_from: str | None = None,
        granularity: Granularity = "transaction",
        paused: bool = False,
        keep_bytes: int | None = None,
        keep_age: float | None = None,
    ) -> SlotStatistics:
        """Makes a slot; durable when it returns. From now on history is held for it, within its caps.

        Args:
            name: Of it: 1 to 64 small letters, digits, ``_`` and ``-``.
            criteria: Which changes, for as long as the slot lives; None for everything, or with ``copy_from`` for those of that.
            start: Its place, as ``since`` of ``ChangeLog.changes``: the next version by default.
            copy_from: A slot whose place is taken instead: what it has not acknowledged, the new one has not either.
            granularity: ``"change"`` keeps a place inside a transaction, for huge ones.
            paused: Whether it gives nothing until `resume`, as until its consumer has the state.
            keep_bytes: Most bytes of the log that are kept for it; None for the option ``slot_keep_bytes``.
            keep_age: Longest time in seconds for which a closed segment is kept for it; None for ``slot_keep_age``.

        Raises:
            InvalidOption: If an argument is not what it must be.
            InvalidCriteria: If the criteria are none.
            SlotExists: If there is one of that name.
            NoSuchSlot, SlotLost, SlotForked: If ``copy_from`` is no slot, or not a good one.
            PositionError: If ``start`` is beyond the end of the log, or no longer kept.
            TooCostly: If there are ``slots`` of them already, or their definitions have ``slot_journal_bytes``.
            SlotsUnwritten: If the disk has no room or fails; there is no such slot then.
        """
        check_slot_name(name)
        if granularity not in ("transaction", "change"):
            raise InvalidOption("granularity", granularity, "'transaction' or 'change'")
        check_switches(paused=paused)
        self._check()
        wanted, position = self._beginning(criteria, start, copy_from)
        with self.book.journalling(position):
            if name in self.book.kept:
                raise SlotExists(name)
            record = SlotRecord(
                id=self.book.next_id,
                name=name,
                place=self._log.token(position),
                criteria=wanted.to_json(),
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
    ) -> Slot:
        """Opens a slot with a new generation, which is durable when it returns.

        Args:
            name: Of the slot.
            take_over: Whether to take it from the consumer that has it, which is fenced: its subscription ends with ``Fenced``,
                and so do all its calls.
            owner: What ``SlotBusy`` calls the consumer; the process by default.
            generation: Of an opening that was interrupted, and is to go on: if there was another one since, it is refused.

        Raises:
            NoSuchSlot: If there is none of that name.
            Fenced: If ``generation`` is not the last one.
            SlotBusy: If a consumer has it open.
            SlotLost, SlotForked: If its place cannot be read from: bootstrap the consumer, then ``reset`` the slot.
            SlotsUnwritten: If the disk has no room or fails; nothing has changed.
        """
        check_switches(take_over=take_over)
        if owner is not None and (not isinstance(owner, str) or not owner):
            raise InvalidOption("owner", owner, "a text, or None")
        self._check()
        with self.book.journalling():
            kept = self._find(name)
            if generation is not None and generation != kept.record.generation:
                raise Fenced(name, generation, kept.record.generation)
            after = self._checked(kept, SlotEvent.TAKE_OVER if take_over else SlotEvent.OPEN)
            record = self.book.raised(kept, self.book.place_of(kept))
            self.book.append(JournalEntry(slots=[record]))
            slot = Slot(self, self._log, kept, record.generation)
            with self.book.lock:
                before, kept.consumer = kept.consumer, slot
                kept.record, kept.state = record, after
                kept.owner = owner or f"process {os.getpid()}"
        _fence(before, kept)
        return slot

    def reset(self, name: str, start: Any = Start.LATEST) -> SlotStatistics:
        """Moves a slot that is not open, in any other state; a lost one is good again.

        Args:
            name: Of the slot.
            start: Its new place, as for `create`.

        Raises:
            NoSuchSlot, SlotBusy: If there is none; if a consumer has it open, which may seek itself.
            PositionError: If ``start`` is beyond the end of the log, or no longer kept.
            SlotsUnwritten: If the disk has no room or fails; nothing has changed.
        """
        self._check()
        position = self._log.find(start)
        with self.book.journalling(position):
            self._relocate(self._find(name), position, SlotEvent.RESET)
        return self.info(name)

    def drop(self, name: str) -> None:
        """Drops a slot that is not open; its hold on history is released.

        Raises:
            NoSuchSlot, SlotBusy: If there is none; if a consumer has it open.
            SlotsUnwritten: If the disk has no room or fails; it is there, or not, when the log is opened again.
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
        """Gives a slot another name; its consumer, if it has one, goes on.

        Raises:
            InvalidOption: If ``new`` is no name.
            NoSuchSlot, SlotExists: If there is none of the old name; if there is one of the new one.
            SlotsUnwritten: If the disk has no room or fails; nothing has changed.
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
        """Lets a slot give nothing until `resume`, over restarts too; answers whether it was not paused before.

        Raises:
            NoSuchSlot: If there is none of that name.
            SlotsUnwritten: If the disk has no room or fails; nothing has changed.
        """
        return self.set_paused(name, paused=True)

    def resume(self, name: str) -> bool:
        """Lets a slot go on; answers whether it was paused. Errors are those of `pause`."""
        return self.set_paused(name, paused=False)

    def info(self, name: str) -> SlotStatistics:
        """The statistics of a slot.

        Raises:
            NoSuchSlot: If there is none of that name.
        """
        self._check()
        with self.book.lock:
            kept = self._find(name)
        return self._told(kept, {one.name: one for one in self._log.holds()})

    def statistics(self, *, listed: int | None = None) -> SlotTotals:
        """What all slots tell of themselves; nothing if their journal is damaged.

        Args:
            listed: Most slots in ``SlotTotals.listed``; None for all.
        """
        holds = {one.name: one for one in self._log.holds()}
        with self.book.lock:
            found = sorted(self.book.kept.values(), key=lambda kept: kept.name)
            for kept in found:
                kept.look()
            lost = sum(kept.state in (SlotState.LOST, SlotState.FORKED) for kept in found)
        listed_slots = tuple(self._told(kept, holds) for kept in found[:listed])
        return SlotTotals(len(found), lost, self.book.journal_bytes, listed_slots)

    def __iter__(self) -> Iterator[str]:
        self._check()
        with self.book.lock:
            return iter(sorted(self.book.kept))

    def __len__(self) -> int:
        return len(self.book.kept)

    def __contains__(self, name: object) -> bool:
        return name in self.book.kept

    # --- for slots that are open ---------------------------------------------------------------------------------

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

    def seek(self, slot: Slot, place: Any) -> Position:
        """See `SlotKeeper.seek`."""
        self.check(slot)
        position = self._log.find(place)
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
            return  # it is the parent's
        except PenstockError:
            pass  # what was acknowledged was written when the log was closed
        with self.book.lock:
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
        """The slot of an opening, if that is the one that counts; under the lock."""
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

    def _beginning(self, criteria: Any, start: Any, copy_from: str | None) -> tuple[Criteria, Position]:
        if copy_from is None:
            wanted, position = Criteria.of(criteria), self._log.find(start)
        else:
            if start != Start.LATEST:
                raise InvalidOption("start", start, "left out where copy_from is given")
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
                hold.move(position)  # before it is stored, as what lies there must be there then
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

    def _told(self, kept: SlotEntry, holds: dict[str, HoldStatistics]) -> SlotStatistics:
        with self.book.lock:
            kept.look()
            name, place, state, owner = kept.name, kept.place, kept.state, kept.owner
            record, unsynced = kept.record, self.book.unsynced(kept)
        hold = holds.get(f"slot:{name}")
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
        InvalidOption: If it is none.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidOption("name", name, "1 to 64 small letters, digits, '_' and '-'")


def _fence(before: object, kept: SlotEntry) -> None:
    """Ends the subscription of an opening that does not count any more."""
    if isinstance(before, Slot):
        before.end(Fenced(kept.name, before.generation, kept.record.generation))

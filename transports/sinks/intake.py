"""Where a runner's changes come from: its slot, which is made if it is not there; and rows of a state before them."""

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec

from publishers.criteria.criteria import Criteria
from publishers.errors import PenstockError
from publishers.model.position import Position, Start
from publishers.slots.errors import SlotExists
from publishers.slots.slot import Slot
from publishers.snapshots.subscription import checked_again
from publishers.views.view import View
from transports.sinks.notes import GapNote, RowsNote, SinkNotes
from transports.sinks.options import SinkOptions
from transports.sinks.sink import SinkBatch, SinkLog
from transports.sinks.sink_target import SinkTarget
from transports.sinks.supply import RowSupply, SinkSupply

__all__ = ["SinkIntake", "SinkProgress"]


class SinkProgress:
    """What the target has confirmed, and is not stored yet.

    Attributes:
        confirmed: Behind the last change that it has taken; None before the first.
        cursor: The place behind the last row, or change between rows.
        unsaved: Whether there is something.
        gap_told: Whether it has taken a batch that tells of what was left out.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """What was confirmed is sent again."""
        self.confirmed: Position | None = None
        self.cursor: str | None = None
        self.unsaved = self.gap_told = False

    def note(self, batch: SinkBatch) -> None:
        """The target has taken a batch."""
        self.confirmed, self.cursor = batch.next, batch.cursor or self.cursor
        self.unsaved, self.gap_told = True, self.gap_told or batch.gap is not None


class SinkIntake:
    """The slot of one sink, and what is pulled from it; by the thread that steps its runner.

    Args:
        log: The log.
        name: Of the sink and the slot.
        options: How the sink is run.
        view: How the target sees changes.
        notes: What is known beside the place of the slot.
        take_over: Whether to take the slot from another consumer that has it open.
        wake: Called when there may be something, on any thread.

    Attributes:
        notes: See above.
        slot: The slot, while it is open.
        supply: What is pulled from it; None until something is wanted.
    """

    def __init__(
        self,
        log: SinkLog,
        name: str,
        options: SinkOptions,
        view: View,
        notes: SinkNotes,
        *,
        take_over: bool,
        wake: Callable[[], object],
    ) -> None:
        self._log, self._name, self._options, self._view = log, name, options, view
        self._take_over, self._wake = take_over, wake
        self.notes = notes
        self.slot: Slot | None = None
        self.supply: SinkSupply | None = None

    @property
    def gives_rows(self) -> bool:
        """Whether rows come, and the place of the slot stays until they have ended."""
        return self.notes.told.rows is not None

    @property
    def off(self) -> bool:
        """Whether the sink is switched off."""
        return self.notes.told.off is not None

    @property
    def completed(self) -> bool:
        """Whether rows were all that is wanted, and they are carried."""
        return self._options.snapshot == "initial_only" and self.notes.told.done is not None

    def open(self) -> Slot:
        """The slot, opened."""
        if self.slot is None:
            self.make()
            self.slot = self._log.slots.open(
                self._name, take_over=self._take_over, owner=f"sink {self._name}"
            )
        return self.slot

    def make(self) -> None:
        """Makes the slot if it is not there, and notes whether rows come first."""
        there, wanted, told = self._name in self._log.slots, self._options.snapshot, self.notes.told
        done, start = told.done, self._options.start
        if wanted == "initial_only" or (wanted == "initial" and not there and done is None):
            start = Start.LATEST
            if told.rows is None:
                self.notes.write(rows=RowsNote())  # before the slot: one without a note has had its rows
        elif done is not None:  # changes are wanted by now: those behind the rows
            start = self._log.position_of(done)
        if not there:
            self._make(start)
        self.notes.write(done=None)

    def _make(self, start: Any) -> None:
        with contextlib.suppress(SlotExists):
            self._log.slots.create(self._name, self._options.criteria, start=start, granularity="change")

    def begin(self) -> SinkSupply:
        """What is pulled, from the place of the slot on, or from that of rows."""
        if self.supply is None:
            slot, options = self.open(), self._options
            bounds: dict[str, Any] = {
                "changes": options.room,
                "nbytes": options.batch_bytes * options.in_flight,
                "linger": options.linger,
                "wake": self._wake,
            }
            rows = self.notes.told.rows
            if rows is None:
                self.supply = SinkSupply(slot.changes(view=self._view), **bounds)
            else:
                wish = None if rows.only is None else rows
                feed = self._log.changes(
                    slot.criteria,
                    since=slot.position if wish is not None else rows.cursor or "state",
                    view=self._view,
                    snapshot="initial_only" if wish is None else "on_gap",
                    source=options.source,
                )
                self.supply = RowSupply(feed, slot.position, wish, **bounds)
        return self.supply

    def settle(self, place: Position, target: SinkTarget) -> None:
        """Goes on at the place that a target stores, which wins over the slot's, unless it lies before what was left out."""
        slot, gap = self.open(), self.notes.told.gap
        if self.gives_rows:
            return
        if gap is not None and place < self._log.position_of(gap.next):
            target.move(slot.position)
        else:
            slot.seek(place)

    def keep(self, progress: SinkProgress, target: SinkTarget, *, idle: bool) -> None:
        """Stores the place of what a target has, durably there; over what did not match too.

        Args:
            progress: What it has confirmed.
            target: The target.
            idle: Whether nothing is on its way to it.
        """
        slot, supply, noted = self.open(), self.supply, self.notes.told
        if progress.gap_told and noted.gap is not None:
            self.notes.write(gap=None)
        place = progress.confirmed if progress.unsaved else None
        if noted.rows is not None:
            place = None
            if noted.rows.only is None and progress.cursor is not None:
                self.notes.write(rows=RowsNote(cursor=progress.cursor))
        elif supply is not None and supply.empty and idle:
            place = slot.delivered  # over what did not match
            if target.stores_position and place > max(slot.position, progress.confirmed or slot.position):
                target.move(place)
        if place is not None and place > slot.position:
            slot.ack(place, durable=not self._options.store_every)
        progress.unsaved = False

    def end_rows(self, position: Position) -> None:
        """Goes on with changes, from a position on, if they are wanted; what rows gave is confirmed, and durable."""
        self.renew()
        self.open().seek(position)
        only = self._options.snapshot == "initial_only"
        self.notes.write(rows=None, done=str(self._log.token(position)) if only else None)

    def seek(self, place: Any) -> Position:
        """Goes on elsewhere, whether there is a slot by now or not; rows that were not carried yet are left out."""
        slots, position = self._log.slots, Position(0)
        if self.slot is not None:
            position = self.slot.seek(place)
            if self.gives_rows:
                self.renew()
            elif self.supply is not None:
                self.supply.drop()
        elif self._name in slots:
            position = slots.reset(self._name, place).position
        else:
            self._make(place)
            position = slots.info(self._name).position
        self.notes.write(rows=None, done=None)
        return position

    def again(self, criteria: Criteria, after: str | None, until: str | None) -> None:
        """Gives rows of the present once more, and then changes again; over restarts too.

        Raises:
            PenstockError: If there are no such rows; nothing has changed then.
        """
        checked_again(criteria, after=after, until=until)
        self._log.changes(
            self._options.criteria,
            since=Start.LATEST,
            view=self._view,
            snapshot="on_gap",
            source=self._options.source,
        )  # raises if rows come from nowhere
        only = criteria.to_json()
        self.notes.write(rows=RowsNote(only=only, after=after, until=until), done=None)
        self.renew()

    def rows_anew(self) -> None:
        """Begins again with rows whose snapshot cannot be gone on with."""
        rows = self.notes.told.rows
        self.notes.write(rows=None if rows is None else msgspec.structs.replace(rows, cursor=None))

    def rows_after_loss(self) -> None:
        """Gives rows in place of history that is gone."""
        self.notes.write(rows=RowsNote())
        self._log.slots.reset(self._name, Start.LATEST)

    def switch_off(self) -> None:
        """Drops the slot, so that no history is held, and notes where it was; does again what was left half done."""
        slots = self._log.slots
        if not self.off:
            place = slots.info(self._name).position if self._name in slots else self._log.head
            gap = self.notes.told.gap  # what the target was not told yet is part of the next gap
            self.notes.write(
                off=str(self._log.token(place)) if gap is None else gap.first, gap=None, rows=None, done=None
            )
        self.let_go()
        self.drop_slot()

    def drop_slot(self) -> None:
        """Holds no history any more."""
        if self._name in self._log.slots:
            self._log.slots.drop(self._name)

    def switch_on(self, place: Any) -> Position:
        """Makes the slot anew, at a place, and notes what was left out."""
        slots, off = self._log.slots, self.notes.told.off
        self.drop_slot()  # that was left half done
        self._make(place)
        position: Position = slots.info(self._name).position
        token = str(self._log.token(position))
        missed = off is not None and self._missed(off, position)
        self.notes.write(off=None, gap=GapNote(off or token, token) if missed else None)
        return position

    def _missed(self, off: str, position: Position) -> bool:
        try:
            return self._log.position_of(off) < position
        except PenstockError:  # of a history that is no more: whatever it was, it is missing
            return True

    def renew(self) -> None:
        """Throws away what was pulled."""
        supply, self.supply = self.supply, None
        if supply is not None:
            supply.end()

    def let_go(self) -> None:
        """Gives back the slot."""
        slot, self.slot = self.slot, None
        if slot is not None:
            with contextlib.suppress(PenstockError):  # the place is written when the log's disk is good again
                slot.close()
        self.renew()

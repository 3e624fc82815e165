"""The source of a runner's changes: its slot, which it creates if missing, and the rows of a state before them."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from flow.clock import Clock
from publishers.criteria.criteria import Criteria
from publishers.criteria.entities import EntityFilter, with_leaving
from publishers.errors import HistoryPruned, PenstockError, PositionForked
from publishers.model.position import Position, Start
from publishers.slots.errors import SlotExists
from publishers.slots.inspection import forget_restored_place, restored_place
from publishers.slots.slot import Slot
from publishers.snapshots.subscription import checked_refresh
from publishers.views.view import View
from publishers.wal import RealFileSystem
from transports.sinks.errors import SinkPlaceLost, TargetOfOtherHistory, TargetTakenOver
from transports.sinks.notes import GapNote, RowsNote, SinkNotes
from transports.sinks.options import SinkOptions
from transports.sinks.sink import SinkBatch, SinkLog
from transports.sinks.sink_target import SinkTarget
from transports.sinks.supply import RowSupply, SinkSupply

__all__ = ["SinkIntake", "SinkProgress"]

_LOG: Final = logging.getLogger("penstock.sinks")
_FILES: Final = RealFileSystem()


class SinkProgress:
    """What the target has confirmed and the slot has not stored yet.

    Attributes:
        confirmed: The position behind the last confirmed change; None before the first.
        cursor: The cursor of the last confirmed row, or change between rows.
        unsaved: Whether anything is confirmed and not stored.
        gap_reported: Whether the target has confirmed a batch that carries the gap.
    """

    def __init__(self) -> None:
        self.confirmed: Position | None = None
        self.cursor: str | None = None
        self.unsaved: bool = False
        self.gap_reported: bool = False

    def forget(self) -> None:
        """Forgets what was confirmed, which is then sent again."""
        self.confirmed = self.cursor = None
        self.unsaved = self.gap_reported = False

    def note(self, batch: SinkBatch) -> None:
        """Records a confirmed batch."""
        self.confirmed, self.cursor = batch.next, batch.cursor or self.cursor
        self.unsaved, self.gap_reported = True, self.gap_reported or batch.gap is not None


class SinkIntake:
    """The slot of one sink and its supply of changes; used by the thread that steps the runner.

    Args:
        log: The log.
        name: The name of the sink and the slot.
        options: The options of the sink.
        view: The view of the target.
        clock: The clock of the runner.
        notes: What the sink keeps across restarts besides the position of the slot.
        take_over: Whether to take the slot over from another consumer that has it open.
        knows_history: Whether the target refuses another history by itself.
        keeps_entities: Whether the target keeps entities: those that leave the criteria leave it, too.
        wake: Called on any thread when there may be changes.

    Attributes:
        notes: The notes of the sink.
        slot: The slot while it is open; else None.
        supply: The supply of changes; None until `begin`.
    """

    def __init__(
        self,
        log: SinkLog,
        name: str,
        options: SinkOptions,
        view: View,
        clock: Clock,
        notes: SinkNotes,
        *,
        take_over: bool,
        knows_history: bool,
        keeps_entities: bool,
        wake: Callable[[], object],
    ) -> None:
        self._log, self._name, self._options, self._view = log, name, options, view
        self._clock = clock
        self._take_over, self._knows_history, self._wake = take_over, knows_history, wake
        self._keeps_entities = keeps_entities
        self._latest = log.head  # what is committed before the first step of the runner belongs to a new sink
        self.notes = notes
        self.slot: Slot | None = None
        self.supply: SinkSupply | None = None

    @property
    def gives_rows(self) -> bool:
        """Whether the supply delivers rows; the slot keeps its position until they have ended."""
        return self.notes.current.rows is not None

    @property
    def off(self) -> bool:
        """Whether the sink is switched off."""
        return self.notes.current.off is not None

    @property
    def completed(self) -> bool:
        """Whether the sink is for rows only, and has carried them."""
        return self._options.snapshot == "initial_only" and self.notes.current.done is not None

    def open(self) -> Slot:
        """Returns the slot, and opens it if it is closed."""
        if self.slot is None:
            self.make()
            self.slot = self._log.slots.open(
                self._name,
                take_over=self._take_over,
                owner=f"sink {self._name}",
                # Targets keep the generation: one of a slot that was restored or created anew must not be below it.
                least_generation=self._clock.now_us() // 1_000_000,
            )
        return self.slot

    def meet(self, target: SinkTarget) -> None:
        """Opens the target, and continues where it stands; raises as `Sink.open` does."""
        self._settle(self._open_target(target), target)

    def move(self, target: SinkTarget, position: Position) -> None:
        """Replaces the position that the target stores, if it stores one, also one that cannot be read from."""
        if target.knows_history and not target.opened:
            with contextlib.suppress(TargetOfOtherHistory, HistoryPruned):
                self._open_target(target)
            target.opened = True
        target.move(position)

    def _open_target(self, target: SinkTarget) -> Position | None:
        slot = self.open()
        try:
            return target.open(slot.generation, rows=self.gives_rows)
        except TargetTakenOver as error:  # or by this sink, before its slot was restored or created anew
            target.close()
            self.slot = self._log.slots.open(
                self._name,
                take_over=True,
                owner=f"sink {self._name}",
                generation=slot.generation,  # refused if another consumer has opened the slot since
                least_generation=error.generation + 1,
            )
            return target.open(self.slot.generation, rows=self.gives_rows)

    def make(self) -> None:
        """Creates the slot if it does not exist, and notes whether rows come first."""
        there, wanted, note = self._name in self._log.slots, self._options.snapshot, self.notes.current
        done, start = note.done, self._options.since
        if start == Start.LATEST:
            start = self._latest
        restored = None if there else self._restored()
        if restored is not None:
            if not self._knows_history:
                raise SinkPlaceLost(self._name, str(self._log.token(restored)))
            start = restored
        if wanted == "initial_only" or (wanted == "initial" and not there and done is None):
            start = Start.LATEST
            if note.rows is None:
                self.notes.write(rows=RowsNote())  # before the slot: a slot without it has had its rows
        elif done is not None:  # the option was changed from rows only: changes behind the rows follow
            start = self._log.position_of(done)
        if not there:
            self._make(start)
        self.notes.write(done=None)

    def _make(self, start: Any) -> None:
        with contextlib.suppress(SlotExists):
            self._log.slots.create(self._name, self._options.criteria, since=start, granularity="change")
        forget_restored_place(_FILES, self._log.path, self._name)

    def _restored(self) -> Position | None:
        """Returns the position that the sink had in the backup from which the log was restored; None if it has none."""
        token = restored_place(_FILES, self._log.path, self._name)
        if token is None:
            return None
        try:
            return self._log.position_of(token)
        except HistoryPruned as error:
            return error.oldest
        except PositionForked as error:  # the sink went on while the backup was made
            return error.end or self._log.head
        except PenstockError:
            return None

    def begin(self) -> SinkSupply:
        """Returns the supply, which starts at the position of the slot or at the cursor of the rows."""
        if self.supply is None:
            slot, options = self.open(), self._options
            bounds: dict[str, Any] = {
                "changes": options.room,
                "nbytes": options.batch_bytes * options.in_flight,
                "linger": options.linger,
                "wake": self._wake,
            }
            rows = self.notes.current.rows
            criteria, view = self._selection(slot.criteria, rows)
            if rows is None:
                self.supply = SinkSupply(slot.changes(view=view, criteria=criteria), **bounds)
            else:
                rows_request = None if rows.only is None else rows
                feed = self._log.changes(
                    criteria,
                    since=slot.position if rows_request is not None else rows.cursor or "state",
                    view=view,
                    snapshot="initial_only" if rows_request is None else "on_gap",
                    source=options.source,
                )
                self.supply = RowSupply(feed, slot.position, rows_request, **bounds)
        return self.supply

    def _selection(self, criteria: Criteria, rows: RowsNote | None) -> tuple[Criteria, View]:
        """Returns what to subscribe to: what leaves the criteria is asked for if the target keeps entities, and shown as removed."""
        entities, view = EntityFilter(criteria), self._view
        if entities.leaves and (self._keeps_entities or entities.tells_leaving):
            view = msgspec.structs.replace(view, outsiders=entities)
        if self._keeps_entities:
            criteria = with_leaving(criteria, rows=rows is not None and (rows.held or rows.only is not None))
        return criteria, view

    def _settle(self, place: Position | None, target: SinkTarget) -> None:
        """Continues at the position that the target stores, which overrides the slot's, unless it lies before the end of a gap."""
        slot, gap = self.open(), self.notes.current.gap
        if self.gives_rows or place == slot.position:
            return
        if place is None:
            self._note_missing(target)
        elif gap is not None and place < self._log.position_of(gap.next):
            if target.stores_position:
                target.move(slot.position)
        elif target.stores_position or place < slot.position:
            slot.seek(place)

    def _note_missing(self, target: SinkTarget) -> None:
        """Notes as a gap what the target may lack, because it does not have the position any more that it has stored."""
        noted, place = self.notes.current, self.open().position
        if not (target.knows_history and noted.stored) or place <= self._log.oldest:
            return
        first = str(self._log.token(self._log.oldest)) if noted.gap is None else noted.gap.first
        self.notes.write(gap=GapNote(first, str(self._log.token(place))))
        _LOG.error(
            "sink %s: its target has lost its position, so what it had before %s may be missing; send rows again, or seek",
            self._name,
            place,
        )

    def keep(self, progress: SinkProgress, target: SinkTarget, *, idle: bool) -> None:
        """Stores the position behind what the target has made durable, also past changes that do not match.

        Args:
            progress: What the target has confirmed.
            target: The target.
            idle: Whether no change is in flight to the target.
        """
        slot, supply, noted = self.open(), self.supply, self.notes.current
        if progress.gap_reported and noted.gap is not None:
            self.notes.write(gap=None)
        place = progress.confirmed if progress.unsaved else None
        if noted.rows is not None:
            place = None
            if noted.rows.only is None and progress.cursor is not None:
                self.notes.write(rows=msgspec.structs.replace(noted.rows, cursor=progress.cursor))
        elif supply is not None and supply.empty and idle:
            place = slot.delivered  # past changes that do not match
            if target.knows_history and place > max(slot.position, progress.confirmed or slot.position):
                target.move(place)
        if place is not None and place > slot.position:
            slot.ack(place, durable=not self._options.store_every)
        if target.knows_history and progress.unsaved:
            self.notes.write(stored=True)
        progress.unsaved = False

    def end_rows(self, position: Position) -> None:
        """Continues with changes from a position on, unless the sink is for rows only; the target has made the rows durable."""
        self.renew()
        self.open().seek(position)
        only = self._options.snapshot == "initial_only"
        self.notes.write(rows=None, done=str(self._log.token(position)) if only else None)

    def seek(self, place: Any) -> Position:
        """Moves the slot, or creates it there if it does not exist; skips rows that are not carried yet."""
        slots, position = self._log.slots, Position(0)
        if self.slot is not None:
            position = self.slot.seek(place)
            if self.gives_rows:
                self.renew()
            elif self.supply is not None:
                self.supply.drop()
        elif self._name in slots:
            position = slots.seek(self._name, place).position
        else:
            restored = self._restored()
            self._make(place)
            position = slots.info(self._name).position
            if restored is not None and restored < position:
                self.notes.write(gap=GapNote(str(self._log.token(restored)), str(self._log.token(position))))
        self.notes.write(rows=None, done=None)
        return position

    def refresh(self, criteria: Criteria, after: str | None, until: str | None) -> None:
        """Carries rows of the current state once more, and then changes again; the order survives a restart.

        Raises:
            PenstockError: If there are no such rows; nothing has changed then.
        """
        checked_refresh(criteria, after=after, until=until)
        self._log.changes(
            self._options.criteria,
            since=Start.LATEST,
            view=self._view,
            snapshot="on_gap",
            source=self._options.source,
        )  # raises if the log has no source of rows
        only = criteria.to_json()
        self.notes.write(rows=RowsNote(only=only, after=after, until=until), done=None)
        self.renew()

    def rows_anew(self) -> None:
        """Starts the rows again, because their snapshot cannot be resumed."""
        rows = self.notes.current.rows
        self.notes.write(rows=None if rows is None else msgspec.structs.replace(rows, cursor=None, held=True))

    def rows_after_loss(self) -> None:
        """Carries rows in place of lost history."""
        self.notes.write(rows=RowsNote(held=True))
        if self._name in self._log.slots:
            self._log.slots.seek(self._name, Start.LATEST)
        else:
            self._make(Start.LATEST)

    def switch_off(self) -> None:
        """Drops the slot, so that no history is retained, and notes its position; completes a switch-off that was interrupted."""
        slots = self._log.slots
        if not self.off:
            place = slots.info(self._name).position if self._name in slots else self._log.head
            gap = self.notes.current.gap  # a gap that the target has not got yet becomes part of the next one
            self.notes.write(
                off=str(self._log.token(place)) if gap is None else gap.first, gap=None, rows=None, done=None
            )
        self.let_go()
        self.drop_slot()

    def drop_slot(self) -> None:
        """Drops the slot, so that no history is retained."""
        if self._name in self._log.slots:
            self._log.slots.drop(self._name)

    def switch_on(self, place: Any) -> Position:
        """Creates the slot at a position, and notes the gap."""
        slots, off = self._log.slots, self.notes.current.off
        self.drop_slot()  # left over from an interrupted switch-off
        self._make(place)
        position: Position = slots.info(self._name).position
        token = str(self._log.token(position))
        missed = off is not None and self._missed(off, position)
        self.notes.write(off=None, gap=GapNote(off or token, token) if missed else None)
        return position

    def _missed(self, off: str, position: Position) -> bool:
        try:
            return self._log.position_of(off) < position
        except PenstockError:  # from another history: all of it is missing
            return True

    def renew(self) -> None:
        """Ends the supply, and drops what it has read."""
        supply, self.supply = self.supply, None
        if supply is not None:
            supply.end()

    def let_go(self) -> None:
        """Closes the slot and ends the supply."""
        slot, self.slot = self.slot, None
        if slot is not None:
            with contextlib.suppress(
                PenstockError
            ):  # the position is written once the log's disk works again
                slot.close()
        self.renew()

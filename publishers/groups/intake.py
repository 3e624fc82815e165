"""Turns changes read from the log into units of a group: new changes, and after a restart those that were not done."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from publishers.groups.record import JournalChanges, OpenRow
from publishers.groups.settings import GroupSettings
from publishers.groups.state import DeliveryState
from publishers.groups.unit import EVERYTHING, GatheredTransaction, GroupLane, GroupUnit, ReadRow
from publishers.model.change import Change
from publishers.model.position import Position

__all__ = ["GroupIntake"]


class GroupIntake:
    """Builds units from changes that are read, and skips changes that were done before a restart.

    Args:
        settings: The settings, of which ``ordering`` and ``ack`` count.
        head: The position up to which the group had read before the restart.
        opens: The rows before ``head`` that are not done, in order.
        changes: Records rows that match no more, for the journal.

    Attributes:
        reading: The next position to read.
        read_before: The head of the restart; before it, only positions in ``resumed`` become units.
        resumed: Rows that were not done at the restart and were not read again yet.
        resumed_given: How many of ``resumed`` had been delivered; they count against ``max_ack_pending``.
    """

    def __init__(
        self, settings: GroupSettings, head: Position, opens: Sequence[OpenRow], changes: JournalChanges
    ) -> None:
        self.reading: Position = opens[0].position if opens else head
        self.read_before = head
        self.resumed: deque[OpenRow] = deque(opens)
        self.resumed_given: int = sum(row.given for row in opens)
        self._whole = settings.ack == "transaction"
        self._ordering = settings.ordering
        self._gathered = GatheredTransaction()
        self._changes = changes

    @property
    def head(self) -> Position:
        """The position up to which the group has read, now or before the restart."""
        return max(self._fed, self.read_before)

    def take(self, rows: Iterable[ReadRow], after: Position) -> Iterator[GroupUnit]:
        """Yields the units of rows that were read; see ``GroupMachine.feed``."""
        gathered = self._gathered
        for position, lane, kept, nbytes in rows:
            if not self._whole:
                yield from self._made(position, () if lane is None else (lane,), kept, nbytes)
                continue
            for one in gathered.add(position, lane):
                yield from self._made(*one)
        if gathered.version is not None and after.version > gathered.version:
            for one in gathered.finish():
                yield from self._made(*one)
        self.reading = after
        while self.resumed and self.resumed[0].position < self._fed:
            self._changes.close_stored(self._next_row().position)  # the change matches no more
        self._skip_done()

    def prune(self, oldest: Position, head: Position) -> list[Position]:
        """Skips history that retention deleted; returns the positions in ``resumed`` that are lost by this."""
        lost = []
        while self.resumed and self.resumed[0].position < oldest:
            lost.append(self._next_row().position)
            self._changes.close_stored(lost[-1])
        if self._gathered.version is not None and self._gathered.version < oldest.version:
            self._gathered.forget()
        if self.reading < oldest:
            self.reading = max(head, self.reading)
        self._skip_done()
        return lost

    def _skip_done(self) -> None:
        """Goes on at the next row that was not done at the restart: what lies before it is done, and not held any more."""
        self.reading = max(self.reading, self.resumed[0].position if self.resumed else self.read_before)

    def _next_row(self) -> OpenRow:
        row = self.resumed.popleft()
        self.resumed_given -= row.given
        return row

    @property
    def _fed(self) -> Position:
        if self._whole:
            return Position(self._gathered.version or self.reading.version)
        return self.reading

    def _made(
        self,
        position: Position,
        lanes: tuple[GroupLane, ...],
        kept: tuple[Change, ...] | None = None,
        nbytes: int = 0,
    ) -> Iterable[GroupUnit]:
        if self._ordering != "key":
            lanes = () if self._ordering == "none" else (EVERYTHING,)
        unit = GroupUnit(position, lanes, kept, nbytes)
        if position < self.read_before:
            while self.resumed and self.resumed[0].position < position:
                self._changes.close_stored(self._next_row().position)
            if not self.resumed or self.resumed[0].position != position:
                return ()  # done before the restart
            row = self._next_row()
            unit.stored = True
            if row.given:
                unit.count, unit.first_us, unit.state = row.count, row.first_us, DeliveryState.DUE
        return (unit,)

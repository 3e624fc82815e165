"""The cursor of a subscription: its position in the log, and how it reads from there."""

from collections.abc import Hashable
from typing import Any

from flow.interrupts import SHIELD
from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.criteria.predicate import Predicate
from publishers.fanout.bench import RingCursor
from publishers.fanout.chunk import DeliveryKind, Polled
from publishers.fanout.ring import BEHIND, Ring
from publishers.fanout.state import Occurrence, PhaseRow
from publishers.fanout.watermark import Watermark
from publishers.model.position import Position

__all__ = ["Cursor"]


class Cursor(RingCursor):
    """The next position to read, and two ways to read from it: from the ring, or from the WAL once the ring has evicted it.

    One thread at a time may call its methods, except for `move`. Only the ring evicts a LIVE cursor, under the ring's lock.

    Attributes:
        until: Last version to read, or None.
        reads: Frames of the WAL that were read for it, from disk or from memory.
        read_at: Commit time of the last of these frames, in microseconds since the Unix epoch; 0 if there was none.
    """

    __slots__ = ("_predicate", "_ring", "_watermark", "read_at", "reads", "until")

    def __init__(
        self,
        start: Position,
        *,
        ring: Ring,
        predicate: Predicate,
        watermark: Watermark,
        until: int | None,
        owner: Any,
        group: Hashable = None,
        kind: DeliveryKind | None = None,
    ) -> None:
        super().__init__(start, owner, group, kind)
        self.until: int | None = until
        self.reads: int = 0
        self.read_at: int = 0
        self._ring = ring
        self._predicate = predicate
        self._watermark = watermark

    @property
    def upto(self) -> int:
        """The newest version that this cursor may read now."""
        visible = self._watermark.visible
        return visible if self.until is None else min(visible, self.until)

    @property
    def finished(self) -> bool:
        """Whether everything up to ``until`` has been read."""
        return self.until is not None and self.next.version > self.until

    @property
    def more(self) -> bool:
        """Whether there are visible versions that it has not read."""
        return self.next.version <= self.upto

    @property
    def idle(self) -> bool:
        """Whether the ring serves it and it has taken every linked chunk; needs no lock."""
        return (self.bench or self).place == self._ring.end and self.live

    @property
    def reached(self) -> bool:
        """Whether the ring seems to cover ``next``. It reads without the ring's lock; only `move` decides."""
        return self._ring.start <= self.next

    def move(self, event: Occurrence, at: Position | None = None) -> PhaseRow | None:
        """Changes its state as the table says; returns the row, None if the table has none for the event."""
        return self._ring.move(self, event, at)

    def recall(self) -> None:
        """See `RingCursor.recall`."""
        mine = False
        try:
            with SHIELD:
                mine = self._ring.recall(self)
        finally:
            if mine:
                self.owner.drain.release_hold(self)

    def poll(self, max_events: int, max_bytes: int, *, whole: bool = False) -> Polled | None:
        """Takes the next changes from the ring, by reference and without I/O; None if the ring does not serve the cursor.

        With ``whole`` the changes end at the end of a transaction, unless the transaction alone is above the bounds.
        """
        # Checked without the ring's lock. If a thousand laggards acquired the lock only for this check, every commit would
        # wait behind them. A cursor that enters the ring meanwhile is served by its next poll.
        if self.place is None:
            return None
        # The watermark is read before the ring: every match at or below it has been linked.
        taken = self._ring.poll(self, self.upto, max_events, max_bytes, whole=whole)
        return None if taken is BEHIND else taken

    def take(self, block: Block, max_events: int, max_bytes: int, *, least: int = 1) -> Slice | None:
        """Takes the matching changes from a block of the WAL that holds ``next``, and moves behind them.

        It takes changes that fit both bounds, but at least ``least``. If matches are left, ``next`` stays before them.
        """
        self.reads += 1
        self.read_at = block.committed_at
        end, begin = block.end, self.next
        if end <= begin:
            return None
        found = Slice(block, self._predicate.select(block))
        if begin.index and begin.version == block.version:
            found = found.since(begin.index)
        if not found.indices:
            self.next: Position = end
            return None
        piece = found.first(max_events, max_bytes, least=least)
        if not piece.indices:
            return None
        self.next = end if piece is found else Position(block.version, piece.indices[-1] + 1)
        return piece

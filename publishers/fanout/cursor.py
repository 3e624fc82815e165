"""One subscriber's place in the log."""

from collections.abc import Hashable
from typing import Any

from flow.interrupts import SHIELD
from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.criteria.predicate import Predicate
from publishers.fanout.bench import RingCursor
from publishers.fanout.chunk import Likeness, Polled
from publishers.fanout.ring import BEHIND, Ring
from publishers.fanout.state import Occurrence, StateRow
from publishers.fanout.watermark import Watermark
from publishers.model.position import Position

__all__ = ["Cursor"]


class Cursor(RingCursor):
    """The next position to read, and the two ways to read from it: the ring first, the WAL when the ring moved on.

    One thread at a time may call its methods, but for `move`; only the ring itself moves a LIVE cursor aside, under its lock.

    Attributes:
        until: Last version to read, or None.
        reads: Frames of the WAL that it was given, from the disk or from memory.
        read_at: When the last of them was committed, in microseconds since the Unix epoch; 0 if there was none.
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
        kind: Likeness | None = None,
    ) -> None:
        super().__init__(start, owner, group, kind)
        self.until = until
        self.reads = 0
        self.read_at = 0
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
        """Whether something is visible that it has not read."""
        return self.next.version <= self.upto

    @property
    def idle(self) -> bool:
        """Whether the ring serves it, and it has taken all that was linked; may be asked without the lock."""
        return (self.bench or self).place == self._ring.end and self.live

    @property
    def reached(self) -> bool:
        """Whether the ring seems to have what comes next; without its lock, so ask it by `move`."""
        return self._ring.start <= self.next

    def move(self, event: Occurrence, at: Position | None = None) -> StateRow | None:
        """Changes its state as the table says; None if the event means nothing now."""
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
        """Takes what comes next from the ring, by reference and without I/O; None if the ring has moved on.

        With ``whole`` it ends at the end of a transaction, unless that alone is above the bounds.
        """
        # Without the ring's lock: a thousand laggards that took it only to hear this would make a line before it in which
        # each commit waits. Whoever stands meanwhile is served by the ring the next time.
        if self.place is None:
            return None
        # The watermark is read before the ring: all that is at or below it has been linked.
        taken = self._ring.poll(self, self.upto, max_events, max_bytes, whole=whole)
        return None if taken is BEHIND else taken

    def take(self, block: Block, max_events: int, max_bytes: int, *, least: int = 1) -> Slice | None:
        """Takes what matches from a block of the WAL that holds ``next``, and moves behind what it took.

        It takes what fits both bounds, but at least ``least`` changes; if something is left, ``next`` stays before it.
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
            self.next = end
            return None
        piece = found.first(max_events, max_bytes, least=least)
        if not piece.indices:
            return None
        self.next = end if piece is found else Position(block.version, piece.indices[-1] + 1)
        return piece

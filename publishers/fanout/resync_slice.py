"""What one turn reads from the WAL for one subscriber: with its cursor, within its bounds, and maybe in whole transactions."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.errors import HistoryPruned, LogError, PenstockError
from publishers.fanout.batch import Batch
from publishers.fanout.cursor import Cursor
from publishers.fanout.remainder import Remainder
from publishers.fanout.replayer import FrameCache
from publishers.fanout.service import Service
from publishers.fanout.shared_publisher import SharedPublisher, Standing
from publishers.fanout.state import Phase
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.views.view import View
from publishers.wal import Location

__all__ = ["ResyncReader", "SliceBounds", "read_kept", "read_slice"]

_AT_HAND: Final = 64
"""Frames that are looked at in one turn on a subscriber's executor, which others may wait for."""

_AT_ONCE: Final = 16 * 1024
"""Bytes of frames that are asked for at a time."""

_FEW: Final = 16
"""Below so many changes to read, the frames that follow are read as well, for the next requests."""


@dataclass(slots=True)
class SliceBounds:
    """How much to take.

    Attributes:
        upto: The newest version that may be read.
        events: Most changes.
        nbytes: Most bytes of changes.
        weight: Bytes of frames after which the turn is over.
        whole: Whether to end at the end of a transaction, unless that alone is above the bounds.
        window: Where in a segment to end: at the frame that begins at or behind a multiple of so many bytes; 0 for anywhere.
    """

    upto: int
    events: int
    nbytes: int
    weight: int
    whole: bool
    window: int = 0


def read_slice(cursor: Cursor, frames: FrameCache, bounds: SliceBounds, taken: list[Slice]) -> None:
    """Reads on from where the cursor is; what matches is added to ``taken``, also if something is raised.

    Raises:
        HistoryPruned: If the cursor's place is no longer kept.
        WalCorrupted: If a frame is damaged.
        LogError: If the log ends too early.
    """
    upto, room, space, budget = bounds.upto, bounds.events, bounds.nbytes, bounds.weight
    complete = None  # the place after the last whole transaction, and how many slices were taken by then
    run: Iterator[tuple[Block, Location]] = iter(())
    fresh = cursor.location is None
    location = cursor.location or frames.locate(*cursor.next)
    while cursor.next.version <= upto and room > 0 and (budget > 0 or (bounds.whole and cursor.next.index)):
        found = next(run, None)
        if found is None:
            run = iter(frames.run(location, min(budget, space, _AT_ONCE), room if room >= _FEW else 0))
            found = next(run, None)
        if found is None or found[0].version > upto:
            if fresh and cursor.next.index:  # the version where it began has no such index
                cursor.next = Position(upto + 1, 0)
                break
            raise LogError(f"the log ends before {cursor.next}, although version {upto} was published")
        block, after = found
        piece = cursor.take(block, room, space, least=0 if taken else 1)
        if piece is not None:
            taken.append(piece)
            room -= len(piece.indices)
            space -= piece.nbytes
        if cursor.next < block.end:
            cursor.location = location
            break
        budget -= block.weight
        cursor.location = after
        fresh = False
        if block.ends:
            complete = (cursor.next, after, len(taken))
        if bounds.window and after[1] // bounds.window != location[1] // bounds.window:
            break
        location = after
    if bounds.whole and cursor.next.index and complete is not None and complete[2]:
        cursor.next, cursor.location, kept = complete
        del taken[kept:]


def read_kept(cursor: Cursor, frames: FrameCache, upto: int, events: int, nbytes: int) -> list[Slice]:
    """What is at hand of some frames from where the cursor is, without reading the disk; empty if nothing is."""
    taken: list[Slice] = []
    for _ in range(_AT_HAND):
        if events <= 0 or nbytes <= 0 or cursor.location is None or cursor.next.version > upto:
            break
        found = frames.peek(cursor.location)
        if found is None or found[0].version > upto:
            break
        block, after = found
        piece = cursor.take(block, events, nbytes, least=0 if taken else 1)
        if piece is not None:
            taken.append(piece)
            events -= len(piece.indices)
            nbytes -= piece.nbytes
        if cursor.next < block.end:
            break
        cursor.location = after
    return taken


class ResyncReader:
    """Reads from the WAL for one subscription; by the holder of its cursor.

    Args:
        service: What all subscriptions of the log share.
        shared: The publisher of its criteria.
        cursor: Its place, which is moved behind what is read.
        view: How it sees changes.
        events: Most changes of a batch.
        nbytes: Most bytes of a batch.
        whole: Whether batches end at the end of a transaction, unless that alone is above the bounds.

    Attributes:
        alone: Whether it reads nothing together with others.
        rest: What is left of the frame from which it was given the last change, if it asks for one at a time.
    """

    __slots__ = ("_bounds", "_cursor", "_service", "_shared", "_view", "_whole", "alone", "rest")

    def __init__(
        self,
        service: Service,
        shared: SharedPublisher,
        cursor: Cursor,
        view: View,
        events: int,
        nbytes: int,
        *,
        whole: bool,
    ) -> None:
        self._service = service
        self._shared = shared
        self._cursor = cursor
        self._view = view
        self._bounds = (events, nbytes)
        self._whole = whole
        self.alone = False
        self.rest: Remainder | None = None

    def next(self, limit: int) -> Change | None:
        """The next change of the frame from which the last one came, if one is wanted and nothing has come between."""
        rest, cursor = self.rest, self._cursor
        if limit == 1 and rest is not None and rest.next is cursor.next and cursor.phase is Phase.RESYNC:
            change = rest.take()
            if change is not None:
                cursor.next = rest.next
                return change
        self.drop()
        return None

    def pause(self) -> None:
        """Its subscriber rests: what it was given is counted, and nothing is kept for it."""
        if self.rest is not None:
            self.rest.pause(self._service.deliveries)

    def drop(self) -> None:
        """Forgets what is left of a frame; what was taken of it is counted."""
        self.pause()
        self.rest = None

    def at_hand(self, upto: int, limit: int, demand: int) -> tuple[Batch | None, Batch | None]:
        """What comes next as far as it is in memory: at most ``limit`` changes, and what was read with them, if any.

        Of single frames, one that could read with others gets nothing: it goes where they read, so that it comes to where
        they are. So does one that is expensive to match, since this may run on everybody's event loop.
        """
        again = self._again(upto, demand)
        if again is not None:
            return again.cut(limit)
        events, nbytes = self._bounds
        if self._whole or self._shared.standing is Standing.DETACHED or (self._company and demand >= events):
            return None, None
        cursor = self._cursor
        pieces = read_kept(cursor, self._service.frames, upto, limit, nbytes)
        if not pieces:
            return None, None
        block, after = pieces[-1].block, cursor.next
        if limit == 1 and not self.alone and after.index and after.version == block.version:
            self.rest = Remainder(block, self._shared.predicate, self._view, after)
        return Batch(tuple(pieces), after, self._view), None

    def read(self, upto: int, demand: int) -> Batch | None:
        """One turn on the replayer; None if nothing matches in what was read.

        Raises:
            HistoryPruned: If the cursor's place is no longer kept.
            WalCorrupted: If a frame is damaged.
            LogError: If the log ends too early.
        """
        batch = self._again(upto, demand)
        if batch is not None:
            return batch
        cursor, service = self._cursor, self._service
        begin, reads = cursor.next, cursor.reads
        events, nbytes = self._bounds
        weight = service.options.replay_slice_bytes
        bounds = SliceBounds(
            upto, min(demand, events), nbytes, weight, self._whole, weight if self._company else 0
        )
        taken: list[Slice] = []
        try:
            read_slice(cursor, service.frames, bounds, taken)
        except HistoryPruned as error:
            if error.oldest <= cursor.next:
                cursor.location = None  # only what had been looked up is gone
            elif not taken:
                raise
        if not taken:
            return None
        if bounds.events < _FEW and not service.replayer.waiting:
            self._read_ahead(upto)
        batch = Batch(tuple(taken), cursor.next, self._view)
        if bounds.window and bounds.events >= service.options.batch_events and cursor.location is not None:
            service.stretches.keep(self._shared.predicate, begin, cursor.reads - reads, cursor, batch)
        return batch

    def _read_ahead(self, upto: int) -> None:
        """Has what follows in memory too, as one who asks for little would come here again for each frame."""
        frames, location = self._service.frames, self._cursor.location
        left = min(self._service.options.replay_slice_bytes, frames.max_bytes // 4)
        with contextlib.suppress(PenstockError, OSError):  # it is met again when it is the next
            while location is not None and left > 0:
                found = frames.read(location)
                if found is None or found[0].version >= upto:
                    break
                left -= found[0].nbytes
                location = found[1]

    @property
    def _company(self) -> bool:
        """Whether other subscriptions may want the same."""
        return len(self._shared.subscriptions) > 1 and not (self._whole or self.alone)

    def _again(self, upto: int, demand: int) -> Batch | None:
        """What comes next, if another subscription has read it not long ago."""
        if not self._company:
            return None
        events, nbytes = self._bounds
        stretches, predicate = self._service.stretches, self._shared.predicate
        return stretches.take(predicate, self._cursor, self._view, upto, min(demand, events), nbytes)

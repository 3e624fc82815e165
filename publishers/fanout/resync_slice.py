"""One turn of reading the WAL for one subscription: within its bounds, in whole transactions if it asks for them; and the rest of a frame for one that asks for one change at a time."""

import contextlib
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.criteria.predicate import Predicate
from publishers.errors import HistoryPruned, LogError, PenstockError
from publishers.fanout.batch import Batch
from publishers.fanout.counters import DeliveryCounters
from publishers.fanout.cursor import Cursor
from publishers.fanout.replayer import FrameCache
from publishers.fanout.service import Service
from publishers.fanout.shared_publisher import PublisherState, SharedPublisher
from publishers.fanout.state import Phase
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.options import KIB
from publishers.views.view import View
from publishers.wal import Location

__all__ = ["REPLAY_SLICE_BYTES", "Remainder", "ResyncReader", "SliceBounds", "read_kept", "read_slice"]

REPLAY_SLICE_BYTES: Final = 64 * KIB
"""Bytes that the replayer reads for one subscriber in a turn, or one frame if that is larger: so others wait for a turn of it only."""

_AHEAD: Final = 64
"""``Change`` objects that are created at a time."""


class Remainder:
    """The rest of a frame, used by the holder of the cursor that took the changes before it.

    It is not a queue: a change in it counts as read only once it is taken. It is valid only while the cursor stands exactly
    where the last ``take`` left it. During a turn of the subscription it keeps up to 64 changes ready. At rest it holds only
    a weak reference to the frame, so it costs the same however large the frame is, and ends when the frame leaves memory.

    Attributes:
        next: The position behind the last change taken.
    """

    __slots__ = ("_block", "_held", "_made", "_places", "_predicate", "_taken", "_view", "next")

    def __init__(self, block: Block, predicate: Predicate, view: View, place: Position) -> None:
        self.next: Position = place
        self._block: Callable[[], Block | None] = weakref.ref(block)
        self._predicate = predicate
        self._view = view
        self._held: Block | None = None  # while a turn lasts
        self._made: list[Change] = []  # in reverse order, so that pop() returns the next one
        self._places: list[int] = []  # their indices, in reverse order; -1 marks the end of the frame
        self._taken: list[int] = []  # indices of changes taken and not counted yet

    def take(self) -> Change | None:
        """Takes the next change and sets ``next`` behind it; None if there is none, or the frame has left memory."""
        if not self._made and not self._make():
            return None
        block, change, index = self._held, self._made.pop(), self._places.pop()
        assert block is not None
        self._taken.append(index)
        if self._places == _OVER:
            self.next, self._block = block.end, _nothing
        else:
            self.next = tuple.__new__(Position, (block.version, index + 1))
        return change

    def pause(self, counters: DeliveryCounters) -> None:
        """Counts the changes taken, and drops its reference to the frame and the changes made from it."""
        if self._held is not None:
            counters.count((Slice(self._held, self._taken),))
            self._held = None
            self._taken, self._made, self._places = [], [], []

    def _make(self) -> bool:
        block = self._block()
        if block is None:
            return False
        indices = self._predicate.select(block)
        place = bisect_left(indices, self.next.index)
        some = indices[place : place + _AHEAD]
        if not some:
            return False
        self._held = block
        self._made = block.changes(some, self._view)[::-1]
        self._places = list(some)
        if place + _AHEAD >= len(indices):
            self._places.append(-1)
        self._places.reverse()
        return True


_OVER: Final = [-1]


def _nothing() -> None: ...


_AT_HAND: Final = 64
"""Most frames examined in one turn on a subscriber's executor, which other subscribers may share."""

_AT_ONCE: Final = 16 * 1024
"""Bytes of frames requested from the cache at a time."""

_FEW: Final = 16
"""With fewer changes than this to read, the frames that follow are read ahead for the next requests."""


@dataclass(slots=True)
class SliceBounds:
    """The bounds of one turn.

    Attributes:
        upto: The newest version that may be read.
        events: Most changes.
        nbytes: Most bytes of changes.
        weight: Bytes of frames after which the turn ends.
        whole: Whether to end at the end of a transaction, unless the transaction alone is above the bounds.
        window: Bytes of a window of a segment. The turn ends before the first frame that begins in another window; 0 for no
            windows.
    """

    upto: int
    events: int
    nbytes: int
    weight: int
    whole: bool
    window: int = 0


def read_slice(cursor: Cursor, frames: FrameCache, bounds: SliceBounds, taken: list[Slice]) -> None:
    """Reads on from the cursor and moves it; appends the matching slices to ``taken``, which keeps them if an error is raised.

    Raises:
        HistoryPruned: If the cursor's position is no longer kept.
        WalCorrupted: If a frame is damaged.
        LogError: If the log ends before a version that was published.
    """
    upto, room, space, budget = bounds.upto, bounds.events, bounds.nbytes, bounds.weight
    # After the last whole transaction: position, location, and the number of slices taken by then.
    complete = None
    run: Iterator[tuple[Block, Location]] = iter(())
    fresh = cursor.location is None
    location = cursor.location or frames.locate(*cursor.next)
    while cursor.next.version <= upto and room > 0 and (budget > 0 or (bounds.whole and cursor.next.index)):
        found = next(run, None)
        if found is None:
            run = iter(frames.run(location, min(budget, space, _AT_ONCE), room if room >= _FEW else 0))
            found = next(run, None)
        if found is None or found[0].version > upto:
            # The first version has fewer changes than the start position's index.
            if fresh and cursor.next.index:
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
    """Takes matching slices from frames in memory, from the cursor on, without I/O; empty if the next frame is not there."""
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
    """Reads from the WAL for one subscription. Only the owner of the cursor may call it.

    Args:
        service: The objects that all subscriptions of the log share.
        shared: The publisher of its criteria.
        cursor: Its cursor, which is moved behind the changes read.
        view: How it sees changes.
        events: Most changes of a batch.
        nbytes: Most bytes of a batch.
        whole: Whether batches end at the end of a transaction, unless the transaction alone is above the bounds.

    Attributes:
        alone: Whether it shares no reads with other subscriptions.
        rest: The rest of the frame of the last change, while the subscription requests one change at a time; else None.
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
        self.alone: bool = False
        self.rest: Remainder | None = None

    def next(self, limit: int) -> Change | None:
        """Returns the next change of the last change's frame, if one change is requested and the cursor has not moved since."""
        rest, cursor = self.rest, self._cursor
        if limit == 1 and rest is not None and rest.next is cursor.next and cursor.phase is Phase.RESYNC:
            change = rest.take()
            if change is not None:
                cursor.next = rest.next
                return change
        self.drop()
        return None

    def pause(self) -> None:
        """Ends a turn of the subscription: counts the changes taken from ``rest``, which then keeps no frame in memory."""
        if self.rest is not None:
            self.rest.pause(self._service.deliveries)

    def drop(self) -> None:
        """Drops ``rest``; the changes taken from it are counted."""
        self.pause()
        self.rest = None

    def at_hand(self, upto: int, limit: int, demand: int) -> tuple[Batch | None, Batch | None]:
        """Reads the next changes if they are in memory.

        It reads no single frames in two cases, and the subscription goes to the replayer instead. One that may share reads
        with others reads there in the same windows, so that their positions become equal. One that is expensive to match must
        not run on an event loop that other subscribers share.

        Returns:
            At most ``limit`` changes, and the changes that were read together with them; None for none.
        """
        again = self._again(upto, demand)
        if again is not None:
            return again.cut(limit)
        events, nbytes = self._bounds
        if (
            self._whole
            or self._shared.state is PublisherState.DETACHED
            or (self._company and demand >= events)
        ):
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
        """Reads for one turn at the replayer; None if nothing in it matches.

        Raises:
            HistoryPruned: If the cursor's position is no longer kept.
            WalCorrupted: If a frame is damaged.
            LogError: If the log ends before a version that was published.
        """
        batch = self._again(upto, demand)
        if batch is not None:
            return batch
        cursor, service = self._cursor, self._service
        begin, reads = cursor.next, cursor.reads
        events, nbytes = self._bounds
        bounds = SliceBounds(
            upto,
            min(demand, events),
            nbytes,
            REPLAY_SLICE_BYTES,
            self._whole,
            REPLAY_SLICE_BYTES if self._company else 0,
        )
        taken: list[Slice] = []
        try:
            read_slice(cursor, service.frames, bounds, taken)
        except HistoryPruned as error:
            if error.oldest <= cursor.next:
                cursor.location = None  # the position is kept; only its remembered location is gone
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
        """Reads the following frames into the cache. A subscription with little demand would else come here for each frame."""
        frames, location = self._service.frames, self._cursor.location
        left = min(REPLAY_SLICE_BYTES, frames.max_bytes // 4)
        with contextlib.suppress(
            PenstockError, OSError
        ):  # the error comes again when that frame is the next one
            while location is not None and left > 0:
                found = frames.read(location)
                if found is None or found[0].version >= upto:
                    break
                left -= found[0].nbytes
                location = found[1]

    @property
    def _company(self) -> bool:
        """Whether it may share reads with other subscriptions."""
        return len(self._shared.subscriptions) > 1 and not (self._whole or self.alone)

    def _again(self, upto: int, demand: int) -> Batch | None:
        """Returns the next batch if another subscription has read it recently; else None."""
        if not self._company:
            return None
        events, nbytes = self._bounds
        stretches, predicate = self._service.stretches, self._shared.predicate
        return stretches.take(predicate, self._cursor, self._view, upto, min(demand, events), nbytes)

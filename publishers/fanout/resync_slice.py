"""What one turn reads from the WAL for one subscriber: with its cursor, within its bounds, and maybe in whole transactions."""

from dataclasses import dataclass

from publishers.blocks.slices import Slice
from publishers.errors import LogError
from publishers.fanout.cursor import Cursor
from publishers.fanout.replayer import FrameCache
from publishers.model.position import Position

__all__ = ["SliceBounds", "read_kept", "read_slice"]


@dataclass(slots=True)
class SliceBounds:
    """How much to take.

    Attributes:
        upto: The newest version that may be read.
        events: Most changes.
        nbytes: Most bytes of changes.
        weight: Bytes of frames after which the turn is over.
        whole: Whether to end at the end of a transaction, unless that alone is above the bounds.
    """

    upto: int
    events: int
    nbytes: int
    weight: int
    whole: bool


def read_slice(cursor: Cursor, frames: FrameCache, bounds: SliceBounds, taken: list[Slice]) -> None:
    """Reads on from where the cursor is; what matches is added to ``taken``, also if something is raised.

    Raises:
        HistoryPruned: If the cursor's place is no longer kept.
        WalCorrupted: If a frame is damaged.
        LogError: If the log ends too early.
    """
    upto, room, space, budget = bounds.upto, bounds.events, bounds.nbytes, bounds.weight
    complete = None  # the place after the last whole transaction, and how many slices were taken by then
    while cursor.next.version <= upto and room > 0 and (budget > 0 or (bounds.whole and cursor.next.index)):
        fresh = cursor.location is None
        location = cursor.location or frames.locate(*cursor.next)
        found = frames.read(location)
        if found is None or found[0].version > upto:
            if fresh and cursor.next.index:  # the version where it began has no such index
                cursor.next = Position(upto + 1, 0)
                break
            raise LogError(f"the log ends before {cursor.next}, although version {upto} was published")
        block, after = found
        cursor.location = location
        for piece in cursor.take(block, room, space, least=0 if taken else 1):
            taken.append(piece)
            room -= len(piece.indices)
            space -= piece.nbytes
        if cursor.next < block.end:
            break
        budget -= block.weight
        cursor.location = after
        if block.ends:
            complete = (cursor.next, after, len(taken))
    if bounds.whole and cursor.next.index and complete is not None and complete[2]:
        cursor.next, cursor.location, kept = complete
        del taken[kept:]


def read_kept(cursor: Cursor, frames: FrameCache, upto: int, events: int, nbytes: int) -> list[Slice]:
    """What is at hand of the frame where the cursor is, without reading the disk; empty if nothing is."""
    if cursor.location is None or cursor.next.version > upto:
        return []
    found = frames.peek(cursor.location)
    if found is None or found[0].version > upto:
        return []
    block, after = found
    pieces = cursor.take(block, events, nbytes)
    if cursor.next >= block.end:
        cursor.location = after
    return pieces

"""What lies in a ring: the matching changes of one transaction, several of these in a row, and how much it is in all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from publishers.blocks.block import BLOCK_BYTES
from publishers.blocks.slices import Slice
from publishers.fanout.batch import Batch
from publishers.model.position import Position
from publishers.views.view import View

__all__ = ["Ahead", "Asked", "Chunk", "Likeness", "Polled", "RingStatistics", "fitting", "polled_from"]


class Chunk:
    """The matching changes of one transaction; immutable once a ring has given it its place.

    Attributes:
        version: Of the transaction.
        place: In the ring.
        slices: The changes.
        events: How many they are.
        nbytes: Their stored bytes, roughly: what a batch of them counts.
        weight: What it keeps in memory, roughly: blocks as a whole, however few of their changes match.
    """

    __slots__ = ("events", "nbytes", "place", "slices", "version", "weight")

    def __init__(self, version: int, slices: tuple[Slice, ...]) -> None:
        self.version = version
        self.place = 0
        self.slices = slices
        events = nbytes = weight = 0
        for part in slices:
            events += len(part.indices)
            nbytes += part.nbytes
            weight += BLOCK_BYTES + part.block.weight
        self.events = events
        self.nbytes = nbytes
        self.weight = weight + 64 * events

    def since(self, index: int) -> list[Slice]:
        """What lies at or after an index."""
        return [rest for part in self.slices if len(rest := part.since(index))]


class Ahead(NamedTuple):
    """Some chunks in a row, for all who stand before them.

    Attributes:
        place: Of the first.
        end: The place behind the last.
        first: Version of the first.
        next: The position behind the last.
        slices: What they hold.
        events: How many changes that is.
        batches: What was made of it, by view, for all who get it.
    """

    place: int
    end: int
    first: int
    next: Position
    slices: tuple[Slice, ...]
    events: int
    batches: dict[View, Batch]

    def batch(self, view: View) -> Batch:
        """The changes as one view sees them, made once for all who get them."""
        made = self.batches.get(view)
        if made is None:
            made = self.batches[view] = Batch(self.slices, self.next, view)
        return made


class Likeness(NamedTuple):
    """What subscriptions have in common that are given the very same.

    Attributes:
        view: How they see changes.
        batches: Whether they take batches.
        max_events, max_bytes: Bounds of one batch.
        asks: Whether each may have to wait although it has demand.
    """

    view: View
    batches: bool
    max_events: int
    max_bytes: int
    asks: bool


Asked = tuple[int, Position, int, int, bool]
"""Where a cursor stands, its position, and how much it asks for: changes, bytes, and whether whole transactions."""


class Polled(NamedTuple):
    """What a cursor polled, for all that poll at that place with the same bounds.

    Attributes:
        slices: The changes.
        more: Whether more are at hand.
        batches: What was made of it, by view, for all who get it.
        upto: The watermark.
        end: The place behind the last chunk that was linked.
        place: Of the first chunk that is not taken, or not as a whole.
        next: The position behind what was taken.
        events: How many changes that is.
    """

    slices: tuple[Slice, ...]
    more: bool
    batches: dict[View, Batch]
    upto: int
    end: int
    place: int
    next: Position
    events: int

    def batch(self, view: View) -> Batch:
        """The changes as one view sees them, made once for all who get them."""
        made = self.batches.get(view)
        if made is None:
            made = self.batches[view] = Batch(self.slices, self.next, view)
        return made

    def holds(self, upto: int, end: int) -> bool:
        """Whether it holds for a later watermark too: if it ended at a bound, or nothing was linked, or became visible, since."""
        return (self.upto, self.end) == (upto, end) or (self.more and self.upto <= upto)


@dataclass(frozen=True, slots=True)
class RingStatistics:
    """What a ring holds, and what has passed through it.

    Attributes:
        start: The oldest position that it covers.
        chunks, events, nbytes: What is present; the blocks in memory as a whole, however few of their changes match.
        live: Cursors that it serves.
        linked_events: Changes that it has accepted.
        evicted_events: Changes that went because of a bound, before all LIVE cursors had taken them.
        refused_chunks: Transactions that were larger than its bounds.
        copied_events: Changes that cursors have taken from it; one that several took counts for each.
        available_events: Changes for which it has room.
    """

    start: Position
    chunks: int
    events: int
    nbytes: int
    live: int
    linked_events: int
    evicted_events: int
    refused_chunks: int
    copied_events: int = 0
    available_events: int = 0


def fitting(parts: Sequence[Slice], max_events: int, max_bytes: int, *, least: int) -> list[Slice]:
    """As much from the front as fits both bounds, but at least ``least`` changes."""
    pieces: list[Slice] = []
    for part in parts:
        piece = part.first(max_events, max_bytes, least=0 if pieces else least)
        if len(piece):
            pieces.append(piece)
        if len(piece) < len(part):
            break
        max_events -= len(piece)
        max_bytes -= piece.nbytes
    return pieces


def polled_from(chunks: Sequence[Chunk], end: int, asked: Asked, upto: int) -> Polled:
    """What comes next for all cursors that stand at a place and ask for as much."""
    place, after, max_events, max_bytes, whole = asked
    taken: list[Slice] = []
    base = chunks[0].place if chunks else end
    while (at := place - base) < len(chunks) and chunks[at].version <= upto:
        chunk = chunks[at]
        if max_events <= 0 or (max_bytes <= 0 and taken):
            break
        begins = not (after.index and after.version == chunk.version)
        if begins and chunk.events <= max_events and chunk.nbytes <= max_bytes:
            taken += chunk.slices
            max_events -= chunk.events
            max_bytes -= chunk.nbytes
        elif whole and begins and taken:
            break
        else:
            parts = chunk.slices if begins else chunk.since(after.index)
            pieces = fitting(parts, max_events, max_bytes, least=0 if taken else 1)
            taken += pieces
            max_events -= sum(map(len, pieces))
            max_bytes -= sum(piece.nbytes for piece in pieces)
            if sum(map(len, pieces)) < sum(map(len, parts)):
                if pieces:
                    after = Position(chunk.version, pieces[-1].indices[-1] + 1)
                break
        place += 1
        after = tuple.__new__(Position, (chunk.version + 1, 0))
    more = at < len(chunks) and chunks[at].version <= upto
    if not more:
        after = max(after, tuple.__new__(Position, (upto + 1, 0)))
    elif after.version < chunks[at].version:
        after = Position(chunks[at].version, 0)
    return Polled(tuple(taken), more, {}, upto, end, place, after, asked[2] - max_events)

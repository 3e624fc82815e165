"""The contents of a ring: chunks (the matching changes of one transaction), runs of chunks, and their statistics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from publishers.blocks.block import BLOCK_BYTES
from publishers.blocks.slices import Slice
from publishers.fanout.batch import Batch
from publishers.model.position import Position
from publishers.views.view import View

__all__ = [
    "Ahead",
    "Chunk",
    "DeliveryKind",
    "PollQuery",
    "Polled",
    "RingStatistics",
    "fitting",
    "polled_from",
]


class Chunk:
    """The matching changes of one transaction; immutable once a ring has set its place.

    Attributes:
        version: Version of the transaction.
        place: Its number in the ring; places only rise.
        slices: The changes.
        events: Number of changes.
        nbytes: Their stored bytes, roughly; bounds of batches count these.
        weight: Bytes that it keeps in memory, roughly; bounds of rings count these. Each block counts as a whole, however few
            of its changes match.
    """

    __slots__ = ("events", "nbytes", "place", "slices", "version", "weight")

    def __init__(self, version: int, slices: tuple[Slice, ...]) -> None:
        self.version: int = version
        self.place: int = 0
        self.slices: tuple[Slice, ...] = slices
        events = nbytes = weight = 0
        for part in slices:
            events += len(part.indices)
            nbytes += part.nbytes
            weight += BLOCK_BYTES + part.block.weight
        self.events: int = events
        self.nbytes: int = nbytes
        self.weight: int = weight + 64 * events

    def since(self, index: int) -> list[Slice]:
        """The changes at or after an index."""
        return [rest for part in self.slices if len(rest := part.since(index))]


class Ahead(NamedTuple):
    """Consecutive chunks, taken once for all cursors that stand before them.

    Attributes:
        place: Place of the first chunk.
        end: The place behind the last chunk.
        first: Version of the first chunk.
        next: The position behind the last chunk.
        slices: Their changes.
        events: Number of changes.
        batches: The batches made from them, by view; shared by all receivers.
    """

    place: int
    end: int
    first: int
    next: Position
    slices: tuple[Slice, ...]
    events: int
    batches: dict[View, Batch]

    def batch(self, view: View) -> Batch:
        """The changes as one view shows them; created once for all receivers."""
        made = self.batches.get(view)
        if made is None:
            made = self.batches[view] = Batch(self.slices, self.next, view)
        return made


class DeliveryKind(NamedTuple):
    """The properties that subscriptions must share to receive the same batch object.

    Attributes:
        view: How they see changes.
        batches: Whether they receive whole batches (``on_next_batch``).
        max_events, max_bytes: Bounds of one batch.
        asks: Whether a member may be busy although it has demand, so that each must be asked.
    """

    view: View
    batches: bool
    max_events: int
    max_bytes: int
    asks: bool


PollQuery = tuple[int, Position, int, int, bool]
"""The arguments of a poll: the cursor's place and position, most changes, most bytes, and whether to end at a transaction."""


class Polled(NamedTuple):
    """The result of one poll, shared by all cursors that poll from the same place with the same bounds.

    Attributes:
        slices: The changes.
        more: Whether further visible changes are in the ring.
        batches: The batches made from it, by view; shared by all receivers.
        upto: The watermark of the poll.
        end: The place behind the last chunk that was linked then.
        place: Place of the first chunk that was not taken completely.
        next: The position behind the changes taken.
        events: Number of changes.
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
        """The changes as one view shows them; created once for all receivers."""
        made = self.batches.get(view)
        if made is None:
            made = self.batches[view] = Batch(self.slices, self.next, view)
        return made

    def holds(self, upto: int, end: int) -> bool:
        """Whether a poll now would have the same result.

        It would if the poll ended at a bound, or if since then no chunk was linked and the watermark did not advance.
        """
        return (self.upto, self.end) == (upto, end) or (self.more and self.upto <= upto)


@dataclass(frozen=True, slots=True)
class RingStatistics:
    """What a ring holds, and its counters.

    Attributes:
        start: The oldest position that it covers.
        chunks, events, nbytes: Chunks, changes and bytes present. A block counts as a whole, however few of its changes match.
        live: Cursors that stand in the ring.
        linked_events: Changes linked in all.
        evicted_events: Changes evicted by a bound before all LIVE cursors had taken them.
        refused_chunks: Transactions that were larger than its bounds.
        copied_events: Changes that cursors have taken; a change counts once for each cursor.
        available_events: Further changes for which it has room.
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
    """The longest prefix that fits both bounds, but at least ``least`` changes."""
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


def polled_from(chunks: Sequence[Chunk], end: int, asked: PollQuery, upto: int) -> Polled:
    """Computes the result of a poll up to the watermark ``upto``."""
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

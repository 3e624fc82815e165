"""The unit of delivery: consecutive matching changes as one view shows them."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

from publishers.blocks.slices import Slice, Tally, tally_of
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.views.view import View

__all__ = ["Batch"]


class Batch(Sequence[Change]):
    """Consecutive matching changes, as references into the log's blocks.

    It is a sequence of ``Change`` objects, which are created on first use. A transport encodes the slices and never creates
    them.

    Attributes:
        slices: The changes.
        end: The position after them; resume there to continue behind this batch.
        view: How the subscriber sees them.
        memo: Values that receivers derived from this batch, such as encodings, by their own keys; shared by all receivers.
    """

    __slots__ = ("_changes", "_size", "_tally", "end", "memo", "slices", "view")

    def __init__(self, slices: tuple[Slice, ...], end: Position, view: View) -> None:
        self.slices: tuple[Slice, ...] = slices
        self.end: Position = end
        self.view: View = view
        size = 0
        for part in slices:
            size += len(part.indices)
        self._size = size
        self._changes: tuple[Change, ...] | None = None
        self._tally: Tally | None = None
        self.memo: dict[str, Any] = {}

    @property
    def boundary(self) -> bool:
        """Whether the batch ends at the end of a transaction."""
        return self.end.index == 0

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes, created once for all receivers of this batch."""
        made = self._changes
        if made is None:
            found: list[Change] = []
            for part in self.slices:
                found += part.block.changes(part.indices, self.view)
            made = self._changes = tuple(found)
        return made

    @property
    def tally(self) -> Tally:
        """Number of changes by area and entity type; counted once for all receivers, or as set by `DeliveryCounters`."""
        if self._tally is None:
            self._tally = tally_of(self.slices)
        return self._tally

    @tally.setter
    def tally(self, tally: Tally) -> None:
        self._tally = tally

    def cut(self, events: int) -> "tuple[Batch, Batch | None]":
        """Splits off at most ``events`` changes from the front; returns them and the rest, None if there is no rest."""
        if events >= self._size:
            return self, None
        front: list[Slice] = []
        rest = list(self.slices)
        while events >= len(rest[0]):
            events -= len(rest[0])
            front.append(rest.pop(0))
        block, indices = rest[0].block, rest[0].indices
        if events:
            front.append(Slice(block, indices[:events]))
            rest[0] = Slice(block, indices[events:])
        end = Position(block.version, indices[events])
        return Batch(tuple(front), end, self.view), Batch(tuple(rest), self.end, self.view)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Change]:
        for part in self.slices:
            yield from part.block.changes(part.indices, self.view)

    @overload
    def __getitem__(self, place: int) -> Change: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Change]: ...
    def __getitem__(self, place: int | slice) -> Change | Sequence[Change]:
        if isinstance(place, slice):
            return list(self)[place]
        if place < 0:
            place += self._size
        if place >= 0:
            for part in self.slices:
                if place < len(part):
                    return part.block.change(part.indices[place], self.view)
                place -= len(part)
        raise IndexError("batch index out of range")

    def __repr__(self) -> str:
        return f"<Batch of {self._size} to {self.end}>"

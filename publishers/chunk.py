"""What lies in a ring: the matching changes of one transaction, and several of these in a row."""

from collections.abc import Sequence
from typing import NamedTuple

from publishers.position import Position
from publishers.slices import Slice

__all__ = ["Ahead", "Chunk", "fitting"]


class Chunk:
    """The matching changes of one transaction; immutable once a ring has given it its place."""

    __slots__ = ("events", "nbytes", "place", "slices", "version")

    def __init__(self, version: int, slices: tuple[Slice, ...]) -> None:
        self.version = version
        self.place = 0
        self.slices = slices
        self.events = sum(map(len, slices))
        self.nbytes = sum(part.nbytes for part in slices)

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
        nbytes: How many bytes that is, roughly.
        more: Whether visible chunks follow.
    """

    place: int
    end: int
    first: int
    next: Position
    slices: tuple[Slice, ...]
    events: int
    nbytes: int
    more: bool


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

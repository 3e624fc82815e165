"""Slices of blocks, the parts of chunks and batches."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from publishers.blocks.block import Block
from publishers.model.change import Area

__all__ = ["Slice", "Tally", "tally_of"]

Tally = Mapping[tuple[int, str | None], int]
"""The number of changes by area (its number) and entity type."""

_EVENT: Final = (int(Area.INFRASTRUCTURE), None)


class Slice:
    """Selected changes of one block, in order: references, never copies.

    Attributes:
        block: The block.
        indices: Indices of the selected changes, ascending.
    """

    __slots__ = ("_nbytes", "_tally", "block", "indices")

    def __init__(self, block: Block, indices: Sequence[int]) -> None:
        self.block: Block = block
        self.indices: Sequence[int] = indices
        self._nbytes = -1
        self._tally: Tally | None = None

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def nbytes(self) -> int:
        """Approximate stored bytes of these changes."""
        if self._nbytes < 0:
            block, events = self.block, len(self.indices)
            whole = events >= block.count
            self._nbytes = block.weight + 64 * events if whole else self._size(events)
        return self._nbytes

    @property
    def tally(self) -> Tally:
        """The number of these changes by kind; counted on first use, unless it was set."""
        if self._tally is None:
            self._tally = _tally_of(self.block, self.indices)
        return self._tally

    @tally.setter
    def tally(self, tally: Tally) -> None:
        self._tally = tally

    def since(self, index: int) -> "Slice":
        """Returns the changes from ``index`` on."""
        place = bisect_left(self.indices, index)
        return Slice(self.block, self.indices[place:]) if place else self

    def first(self, events: int, nbytes: int, *, least: int = 1) -> "Slice":
        """Returns the longest prefix within both bounds, but at least ``least`` changes; does not examine the rest."""
        block, indices = self.block, self.indices
        count = min(events, len(indices))
        if block.weight + 64 * count > nbytes:  # else all fit
            if isinstance(indices, range):
                fits = bisect_right(range(1, count + 1), nbytes, key=self._size)
            else:
                sizes = accumulate(map(block.size, indices))
                fits = next((place for place, size in enumerate(sizes) if size > nbytes), count)
            count = min(count, max(least, fits))
        return self if count == len(indices) else Slice(block, indices[:count])

    def _size(self, count: int) -> int:
        """Returns the approximate stored bytes of the first ``count`` of these changes."""
        block, indices = self.block, self.indices
        if isinstance(indices, range) and count:
            return block.size_between(indices[0], indices[count - 1] + 1)
        return sum(map(block.size, indices[:count]))


def tally_of(slices: Sequence[Slice]) -> Tally:
    """Returns the number of changes by kind of several slices together."""
    if len(slices) == 1:
        return slices[0].tally
    found: dict[tuple[int, str | None], int] = {}
    for part in slices:
        for kind, count in part.tally.items():
            found[kind] = found.get(kind, 0) + count
    return found


def _tally_of(block: Block, indices: Sequence[int]) -> Tally:
    found: dict[tuple[int, str | None], int] = {}
    if indices and not indices[0]:
        found[_EVENT] = 1
        indices = indices[1:]
    if not indices:
        return found
    columns, first = block.columns, block.first_index
    ids, values = columns.type_ids, columns.values
    if ids is None and isinstance(indices, range):
        stored = columns.kinds.tobytes()
        if stored.count(stored[:1]) == len(stored):  # the commonest case, and no look at each of them
            what = stored[0] >> 4, columns.entity_types[0]
            found[what] = len(indices)
            return found
    if values is not None and isinstance(indices, range):
        counted = Counter(values[1][indices.start - first : indices.stop - first])
        return found | {(int(Area.DATA), name): n for name, n in counted.items()}
    if isinstance(indices, range):
        rows = slice(indices.start - first, indices.stop - first)
        kinds = bytes(columns.kinds[rows])
        types = None if ids is None else ids[rows].tolist()
    else:
        kinds = bytes([columns.kinds[index - first] for index in indices])
        types = None if ids is None else [ids[index - first] for index in indices]
    names = columns.entity_types
    uniform = kinds.count(kinds[:1]) == len(kinds)
    counts: Mapping[tuple[int, int], int]
    if types is None:
        counts = {(kind, 0): n for kind, n in ({kinds[0]: len(kinds)} if uniform else Counter(kinds)).items()}
    elif uniform:
        counts = {(kinds[0], number): n for number, n in Counter(types).items()}
    else:
        counts = Counter(zip(kinds, types, strict=True))
    for (kind, number), n in counts.items():
        what = kind >> 4, names[number]
        found[what] = found.get(what, 0) + n
    return found

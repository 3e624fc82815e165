"""Some changes of one block: what chunks and batches are made of."""

from bisect import bisect_left
from collections.abc import Sequence

from publishers.block import Block

__all__ = ["Slice"]


class Slice:
    """Some changes of one block, in order: references, never copies.

    Attributes:
        block: Where the changes are.
        indices: Which of them, ascending.
    """

    __slots__ = ("_nbytes", "block", "indices")

    def __init__(self, block: Block, indices: Sequence[int]) -> None:
        self.block = block
        self.indices = indices
        self._nbytes = -1

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def nbytes(self) -> int:
        """Stored bytes of these changes, roughly."""
        if self._nbytes < 0:
            block, events = self.block, len(self.indices)
            whole = events >= block.count
            self._nbytes = block.weight + 64 * events if whole else sum(map(block.size, self.indices))
        return self._nbytes

    def since(self, index: int) -> "Slice":
        """The changes from ``index`` on."""
        place = bisect_left(self.indices, index)
        return Slice(self.block, self.indices[place:]) if place else self

    def first(self, events: int, nbytes: int, *, least: int = 1) -> "Slice":
        """As many changes from the front as fit both bounds, but at least ``least``; looks at no others."""
        block, indices = self.block, self.indices
        count = min(events, len(indices))
        if block.weight + 64 * count > nbytes:  # else they fit, whichever they are
            left = nbytes
            for place in range(count):
                left -= block.size(indices[place])
                if left < 0:
                    count = max(least, place)
                    break
        return self if count == len(indices) else Slice(block, indices[:count])

"""The rest of a frame, for a subscription that requests one change at a time and has received the first one."""

import weakref
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.criteria.predicate import Predicate
from publishers.fanout.counters import DeliveryCounters
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.views.view import View

__all__ = ["Remainder"]

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

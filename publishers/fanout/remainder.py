"""What is left of a frame of which a subscription that asks for one change at a time was given the first."""

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
"""Changes that are made at a time."""


class Remainder:
    """The rest of a frame, for the holder of the cursor that has taken what was before it.

    It is no queue: nothing in it counts as read before it is taken, and it holds only while the cursor stands exactly where the
    last one left it. While the subscription's turn lasts it keeps some changes ready; at rest it refers to the frame
    weakly, so it costs the same however large that is, and ends when nobody else keeps the frame.

    Attributes:
        next: The position behind the last change that was taken.
    """

    __slots__ = ("_block", "_held", "_made", "_places", "_predicate", "_taken", "_view", "next")

    def __init__(self, block: Block, predicate: Predicate, view: View, place: Position) -> None:
        self.next = place
        self._block: Callable[[], Block | None] = weakref.ref(block)
        self._predicate = predicate
        self._view = view
        self._held: Block | None = None  # as long as there are made ones
        self._made: list[Change] = []  # the last comes first
        self._places: list[int] = []  # their indices; behind that of the last one of the frame comes -1
        self._taken: list[int] = []  # and not counted yet

    def take(self) -> Change | None:
        """The next change; None if there is none, or the frame is gone. ``next`` is behind it then."""
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
        """Counts what was taken, and keeps nothing."""
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

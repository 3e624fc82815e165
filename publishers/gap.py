"""A place where history is missing, and what a subscriber wants to become of him there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from publishers.position import Position

__all__ = ["Gap", "OnGap"]


@dataclass(frozen=True, slots=True)
class Gap:
    """History that retention deleted before a subscriber came to it.

    Attributes:
        begin: The first position that he would have read.
        end: The oldest position that is kept, where he goes on.
    """

    begin: Position
    end: Position


OnGap = Literal["fail", "jump"] | Callable[[Gap], object]
"""What happens where history is missing.

``"fail"``
    The subscription ends with ``HistoryPruned``.
``"jump"``
    It goes on at the oldest kept position; the subscriber's ``on_gap(gap)`` is told before the changes that follow.
a callable
    Likewise, and the callable is told.
"""

"""A place where history is missing, and what a subscriber wants to become of him there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from publishers.model.position import Position

__all__ = ["Gap", "OnGap", "require_told"]


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


def require_told(on_gap: OnGap, subscriber: object) -> None:
    """Looks whether a subscriber that wants to jump can be told of gaps.

    Raises:
        TypeError: If not.
    """
    if on_gap == "jump" and not callable(getattr(subscriber, "on_gap", None)):
        raise TypeError(
            "on_gap is 'jump', but the subscriber has no method on_gap: history is never left out in silence"
        )

"""A place where history is missing, and what is to become of a subscription there."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from publishers.model.position import Position

__all__ = ["Gap", "GapNotice", "OnGap", "require_told"]


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


class GapNotice:
    """The gap that a subscriber is to be told of; it grows until that is done.

    Args:
        on_gap: What happens where history is missing.
    """

    def __init__(self, on_gap: OnGap) -> None:
        self.on_gap = on_gap
        self._lock = threading.Lock()  # one thread may tell it while another one makes it longer
        self._gap: Gap | None = None

    def extend(self, begin: Position, end: Position) -> None:
        """Notes that what lies between is missing too."""
        with self._lock:
            self._gap = Gap(begin if self._gap is None else self._gap.begin, end)

    def deliver(self, subscriber: Any) -> None:
        """Tells the gap, if there is one."""
        with self._lock:
            gap, self._gap = self._gap, None
        if gap is not None:
            (self.on_gap if callable(self.on_gap) else subscriber.on_gap)(gap)


def require_told(on_gap: OnGap, subscriber: object) -> None:
    """Looks whether a subscriber that wants to jump can be told of gaps.

    Raises:
        TypeError: If not.
    """
    if on_gap == "jump" and not callable(getattr(subscriber, "on_gap", None)):
        raise TypeError(
            "on_gap is 'jump', but the subscriber has no method on_gap: history is never left out in silence"
        )

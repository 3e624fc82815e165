"""Gaps: history that a subscription has missed, and what the subscription does there."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from publishers.model.position import Position

__all__ = ["Gap", "GapNotice", "OnGap", "require_on_gap"]


@dataclass(frozen=True, slots=True)
class Gap:
    """History that retention deleted before a subscription read it.

    Attributes:
        begin: The first position that the subscription would have read.
        end: The oldest kept position, where the subscription continues.
    """

    begin: Position
    end: Position


OnGap = Literal["fail", "jump"] | Callable[[Gap], object]
"""What happens where history is missing.

``"fail"``
    The subscription ends with ``HistoryPruned``.
``"jump"``
    The subscription continues at the oldest kept position. The subscriber's ``on_gap(gap)`` is called before the changes that
    follow.
a callable
    Like ``"jump"``, but the callable is called with the gap.
"""


class GapNotice:
    """A gap that was not reported to the subscriber yet; further missing history extends it until then.

    Args:
        on_gap: What happens where history is missing.
    """

    def __init__(self, on_gap: OnGap) -> None:
        self.on_gap = on_gap
        self._lock = threading.Lock()  # one thread may report the gap while another extends it
        self._gap: Gap | None = None

    def extend(self, begin: Position, end: Position) -> None:
        """Adds the history from ``begin`` to ``end`` to the gap."""
        with self._lock:
            self._gap = Gap(begin if self._gap is None else self._gap.begin, end)

    def deliver(self, subscriber: Any) -> None:
        """Reports the gap, if there is one, to the callable or to the subscriber's ``on_gap``."""
        with self._lock:
            gap, self._gap = self._gap, None
        if gap is not None:
            (self.on_gap if callable(self.on_gap) else subscriber.on_gap)(gap)


def require_on_gap(on_gap: OnGap, subscriber: object) -> None:
    """Checks that a subscriber with ``on_gap="jump"`` has a method ``on_gap``.

    Raises:
        TypeError: If it has none.
    """
    if on_gap == "jump" and not callable(getattr(subscriber, "on_gap", None)):
        raise TypeError(
            "on_gap is 'jump', but the subscriber has no method on_gap: history is never left out in silence"
        )

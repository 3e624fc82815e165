"""Demand for a protocol that has none: pings between the events, of which a bounded number may be unanswered.

The client's own code answers a ping behind all events that came before it. At most ``every * width`` events, plus the rest
of one batch, are thus in flight. WebSocket pings would prove nothing, because network stacks answer them. For a client that
never answers, only the state of its socket holds events back.
"""

import math
from collections import deque
from typing import Final

__all__ = ["FENCE_EVENTS", "FENCE_TIMEOUT", "FENCE_WIDTH", "Fence"]

FENCE_EVENTS: Final = 50
"""Number of events after which a ping asks whether the client has handled them: a message more for each two percent."""

FENCE_WIDTH: Final = 4
"""Most pings that may be unanswered; no event is sent meanwhile. With `FENCE_EVENTS`, 200 events are on their way, which fill a round trip."""

FENCE_TIMEOUT: Final = 10.0
"""Seconds without an answer after which a connection stops sending pings: its client does not know them, and would get nothing more."""


class Fence:
    """Counts the events and pongs of one connection.

    Args:
        every: The number of events after which a ping is due.
        width: The most pings that may be unanswered.
        timeout: Seconds after which a client that leaves its pings unanswered is treated as one that never answers.
    """

    __slots__ = ("_answers", "_every", "_left", "_number", "_timeout", "_unanswered", "_width")

    def __init__(self, every: int, width: int, timeout: float) -> None:
        self._every = every
        self._width = width
        self._timeout = timeout
        self._left = every
        self._number = 0
        self._unanswered: deque[tuple[int, float]] = deque()
        self._answers = True

    @property
    def shut(self) -> bool:
        """Whether no further event may be sent."""
        return len(self._unanswered) >= self._width

    @property
    def due(self) -> float:
        """The time at which ``expire`` has work to do; infinite for never."""
        return self._unanswered[0][1] + self._timeout if self._unanswered else math.inf

    def count(self, now: float) -> int | None:
        """Counts an event. Returns the number of the ping that has to follow it, or None."""
        if not self._answers:
            return None
        self._left -= 1
        if self._left:
            return None
        self._left = self._every
        self._number += 1
        self._unanswered.append((self._number, now))
        return self._number

    def answered(self, payload: object) -> bool:
        """Handles a pong; returns whether a ping was unanswered. Not every client echoes the payload."""
        fields = payload if isinstance(payload, dict) else {}
        if not self._unanswered or "snapshot" in fields:  # a pong with "snapshot" answers another ping
            return False
        number = fields.get("fence")
        self._unanswered.popleft()
        while isinstance(number, int) and self._unanswered and self._unanswered[0][0] <= number:
            self._unanswered.popleft()
        return True

    def expire(self, now: float) -> bool:
        """Gives up on a client that does not answer in time; returns whether it did."""
        if now < self.due:
            return False
        self._unanswered.clear()
        self._answers = False
        return True

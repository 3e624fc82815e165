"""Demand for a protocol that has none: pings among the events, of which only so many may be unanswered.

A pong is written by the client's own code, behind all events that came before the ping; so at most
``every * width`` events, and what is left of one batch, are under way. WebSocket-level pings would prove nothing, since
network stacks answer them. A client that does not answer is served by the state of its socket alone.
"""

import math
from collections import deque

__all__ = ["Fence"]


class Fence:
    """Counts events and pongs of one connection.

    Args:
        every: Events after which a ping is due.
        width: Most pings that may be unanswered.
        timeout: Seconds after which a client whose first pings are unanswered is taken for one that never answers.
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
        """When ``expire`` has something to do; infinite for never."""
        return self._unanswered[0][1] + self._timeout if self._unanswered else math.inf

    def count(self, now: float) -> int | None:
        """Notes an event; answers the number of the ping that is to follow it, if one is."""
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
        """Notes a pong; answers whether a ping was waiting for one. Not every client echoes the payload."""
        told = payload if isinstance(payload, dict) else {}
        if not self._unanswered or "snapshot" in told:  # the latter is of another ping
            return False
        number = told.get("fence")
        self._unanswered.popleft()
        while isinstance(number, int) and self._unanswered and self._unanswered[0][0] <= number:
            self._unanswered.popleft()
        return True

    def expire(self, now: float) -> bool:
        """Gives up on a client that does not answer; answers whether it did."""
        if now < self.due:
            return False
        self._unanswered.clear()
        self._answers = False
        return True

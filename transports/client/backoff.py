"""The delays between attempts to reconnect."""

import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delay before the next attempt to connect: full jitter under a doubling bound, in seconds.

    Attributes:
        first: The bound of the first delay.
        limit: The bound of every delay.
        attempts: The attempts in a row after which the client gives up; None for never.
        jitter: Returns a number from 0 to 1 for each delay.
    """

    first: float = 0.25
    limit: float = 3.0
    attempts: int | None = None
    jitter: Callable[[], float] = random.random

    def delay(self, attempt: int) -> float | None:
        """Returns the delay before attempt number ``attempt``, counted from 0; None to give up."""
        if self.attempts is not None and attempt >= self.attempts:
            return None
        return self.jitter() * min(self.limit, self.first * 2.0 ** min(attempt, 30))

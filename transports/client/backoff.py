"""How patiently a lost connection is made again."""

import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before the next attempt to connect: full jitter under a doubling bound, in seconds.

    Attributes:
        first: Bound of the first wait.
        limit: Bound of every wait.
        attempts: Attempts in a row until it is given up, or None for never.
        jitter: Gives a number from 0 to 1 for each wait.
    """

    first: float = 0.2
    limit: float = 30.0
    attempts: int | None = None
    jitter: Callable[[], float] = random.random

    def delay(self, attempt: int) -> float | None:
        """The wait before attempt number ``attempt``, from 0; None to give up."""
        if self.attempts is not None and attempt >= self.attempts:
            return None
        return self.jitter() * min(self.limit, self.first * 2.0 ** min(attempt, 30))

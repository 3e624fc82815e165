"""The breaker of a group, which trips if most of its deliveries fail."""

from collections import deque
from itertools import repeat
from typing import Final

__all__ = ["BREAKER_WINDOW", "GroupBreaker"]

BREAKER_WINDOW: Final = 100
"""Number of the last deliveries that count."""


class GroupBreaker:
    """The outcomes of the last deliveries.

    Attributes:
        failures: Number of failures among them.
    """

    def __init__(self) -> None:
        self.failures: int = 0
        self._outcomes: deque[bool] = deque(maxlen=BREAKER_WINDOW)

    @property
    def tripped(self) -> bool:
        """Whether there were at least 100 deliveries, and more than half of the last 100 failed."""
        return len(self._outcomes) == BREAKER_WINDOW and 2 * self.failures > BREAKER_WINDOW

    def note(self, *, failed: bool, count: int = 1) -> None:
        """Records the outcome of ``count`` deliveries."""
        for _ in range(min(count, BREAKER_WINDOW) if failed or self.failures else 0):
            if len(self._outcomes) == BREAKER_WINDOW:
                self.failures -= self._outcomes[0]
            self._outcomes.append(failed)
            self.failures += failed
        if not self.failures:
            self._outcomes.extend(repeat(False, min(count, BREAKER_WINDOW)))

    def clear(self) -> None:
        """Forgets all outcomes."""
        self.failures = 0
        self._outcomes.clear()

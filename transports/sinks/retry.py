"""How long a runner waits before a retry, and when it gives up."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from publishers.errors import InvalidOption
from publishers.options import check_whole

__all__ = ["RetryPolicy", "check_seconds"]

_LONGEST: Final = 3600.0  # seconds for which a target may ask to be left alone


def check_seconds(parameter: str, value: object, least: float = 0.0, most: float = 86400.0) -> None:
    """Checks a duration.

    Raises:
        InvalidOption: If it is not a number of seconds within the bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidOption(parameter, value, f"seconds from {least:g} to {most:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to wait before the next attempt: full jitter under a growing bound, in seconds.

    Attributes:
        first: The bound of the first wait, from 0.001.
        limit: The bound of every wait, up to a day.
        growth: How the bound grows: ``exponential`` doubles it, ``linear`` adds ``first``.
        attempts: The attempts of one batch until the sink is paused; None for no bound.
        circuit: The consecutive failures after which the target must answer `Sink.alive` before a batch is sent.
        jitter: Returns a number from 0 to 1 for each wait.
    """

    first: float = 1.0
    limit: float = 30.0
    growth: Literal["exponential", "linear"] = "exponential"
    attempts: int | None = None
    circuit: int = 5
    jitter: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        check_seconds("first", self.first, 0.001)
        check_seconds("limit", self.limit, self.first)
        if self.growth not in ("exponential", "linear"):
            raise InvalidOption("growth", self.growth, "'exponential' or 'linear'")
        if self.attempts is not None:
            check_whole("attempts", self.attempts, "a whole number from 1, or None", 1)
        check_whole("circuit", self.circuit, "a whole number from 1", 1)

    def delay(self, failures: int, retry_after: float | None = None) -> float:
        """The wait after so many consecutive failures, from 1; at least what the target asks for, up to an hour."""
        exponential = self.growth == "exponential"
        bound = self.first * (2.0 ** min(failures - 1, 30) if exponential else failures)
        wait = self.jitter() * min(self.limit, bound)
        return wait if retry_after is None else max(wait, min(retry_after, _LONGEST))

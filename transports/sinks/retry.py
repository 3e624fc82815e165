"""What a runner does about a failure: its verdict by the error, how long it waits before a retry, and when it gives up."""

import enum
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from flow.clock import Clock
from publishers.errors import (
    HistoryPruned,
    InvalidOption,
    LogClosed,
    PenstockError,
    PositionError,
    SnapshotGone,
)
from publishers.options import check_options
from publishers.slots.errors import Fenced, SlotForked, SlotLost
from transports.sinks.errors import SinkPlaceLost, TargetUnavailable, shown_error

__all__ = ["RetryPolicy", "SinkFailures", "SinkVerdict", "SinkWork", "check_seconds", "verdict_of"]


class SinkVerdict(enum.Enum):
    """The reaction of a runner to an error."""

    ROWS = "start the rows of the snapshot again"
    LOSE = "report that history is gone"
    FENCED = "yield to the consumer that has taken over the slot"
    END = "stop, because the log is closed"
    LATER = "retry later"
    NEVER = "give up, because no retry can succeed"


_KINDS: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], SinkVerdict], ...]] = (
    (SnapshotGone, SinkVerdict.ROWS),
    ((SlotLost, SlotForked, HistoryPruned, SinkPlaceLost), SinkVerdict.LOSE),
    (Fenced, SinkVerdict.FENCED),
    (LogClosed, SinkVerdict.END),
    ((TargetUnavailable, OSError), SinkVerdict.LATER),
    (PositionError, SinkVerdict.NEVER),
)


def verdict_of(error: Exception) -> SinkVerdict:
    """Returns the first matching verdict of the table; else LATER for a retryable `PenstockError`, and NEVER for any other error."""
    for kinds, verdict in _KINDS:
        if isinstance(error, kinds):
            return verdict
    return SinkVerdict.LATER if isinstance(error, PenstockError) and error.retryable else SinkVerdict.NEVER


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

    first: Annotated[float, 0.001, 86_400.0] = 1.0
    limit: Annotated[float, 0.001, 86_400.0] = 30.0
    growth: Literal["exponential", "linear"] = "exponential"
    attempts: int | None = None
    circuit: int = 5
    jitter: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        check_options(self)
        check_seconds("limit", self.limit, self.first)

    def delay(self, failures: int, retry_after: float | None = None) -> float:
        """The wait after so many consecutive failures, from 1; at least what the target asks for, up to an hour."""
        exponential = self.growth == "exponential"
        bound = self.first * (2.0 ** min(failures - 1, 30) if exponential else failures)
        wait = self.jitter() * min(self.limit, bound)
        return wait if retry_after is None else max(wait, min(retry_after, _LONGEST))


_LOG: Final = logging.getLogger("penstock.sinks")

SinkWork = Literal["opening", "sending", "storing"]
"""What a step does, and may fail at."""


class SinkFailures:
    """The failures of one runner; used by the thread that steps it.

    Args:
        name: The name of the sink.
        policy: How long to wait.
        clock: The clock of the runner.

    Attributes:
        in_row: The number of failures since the last success.
        attempt: The number of the next attempt; 0 if none is due.
        due: The time of the next attempt, by the monotonic clock; None if no wait is needed.
        last_error: The last error, also after a success; None without one.
    """

    def __init__(self, name: str, policy: RetryPolicy, clock: Clock) -> None:
        self._name, self._policy, self._clock = name, policy, clock
        self.in_row: int = 0
        self.attempt: int = 0
        self.due: float | None = None
        self.last_error: str | None = None
        self._at = 0.0
        self._failing: set[SinkWork] = set()
        self._told, self._since = 0, 0.0

    @property
    def circuit_open(self) -> bool:
        """Whether so many failed that the target must answer `Sink.alive` before a batch is sent."""
        return self.in_row >= self._policy.circuit

    @property
    def exhausted(self) -> bool:
        """Whether the allowed attempts are used up."""
        return self._policy.attempts is not None and self.in_row >= self._policy.attempts

    @property
    def retry_in(self) -> float | None:
        """Seconds until the next attempt; None without one."""
        return None if self.due is None else max(self.due - self._clock.monotonic(), 0.0)

    @property
    def age(self) -> float | None:
        """Seconds since the last error; None without one."""
        return None if self.last_error is None else self._clock.monotonic() - self._at

    def note(self, error: Exception) -> str:
        """Records an error, and returns its text."""
        self._at = self._clock.monotonic()
        self.last_error = shown_error(error)
        return self.last_error

    def fails(self, work: SinkWork) -> None:
        """Notes what has failed, until that works again; the operator reads of each failure in the log."""
        if not self._failing:
            self._told, self._since = 0, self._clock.monotonic()
        self._told += 1
        self._failing.add(work)

    def works(self, work: SinkWork) -> None:
        """Notes what has worked; writes a line when nothing fails any more: a target that opens again may still refuse what is sent."""
        if work not in self._failing:
            return
        self._failing.remove(work)
        if not self._failing:
            seconds = self._clock.monotonic() - self._since
            _LOG.warning(
                "sink %s works again; attempts that failed: %d, in %.1f s", self._name, self._told, seconds
            )

    def add(self, error: Exception) -> None:
        """Counts a failure."""
        self.in_row += 1
        self.note(error)

    def wait(self, retry_after: float | None) -> float:
        """Schedules the next attempt; returns the seconds until then."""
        self.attempt = self.in_row + 1
        wait = self._policy.delay(self.in_row, retry_after)
        self.due = self._clock.monotonic() + wait
        return wait

    def forget(self) -> None:
        """Resets the failures after a success."""
        self.in_row = self.attempt = 0
        self.due = None

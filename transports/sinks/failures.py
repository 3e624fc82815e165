"""Consecutive failures, and the time of the next attempt."""

import logging
from typing import Final, Literal

from flow.clock import Clock
from transports.sinks.errors import shown_error
from transports.sinks.retry import RetryPolicy

__all__ = ["SinkFailures", "SinkWork"]

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

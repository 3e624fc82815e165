"""What has failed in a row, and when it is tried again."""

from flow.clock import Clock
from transports.sinks.errors import shown_error
from transports.sinks.retry import RetryPolicy

__all__ = ["SinkFailures"]


class SinkFailures:
    """The failures of one runner; by the thread that steps it.

    Args:
        policy: How long to wait.
        clock: What time it is.

    Attributes:
        in_row: How many there were since something has worked.
        attempt: The number of the next attempt; 0 if none is waited for.
        due: When that is; None if it need not be waited for.
        last_error: What failed last, also if it works again; None if nothing did.
    """

    def __init__(self, policy: RetryPolicy, clock: Clock) -> None:
        self._policy, self._clock = policy, clock
        self.in_row = self.attempt = 0
        self.due: float | None = None
        self.last_error: str | None = None
        self._at = 0.0

    @property
    def circuit_open(self) -> bool:
        """Whether there were so many that the target is asked whether it answers before a batch is sent to it."""
        return self.in_row >= self._policy.circuit

    @property
    def exhausted(self) -> bool:
        """Whether there were as many as may be."""
        return self._policy.attempts is not None and self.in_row >= self._policy.attempts

    @property
    def retry_in(self) -> float | None:
        """Seconds until the next attempt."""
        return None if self.due is None else max(self.due - self._clock.monotonic(), 0.0)

    @property
    def age(self) -> float | None:
        """Seconds since the last error."""
        return None if self.last_error is None else self._clock.monotonic() - self._at

    def note(self, error: Exception) -> str:
        """Keeps an error, and tells it."""
        self._at = self._clock.monotonic()
        self.last_error = shown_error(error)
        return self.last_error

    def add(self, error: Exception) -> None:
        """Counts a failure."""
        self.in_row += 1
        self.note(error)

    def wait(self, retry_after: float | None) -> float:
        """Sets the next attempt; answers in how many seconds it is."""
        self.attempt = self.in_row + 1
        wait = self._policy.delay(self.in_row, retry_after)
        self.due = self._clock.monotonic() + wait
        return wait

    def forget(self) -> None:
        """Something works."""
        self.in_row = self.attempt = 0
        self.due = None

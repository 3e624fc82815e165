"""Figures of appends: their number, outcomes and latencies."""

import threading
from collections import Counter

from flow.clock import SYSTEM_CLOCK
from transports.telemetry.latency import Latencies

__all__ = ["AppendFigures"]

_now = SYSTEM_CLOCK.now_us


class AppendFigures:
    """The figures of one server, over all transports. Thread-safe.

    Attributes:
        outcomes: The number of appends that were ``WRITTEN`` or a ``DUPLICATE``, or were refused, by error code.
        nbytes: The bytes of written appends, as they arrived.
        unanswered: The number of appends in progress.
        durable: For each log the time from the arrival of an append until it has progressed as far as its client waits.
        answered: For each log the time until the answer, which waits for the earlier appends of the client.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.nbytes: int = 0
        self.unanswered: int = 0
        self.durable: Latencies = Latencies()
        self.answered: Latencies = Latencies()
        self._lock = threading.Lock()

    def come(self) -> int:
        """Counts an append that has arrived; returns the time in microseconds."""
        with self._lock:
            self.unanswered += 1
        return _now()

    def gone(self) -> None:
        """Counts an append that is no longer in progress, whatever its outcome."""
        with self._lock:
            self.unanswered -= 1

    def count(self, outcome: str, nbytes: int = 0) -> None:
        """Counts the outcome of an append."""
        with self._lock:
            self.outcomes[outcome] += 1
            self.nbytes += nbytes

    def reached(self, log: object, came: int) -> None:
        """Records that an append has progressed as far as its client waits."""
        with self._lock:
            self.durable.of(log).observe(came)

    def replied(self, log: object, came: int) -> None:
        """Records that an append was answered."""
        with self._lock:
            self.answered.of(log).observe(came)

"""Latencies of changes from their commit until they are written to a connection, and the figures of appends: number, outcomes, latencies."""

import threading
from bisect import bisect_left
from collections import Counter
from typing import Any, Final
from weakref import WeakKeyDictionary

from flow.clock import SYSTEM_CLOCK

__all__ = ["BOUNDS", "AppendFigures", "Latencies", "Latency"]


BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""The upper bounds of the buckets, in seconds; one more bucket counts everything above."""

_now = SYSTEM_CLOCK.now_us


class Latency:
    """A histogram of seconds. One event loop writes it; any thread may read it.

    Attributes:
        counts: The count of each bucket; the last one has no bound.
        seconds: The sum of the observations.
    """

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS) + 1)
        self.seconds: float = 0.0

    def observe(self, committed_at: int) -> None:
        """Records a change that is sent now.

        Args:
            committed_at: The time of its commit, in microseconds since the Unix epoch; 0 if unknown.
        """
        if committed_at:
            elapsed = max(0, _now() - committed_at) / 1e6  # the clock may have been set back
            self.counts[bisect_left(BOUNDS, elapsed)] += 1
            self.seconds += elapsed

    def histogram(self) -> dict[str, Any]:
        """Returns the histogram for the wire: cumulative counts by upper bound, the last one ``+Inf``."""
        within, buckets = 0, {}
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], list(self.counts), strict=True):
            within += count
            buckets[bound] = within
        return {"buckets": buckets, "count": within, "seconds": self.seconds}


class Latencies:
    """The histograms of one server, one for each log while that is open."""

    def __init__(self) -> None:
        self._by_log: WeakKeyDictionary[object, Latency] = WeakKeyDictionary()

    def of(self, log: object) -> Latency:
        """Returns the histogram of a log; on the event loop."""
        found = self._by_log.get(log)
        if found is None:
            found = self._by_log[log] = Latency()
        return found

    def histogram(self, log: object) -> dict[str, Any] | None:
        """Returns the histogram of a log for the wire, from any thread; None if nothing was sent."""
        found = self._by_log.get(log)
        return None if found is None else found.histogram()


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

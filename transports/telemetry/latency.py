"""How long changes take from their commit until they are written to a connection."""

from bisect import bisect_left
from typing import Any, Final
from weakref import WeakKeyDictionary

from flow.clock import SYSTEM_CLOCK

__all__ = ["BOUNDS", "Latencies", "Latency"]

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper bounds of the buckets, in seconds; what takes longer is counted in one more."""

_now = SYSTEM_CLOCK.now_us


class Latency:
    """A histogram of seconds. For one event loop; to read it, any thread may.

    Attributes:
        counts: Of each bucket, the last one without a bound.
        seconds: The sum of what was observed.
    """

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def observe(self, committed_at: int) -> None:
        """Counts what is sent now.

        Args:
            committed_at: When it was committed, in microseconds since the Unix epoch; 0 if that is not known.
        """
        if committed_at:
            elapsed = max(0, _now() - committed_at) / 1e6  # the clock may have been put back
            self.counts[bisect_left(BOUNDS, elapsed)] += 1
            self.seconds += elapsed

    def told(self) -> dict[str, Any]:
        """The same as it travels: of each bucket its upper bound, the last one ``+Inf``, and how many were within that."""
        within, buckets = 0, {}
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], list(self.counts), strict=True):
            within += count
            buckets[bound] = within
        return {"buckets": buckets, "count": within, "seconds": self.seconds}


class Latencies:
    """Those of one server, of each of its logs as long as that is open."""

    def __init__(self) -> None:
        self._by_log: WeakKeyDictionary[object, Latency] = WeakKeyDictionary()

    def of(self, log: object) -> Latency:
        """That of a log; on the event loop."""
        found = self._by_log.get(log)
        if found is None:
            found = self._by_log[log] = Latency()
        return found

    def told(self, log: object) -> dict[str, Any] | None:
        """The same as it travels, by any thread; None if nothing was sent."""
        found = self._by_log.get(log)
        return None if found is None else found.told()

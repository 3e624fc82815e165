"""How appends fare: how many, what became of them, and how long they took."""

import threading
from collections import Counter

from flow.clock import SYSTEM_CLOCK
from transports.telemetry.latency import Latencies

__all__ = ["AppendFigures"]

_now = SYSTEM_CLOCK.now_us


class AppendFigures:
    """Those of one server, whatever way its appends come. Thread-safe.

    Attributes:
        outcomes: How many were ``WRITTEN`` or a ``DUPLICATE``, and how many were refused, by the code of the error.
        nbytes: Of what was written, as it came.
        unanswered: How many are on their way now.
        durable: Of each log how long it took from their coming until they were as far as their client waits for.
        answered: Likewise until they were answered: behind everything that their client had appended before.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.nbytes = self.unanswered = 0
        self.durable = Latencies()
        self.answered = Latencies()
        self._lock = threading.Lock()

    def come(self) -> int:
        """One has come; answers when, in microseconds."""
        with self._lock:
            self.unanswered += 1
        return _now()

    def gone(self) -> None:
        """It is on its way no longer, whatever became of it."""
        with self._lock:
            self.unanswered -= 1

    def count(self, outcome: str, nbytes: int = 0) -> None:
        """Counts what became of one."""
        with self._lock:
            self.outcomes[outcome] += 1
            self.nbytes += nbytes

    def reached(self, log: object, came: int) -> None:
        """One is as far as its client waits for."""
        with self._lock:
            self.durable.of(log).observe(came)

    def told(self, log: object, came: int) -> None:
        """One was answered."""
        with self._lock:
            self.answered.of(log).observe(came)

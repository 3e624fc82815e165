"""The plan of a run of the demo: its size, its micro-batches, its directory, and its subscribers."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock_cdc import Criterion

__all__ = ["FLIGHTS", "IN_PROCESS", "LOG", "SLOW", "SUBSCRIBERS", "WEBSOCKET", "DemoPlan", "Wanted"]

FLIGHTS: Final = "flight"
"""The entity type of every change of the demo."""

LOG: Final = "flights"
"""The name of the change log."""

_BATCH_MOST: Final = 100_000  # a micro-batch costs Spark most of a second, whatever its size
_FIRST_MOST: Final = 5_000
_BATCHES_LEAST: Final = 12
# A ring of two batches: a subscriber that keeps up is never overtaken, one that lags three batches is.
_RING_BATCHES: Final = 2
_MIB: Final = 1 << 20
_CHANGE_BYTES: Final = 1 << 10  # more than any change has, so that the number of changes bounds the ring
_OVERTAKING: Final = 6
_SLOW_STEPS: Final = 60
_SLOW_MOST: Final = 800


@dataclass(frozen=True, slots=True)
class Wanted:
    """One subscriber of the demo.

    Attributes:
        name: Its name in files, messages and statistics.
        title: Its name on the screen.
        wants: Its criteria on the screen.
        key_glob: The keys that it subscribes to, or None for all.
        where: The same criteria as an SQL condition on the source, or None for all.
        slow: Whether it reads slowly until it receives ``hurry``.
    """

    name: str
    title: str
    wants: str
    key_glob: str | None = None
    where: str | None = None
    slow: bool = False

    @property
    def criterion(self) -> Criterion:
        """The criteria with which it subscribes."""
        return Criterion(entity_types={FLIGHTS}, key_globs=() if self.key_glob is None else {self.key_glob})


IN_PROCESS: Final = Wanted("in-process", "in-process gate", "every flight")
WEBSOCKET: Final = Wanted("websocket", "WebSocket", "*/JFK", "*/JFK", "origin = 'JFK'")
SLOW: Final = Wanted("slow", "slow WebSocket", "every flight", slow=True)
SUBSCRIBERS: Final = (IN_PROCESS, WEBSOCKET, SLOW)


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """A run: its size, from which every bound follows, and its directory.

    A micro-batch is one prepared file (two after Spark was killed at a certain point), and becomes one version.

    Attributes:
        events: Changes of the whole run.
        directory: The directory of the log, the checkpoint, the positions and the verdict.
    """

    events: int
    directory: Path

    @property
    def batch_events(self) -> int:
        """Changes of one micro-batch: at most 100,000, and at most a twelfth of the run."""
        return max(1, min(_BATCH_MOST, math.ceil(self.events / _BATCHES_LEAST)))

    @property
    def first_events(self) -> int:
        """Changes of the first micro-batch, at most 5,000: it fills the board while the JVM still compiles."""
        return min(_FIRST_MOST, self.batch_events)

    @property
    def batches(self) -> int:
        """The greatest number of micro-batches, and so of versions."""
        return 1 + math.ceil(max(0, self.events - self.first_events) / self.batch_events)

    @property
    def overtakes(self) -> bool:
        """Whether there are enough versions for the ring to overtake the slow subscriber."""
        return self.batches >= _OVERTAKING

    @property
    def slow_step(self) -> int:
        """The number of changes of one request by the slow subscriber."""
        return max(1, min(_SLOW_MOST, self.events // _SLOW_STEPS))

    @property
    def log_options(self) -> dict[str, Any]:
        """Options of the change log: nothing is deleted by retention, and rings hold two batches."""
        ring_events = self.batch_events * _RING_BATCHES
        return {
            "retain_bytes": None,
            "retain_age": None,
            "ring_events": ring_events,
            "ring_bytes": max(_MIB, ring_events * _CHANGE_BYTES),
            "spool_bytes": _MIB + self.batch_events * _CHANGE_BYTES,
        }

    @property
    def log(self) -> Path:
        """The directory of the change log."""
        return self.directory / LOG

    @property
    def checkpoint(self) -> Path:
        """The checkpoint directory of Spark's query."""
        return self.directory / "checkpoint"

    @property
    def result(self) -> Path:
        """The file with the verdict on a completed run."""
        return self.directory / "result.json"

    def place(self, wanted: Wanted) -> Path:
        """The file in which a subscriber stores its position."""
        return self.directory / f"{wanted.name}.json"

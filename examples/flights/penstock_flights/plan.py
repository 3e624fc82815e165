"""What a run of the demo is made of: how much, in what portions, where on the disk, and who wants what of it."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from publishers.criteria.criteria import Criterion
from publishers.options import KIB, MIB

__all__ = ["FLIGHTS", "IN_PROCESS", "LOG", "SLOW", "SUBSCRIBERS", "WEBSOCKET", "DemoPlan", "Wanted"]

FLIGHTS: Final = "flight"
"""The entity type of every change of the demo."""

LOG: Final = "flights"
"""The name of the change log."""

_BATCH_MOST: Final = 100_000  # each micro-batch costs Java most of a second, whatever its size
_FIRST_MOST: Final = 5_000
_BATCHES_LEAST: Final = 12
# A ring of two batches: whoever is served in time never notices, whoever lags three batches is overtaken.
_RING_BATCHES: Final = 2
_CHANGE_BYTES: Final = KIB  # above what any change weighs, so that the ring is bounded by their number
_OVERTAKING: Final = 6
_SLOW_STEPS: Final = 60
_SLOW_MOST: Final = 800


@dataclass(frozen=True, slots=True)
class Wanted:
    """One subscriber of the demo.

    Attributes:
        name: What files, messages and statistics call it.
        title: What people read.
        wants: Its criteria, for people.
        key_glob: Which keys it wants, or None for all.
        where: The same wish as a condition of SQL on the source, or None for all.
        slow: Whether it dawdles until it is told to hurry.
    """

    name: str
    title: str
    wants: str
    key_glob: str | None = None
    where: str | None = None
    slow: bool = False

    @property
    def criterion(self) -> Criterion:
        """Its wish, as it subscribes."""
        return Criterion(entity_types={FLIGHTS}, key_globs=() if self.key_glob is None else {self.key_glob})


IN_PROCESS: Final = Wanted("in-process", "in-process gate", "every flight")
WEBSOCKET: Final = Wanted("websocket", "WebSocket", "*/JFK", "*/JFK", "origin = 'JFK'")
SLOW: Final = Wanted("slow", "slow WebSocket", "every flight", slow=True)
SUBSCRIBERS: Final = (IN_PROCESS, WEBSOCKET, SLOW)


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """A run: its size, from which every bound follows, and its directory.

    A micro-batch is one prepared file, unless Spark was killed in between, and becomes one version.

    Attributes:
        events: Changes of the whole run.
        directory: Where everything is that the run must not lose.
    """

    events: int
    directory: Path

    @property
    def batch_events(self) -> int:
        """Changes of one micro-batch: at most 100,000, and little enough that there are a dozen of them."""
        return max(1, min(_BATCH_MOST, math.ceil(self.events / _BATCHES_LEAST)))

    @property
    def first_events(self) -> int:
        """Those of the first one, which shows what there is while Java still compiles: at most 5,000."""
        return min(_FIRST_MOST, self.batch_events)

    @property
    def batches(self) -> int:
        """How many micro-batches, and so versions, there will be at most."""
        return 1 + math.ceil(max(0, self.events - self.first_events) / self.batch_events)

    @property
    def overtakes(self) -> bool:
        """Whether there are enough versions for a ring to overtake somebody."""
        return self.batches >= _OVERTAKING

    @property
    def slow_step(self) -> int:
        """How many changes the slow subscriber requests at a time."""
        return max(1, min(_SLOW_MOST, self.events // _SLOW_STEPS))

    @property
    def log_options(self) -> dict[str, Any]:
        """Options of the change log: everything is kept, and rings hold two batches."""
        ring_events = self.batch_events * _RING_BATCHES
        return {
            "retain_bytes": None,
            "retain_age": None,
            "ring_events": ring_events,
            "ring_bytes": max(MIB, ring_events * _CHANGE_BYTES),
            "spool_bytes": MIB + self.batch_events * _CHANGE_BYTES,
        }

    @property
    def log(self) -> Path:
        """The change log."""
        return self.directory / LOG

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps how far its query is."""
        return self.directory / "checkpoint"

    @property
    def result(self) -> Path:
        """The verdict on a run that came to its end."""
        return self.directory / "result.json"

    def place(self, wanted: Wanted) -> Path:
        """Where a subscriber keeps its place."""
        return self.directory / f"{wanted.name}.json"

"""Who is moved, and tells of it: probes that hear of seeks and gaps, and a log whose beginning goes."""

from typing import Any

from penstock_cdc.types import Gap
from publishers import Position
from tests.harness.inside import housekeeping_of
from tests.publishers.support import BatchProbe, Probe, fill, wait_until

RETAIN = {"segment_bytes": 65_536, "retain_bytes": 65_536, "retain_age": None}


class Mover(Probe):
    """A probe that is told of seeks and of gaps.

    Attributes:
        sought: Where it was moved to, in order.
        since: What came since the last seek.
        gaps: Those that it was told of, each with how many changes it had then.
    """

    def __init__(self, first: int = 0, each: int = 0) -> None:
        super().__init__(first, each)
        self.sought: list[Position] = []
        self.since: list[Position] = []
        self.gaps: list[tuple[Gap, int]] = []

    def take(self, change: Any) -> None:
        super().take(change)
        self.since.append(change.position)

    def on_seek(self, position: Position) -> None:
        with self._signal():
            self.sought.append(position)
            self.since = []

    def on_gap(self, gap: Gap) -> None:
        with self._signal():
            self.gaps.append((gap, len(self.positions)))


class BatchMover(Mover, BatchProbe):
    pass


def caught_up(probe: Probe, log: Any) -> None:
    """Waits until nothing is left to be delivered."""
    wait_until(lambda: probe.subscription.checkpoint().position == log.head or probe.terminals, probe.state)


def prune(log: Any) -> None:
    """Commits until retention has taken the beginning."""
    begin = log.oldest
    for _ in range(50):
        fill(log, 30, 20)
        housekeeping_of(log).poke()
    wait_until(lambda: log.oldest > begin, lambda: log.oldest)


def settled(log: Any) -> Position:
    """Retention has done what it can; the oldest position that is left."""
    housekeeping_of(log).close()
    return log.oldest

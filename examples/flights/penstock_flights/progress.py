"""The progress of the demo at one moment, for the display."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from penstock_cdc.spark import SinkStatistics

__all__ = ["DemoProgress", "ProgressRow", "RateMeter"]

_SPAN: Final = 3.0  # seconds


class RateMeter:
    """The rate of a count over the last three seconds."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def read(self, now: float, count: int) -> float:
        """Adds the count at a time; returns its increase per second."""
        seen = self._seen
        seen.append((now, count))
        while len(seen) > 2 and seen[1][0] <= now - _SPAN:
            seen.popleft()
        span = now - seen[0][0]
        return max(0.0, (count - seen[0][1]) / span) if span > 0 else 0.0


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """The progress of one subscriber.

    Attributes:
        title: Its name.
        wants: Its criteria.
        received: Changes received.
        rate: Changes received a second.
        reached: Changes of the log up to its position, whether they match its criteria or not.
        behind: Changes of the log between its position and the end.
        demand: Changes requested and not yet received.
        state: LIVE, RESYNC, or None before that is known.
        resyncs: How often it entered RESYNC.
    """

    title: str
    wants: str
    received: int
    rate: float
    reached: int
    behind: int
    demand: int
    state: str | None
    resyncs: int


@dataclass(frozen=True, slots=True)
class DemoProgress:
    """The progress of the whole run.

    Attributes:
        events: Changes of the run.
        committed: Changes in the log.
        rate: Changes committed a second.
        batch: Micro-batches in the log.
        batches: Micro-batches of the run.
        nbytes: Size of the log in bytes.
        sink: Statistics of the sink.
        reached: The time in the data of the newest change, or None.
        doing: The step that runs.
        rows: The subscribers.
    """

    events: int
    committed: int
    rate: float
    batch: int
    batches: int
    nbytes: int
    sink: SinkStatistics
    reached: str | None
    doing: str
    rows: tuple[ProgressRow, ...] = field(default=())

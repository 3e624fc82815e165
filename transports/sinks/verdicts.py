"""How a runner reacts to an error: one table."""

import enum
from typing import Final

from publishers.errors import HistoryPruned, LogClosed, PenstockError, PositionError, SnapshotGone
from publishers.slots.errors import Fenced, SlotForked, SlotLost
from transports.sinks.errors import SinkPlaceLost, TargetUnavailable

__all__ = ["SinkVerdict", "verdict_of"]


class SinkVerdict(enum.Enum):
    """The reaction of a runner to an error."""

    ROWS = "start the rows of the snapshot again"
    LOSE = "report that history is gone"
    FENCED = "yield to the consumer that has taken over the slot"
    END = "stop, because the log is closed"
    LATER = "retry later"
    NEVER = "give up, because no retry can succeed"


_KINDS: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], SinkVerdict], ...]] = (
    (SnapshotGone, SinkVerdict.ROWS),
    ((SlotLost, SlotForked, HistoryPruned, SinkPlaceLost), SinkVerdict.LOSE),
    (Fenced, SinkVerdict.FENCED),
    (LogClosed, SinkVerdict.END),
    ((TargetUnavailable, OSError), SinkVerdict.LATER),
    (PositionError, SinkVerdict.NEVER),
)


def verdict_of(error: Exception) -> SinkVerdict:
    """Returns the first matching verdict of the table; else LATER for a retryable `PenstockError`, and NEVER for any other error."""
    for kinds, verdict in _KINDS:
        if isinstance(error, kinds):
            return verdict
    return SinkVerdict.LATER if isinstance(error, PenstockError) and error.retryable else SinkVerdict.NEVER

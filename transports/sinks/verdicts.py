"""What a runner makes of what was raised: one table."""

import enum
from typing import Final

from publishers.errors import HistoryPruned, LogClosed, PenstockError, PositionError, SnapshotGone
from publishers.slots.errors import Fenced, SlotForked, SlotLost
from transports.sinks.errors import TargetUnavailable

__all__ = ["SinkVerdict", "verdict_of"]


class SinkVerdict(enum.Enum):
    """What is to be done."""

    ROWS = "the rows of a snapshot begin again"
    LOSE = "the history that it had to read is gone"
    FENCED = "another one has taken its slot"
    END = "the log was closed"
    LATER = "it may work later"
    NEVER = "it will not work, however often it is tried"


_KINDS: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], SinkVerdict], ...]] = (
    (SnapshotGone, SinkVerdict.ROWS),
    ((SlotLost, SlotForked, HistoryPruned), SinkVerdict.LOSE),
    (Fenced, SinkVerdict.FENCED),
    (LogClosed, SinkVerdict.END),
    ((TargetUnavailable, OSError), SinkVerdict.LATER),
    (PositionError, SinkVerdict.NEVER),
)


def verdict_of(error: Exception) -> SinkVerdict:
    """The first that fits; else what an error of ours says of itself. All others are a sink's or a user's, and final."""
    for kinds, verdict in _KINDS:
        if isinstance(error, kinds):
            return verdict
    return SinkVerdict.LATER if isinstance(error, PenstockError) and error.retryable else SinkVerdict.NEVER

"""The health of a log: whether it is known to be damaged, and whether it is open for writing."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Final

from publishers.errors import (
    LogClosed,
    LogDropped,
    LogError,
    LogExhausted,
    LogFailed,
    LogFull,
    LogGone,
    LogReplaced,
    LogUnreadable,
    PenstockError,
    WalCorrupted,
)
from publishers.fanout.service import Service
from publishers.log.tailing import TAIL_IDLE
from publishers.wal import FileSystem, Follower, LogWriter, Wal, writer_of

__all__ = ["HealthStatus", "LogHealth", "health_of"]

_LATE: Final = (
    1.0  # seconds beyond which a sync is late, whatever its interval: a busy machine is not a fault
)
_STALE: Final = 10.0  # seconds, multiplied by `TAIL_IDLE`


class HealthStatus(Enum):
    """The condition of a log."""

    OK = "ok"
    CORRUPT = "corrupt"
    """A read has met damage, or HEAD is damaged."""
    REPLACED = "replaced"
    """Its path now holds another log, or another history of the log."""
    GONE = "gone"
    """It was removed from its path, or dropped from its store."""
    STALE = "stale"
    """This opening follows it, and its last successful poll was over ten seconds ago."""
    UNREADABLE = "unreadable"
    """The newest record cannot be read."""
    LATE = "late"
    """A sync of the policy ``interval`` is overdue: more than two intervals, and more than a second, have passed since a commit."""
    CLOSED = "closed"
    """This opening was closed."""
    FULL = "full"
    """It is open for writing, and refuses commits until the disk has room."""
    EXHAUSTED = "exhausted"
    """The process has too few descriptors, threads or too little memory for it at the moment, or the disk is read-only."""
    FAILED = "failed"
    """It accepts no commits, because the disk failed under its writer; or it has another error."""


_WORDS: Final = (
    (LogExhausted, HealthStatus.EXHAUSTED),
    (LogFull, HealthStatus.FULL),
    (WalCorrupted, HealthStatus.CORRUPT),
    (LogReplaced, HealthStatus.REPLACED),
    (LogGone, HealthStatus.GONE),
    (LogDropped, HealthStatus.GONE),
    (LogClosed, HealthStatus.CLOSED),
    (LogUnreadable, HealthStatus.UNREADABLE),
    (OSError, HealthStatus.UNREADABLE),
)


@dataclass(frozen=True, slots=True)
class LogHealth:
    """What is known of a log.

    Attributes:
        status: Its condition.
        why: The error; None if none is known.
        writer: Whether it is open for writing, here or in another process.
        commit_age: Seconds since the newest visible commit; None if there is none, or its time cannot be read.
    """

    status: HealthStatus
    why: Exception | None = None
    writer: LogWriter = LogWriter(alive=None)  # noqa: RUF009 - frozen
    commit_age: float | None = None

    @classmethod
    def of(cls, why: Exception) -> "LogHealth":
        """Returns the health of a log of which only the error is known."""
        return cls(_status(why), why)


def health_of(
    path: Path,
    storage: FileSystem,
    files: Wal | Follower,
    service: Service,
    looked: float | None,
    late: float,
    time_of: Callable[[int], datetime],
) -> LogHealth:
    """Examines an open log; reads its newest record.

    Args:
        path: Its directory.
        storage: The filesystem of the directory.
        files: Its files.
        service: Its subscribers.
        looked: Time of a follower's last poll, by the clock of the service; None for an owner.
        late: Seconds by which a sync of the policy ``interval`` is overdue.
        time_of: Returns the commit time of a version.
    """
    why: Exception | None = None
    age = None
    visible = service.watermark.visible
    try:
        if visible:
            age = max(0.0, service.clock.now_us() / 1e6 - time_of(visible).timestamp())
    except (PenstockError, OSError) as error:
        why = service.explain(error)
    status = None
    if service.damage is not None:
        why = service.damage
    elif isinstance(files, Wal) and files.failed is not None:
        why = LogFailed("refused", files.failed)
    elif isinstance(files, Wal) and files.lacks is not None:
        why = files.lacks
    elif late > max(_LATE, service.options.sync_interval):
        status, why = HealthStatus.LATE, LogError(f"a sync has been due for {late:.1f} s: the disk hangs")
    elif looked is not None:
        silent = service.clock.monotonic() - looked
        if silent > _STALE * max(1.0, TAIL_IDLE):
            status, why = HealthStatus.STALE, LogError(f"it was looked at last {silent:.0f} s ago")
    writer = LogWriter(alive=True, pid=storage.process_id()) if looked is None else writer_of(storage, path)
    return LogHealth(status or _status(why), why, writer, age)


def _status(why: Exception | None) -> HealthStatus:
    if why is None:
        return HealthStatus.OK
    return next((found for kind, found in _WORDS if isinstance(why, kind)), HealthStatus.FAILED)

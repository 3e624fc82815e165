"""Whether a log is sound, as far as is known, and whether it is written."""

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
    LogFailed,
    LogGone,
    LogReplaced,
    LogUnreadable,
    PenstockError,
    WalCorrupted,
)
from publishers.fanout.service import Service
from publishers.wal import FileSystem, Follower, LogWriter, Wal, writer_of

__all__ = ["LogHealth", "Soundness", "health_of"]

_STALE: Final = 10.0  # seconds; with ``tail_idle`` above one, so many of those


class Soundness(Enum):
    """How a log is."""

    OK = "ok"
    CORRUPT = "corrupt"
    """A read has met damage, or HEAD is damaged."""
    REPLACED = "replaced"
    """Another log, or another history of it, is at its path."""
    GONE = "gone"
    """It is not at its path any more, or was dropped from its store."""
    STALE = "stale"
    """This opening follows it, and has not been able to look at it for ten seconds."""
    UNREADABLE = "unreadable"
    """The newest record cannot be read."""
    CLOSED = "closed"
    """This opening was closed."""
    FAILED = "failed"
    """It takes no commits, because the disk failed under its writer; or something else is wrong."""


_WORDS: Final = (
    (WalCorrupted, Soundness.CORRUPT),
    (LogReplaced, Soundness.REPLACED),
    (LogGone, Soundness.GONE),
    (LogDropped, Soundness.GONE),
    (LogClosed, Soundness.CLOSED),
    (LogUnreadable, Soundness.UNREADABLE),
    (OSError, Soundness.UNREADABLE),
)


@dataclass(frozen=True, slots=True)
class LogHealth:
    """What is known of a log.

    Attributes:
        soundness: How it is.
        why: What is wrong; None if nothing is known to be.
        writer: Whether it is open for writing, here or in another process.
        commit_age: Seconds since the newest visible commit; None if there is none, or its time cannot be read.
    """

    soundness: Soundness
    why: Exception | None = None
    writer: LogWriter = LogWriter(alive=None)  # noqa: RUF009 - frozen
    commit_age: float | None = None

    @classmethod
    def of(cls, why: Exception) -> "LogHealth":
        """Of a log of which no more is known than what is wrong."""
        return cls(_soundness(why), why)


def health_of(
    path: Path,
    storage: FileSystem,
    files: Wal | Follower,
    service: Service,
    looked: float | None,
    time_of: Callable[[int], datetime],
) -> LogHealth:
    """Looks at an open log; reads its newest record.

    Args:
        path: Its directory.
        storage: Where that is.
        files: Its files.
        service: Its subscribers.
        looked: When a follower looked last, by the clock of the service; None for an owner.
        time_of: Tells when a version was committed.
    """
    why: Exception | None = None
    age = None
    visible = service.watermark.visible
    try:
        if visible:
            age = max(0.0, service.clock.now_us() / 1e6 - time_of(visible).timestamp())
    except (PenstockError, OSError) as error:
        why = service.explain(error)
    soundness = None
    if service.damage is not None:
        why = service.damage
    elif isinstance(files, Wal) and files.failed is not None:
        why = LogFailed("refused", files.failed)
    elif looked is not None:
        silent = service.clock.monotonic() - looked
        if silent > _STALE * max(1.0, service.options.tail_idle):
            soundness, why = Soundness.STALE, LogError(f"it was looked at last {silent:.0f} s ago")
    writer = LogWriter(alive=True, pid=storage.process_id()) if looked is None else writer_of(storage, path)
    return LogHealth(soundness or _soundness(why), why, writer, age)


def _soundness(why: Exception | None) -> Soundness:
    if why is None:
        return Soundness.OK
    return next((found for kind, found in _WORDS if isinstance(why, kind)), Soundness.FAILED)

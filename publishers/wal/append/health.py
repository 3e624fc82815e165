"""Whether a log has failed, and what it lacks."""

import logging
from typing import Final

from publishers.errors import LogFailed, LogFull
from publishers.wal.disk.filesystem import full

__all__ = ["Health"]

_LOG: Final = logging.getLogger("penstock.housekeeping")


class Health:
    """Whether the log has failed, or lacks room; shared by all objects that write, on any thread.

    Attributes:
        why: The first reason; None if the log has not failed.
        lacks: The last refusal for want of room, descriptors or memory; None again once the housekeeping has found enough.
    """

    __slots__ = ("lacks", "why")

    def __init__(self) -> None:
        self.why: str | None = None
        self.lacks: LogFull | None = None

    def refuse(self, error: BaseException, free: int | None, needed: int) -> LogFull:
        """Notes what the log lacks, and returns the error to raise for an error that `means_full`."""
        lacks = full(error, free, needed)
        self.note(lacks)
        return lacks

    def note(self, lacks: LogFull) -> None:
        """Notes what the log lacks."""
        if type(self.lacks) is not type(lacks):
            _LOG.error("the log has no room, and refuses commits until it has: %s", lacks)
        self.lacks = lacks

    def go_on(self) -> None:
        """Notes that the log lacks nothing any more."""
        if self.lacks is not None:
            self.lacks = None
            _LOG.warning("the log has room again")

    def fail(self, error: object) -> None:
        """Fails the log permanently; the first reason is kept."""
        if self.why is None:
            self.why = str(error) or type(error).__name__
            _LOG.error("the log has failed: %s", self.why)

    def check(self) -> None:
        """Refuses further work on a failed log.

        Raises:
            LogFailed: With ``outcome="refused"``.
        """
        if self.why is not None:
            raise LogFailed("refused", self.why)

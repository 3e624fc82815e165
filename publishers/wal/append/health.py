"""The failure state of a log."""

import logging
from typing import Final

from publishers.errors import LogFailed

__all__ = ["Health"]

_LOG: Final = logging.getLogger(__name__)


class Health:
    """Whether the log has failed; shared by all objects that write, on any thread.

    Attributes:
        why: The first reason; None if the log has not failed.
    """

    __slots__ = ("why",)

    def __init__(self) -> None:
        self.why: str | None = None

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

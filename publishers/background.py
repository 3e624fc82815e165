"""Background threads of a log, which serve all its subscribers."""

import threading
from typing import Final

from publishers.errors import LogExhausted

__all__ = ["HERE", "BackgroundThread", "in_background", "start_thread"]


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread.

    Raises:
        LogExhausted: If the system has no thread.
    """
    try:
        threading.Thread.start(thread)
    except (RuntimeError, MemoryError) as error:
        raise LogExhausted("threads") from error


class _Here(threading.local):
    background = False


HERE: Final = _Here()
"""Holds, for each thread, whether it is a `BackgroundThread`."""


class BackgroundThread(threading.Thread):
    """A thread that never runs a subscriber's code: a subscriber that blocks it would stop all others."""

    def start(self) -> None:
        """See `threading.Thread`.

        Raises:
            LogExhausted: If the system has no thread.
        """
        start_thread(self)

    def run(self) -> None:
        """See `threading.Thread`."""
        HERE.background = True
        super().run()


def in_background() -> bool:
    """Whether the caller runs on a background thread."""
    return HERE.background

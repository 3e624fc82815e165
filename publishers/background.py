"""Background threads of a log, which serve all its subscribers."""

import threading
from typing import Final

__all__ = ["HERE", "BackgroundThread", "in_background"]


class _Here(threading.local):
    background = False


HERE: Final = _Here()
"""Holds, for each thread, whether it is a `BackgroundThread`."""


class BackgroundThread(threading.Thread):
    """A thread that never runs a subscriber's code: a subscriber that blocks it would stop all others."""

    def run(self) -> None:
        """See `threading.Thread`."""
        HERE.background = True
        super().run()


def in_background() -> bool:
    """Whether the caller runs on a background thread."""
    return HERE.background

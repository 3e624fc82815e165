"""The threads of a log that serve everybody."""

import threading
from typing import Final

__all__ = ["HERE", "BackgroundThread", "in_background"]


class _Here(threading.local):
    background = False


HERE: Final = _Here()
"""Of the calling thread: whether it is such a thread."""


class BackgroundThread(threading.Thread):
    """A thread that never runs a subscriber's code, because one that blocks there would stop all others."""

    def run(self) -> None:
        """See `threading.Thread`."""
        HERE.background = True
        super().run()


def in_background() -> bool:
    """Whether the caller runs on such a thread."""
    return HERE.background

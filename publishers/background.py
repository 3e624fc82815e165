"""The threads of a log that serve everybody."""

import threading

__all__ = ["BackgroundThread", "in_background"]


class BackgroundThread(threading.Thread):
    """A thread that never runs a subscriber's code, because one that blocks there would stop all others."""


def in_background() -> bool:
    """Whether the caller runs on such a thread."""
    return isinstance(threading.current_thread(), BackgroundThread)

"""The threads of a log that serve everybody."""

import threading
from typing import Final

__all__ = ["BackgroundThread", "in_background"]


_here: Final = threading.local()


class BackgroundThread(threading.Thread):
    """A thread that never runs a subscriber's code, because one that blocks there would stop all others."""

    def run(self) -> None:
        """See `threading.Thread`."""
        _here.background = True
        super().run()


def in_background() -> bool:
    """Whether the caller runs on such a thread."""
    return hasattr(_here, "background")

"""The newest version that may be delivered."""

import threading
from collections.abc import Callable

__all__ = ["Watermark"]


class Watermark:
    """The one publication point of a log: what is at or below ``visible`` may be delivered, nothing else.

    It only moves forward. Reading it takes no lock.
    """

    __slots__ = ("_lock", "_moved", "visible")

    def __init__(self, visible: int) -> None:
        self.visible = visible
        # Entered itself: an interrupt may strike inside the methods of a condition, which are written in Python.
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)

    def advance(self, version: int) -> None:
        """Makes everything up to ``version`` visible; a lower version changes nothing."""
        with self._lock:
            if version > self.visible:
                self.visible = version
                self._moved.notify_all()

    def nudge(self) -> None:
        """Lets those who wait look at their condition again."""
        with self._lock:
            self._moved.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits until ``condition`` holds, looking after each advance or nudge; answers whether it does."""
        with self._lock:
            return self._moved.wait_for(condition, timeout)

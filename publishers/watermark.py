"""The newest version that may be delivered."""

import threading
from collections.abc import Callable

__all__ = ["Watermark"]


class Watermark:
    """The one publication point of a log: what is at or below ``visible`` may be delivered, nothing else.

    It only moves forward. Reading it takes no lock.
    """

    __slots__ = ("_moved", "visible")

    def __init__(self, visible: int) -> None:
        self.visible = visible
        self._moved = threading.Condition()

    def advance(self, version: int) -> None:
        """Makes everything up to ``version`` visible; a lower version changes nothing."""
        with self._moved:
            if version > self.visible:
                self.visible = version
                self._moved.notify_all()

    def nudge(self) -> None:
        """Lets those who wait look at their condition again."""
        with self._moved:
            self._moved.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits until ``condition`` holds, looking after each advance or nudge; answers whether it does."""
        with self._moved:
            return self._moved.wait_for(condition, timeout)

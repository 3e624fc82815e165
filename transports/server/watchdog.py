"""Detects peers that accept none of the bytes that are sent to them."""

import asyncio
from collections.abc import Callable
from typing import Final

__all__ = ["Watchdog"]

_STEPS: Final = 4  # checks within the timeout


class Watchdog:
    """Checks periodically whether a peer makes progress, and calls ``stalled`` if it makes none for the whole timeout.

    Args:
        loop: The event loop, on which everything here runs.
        timeout: Seconds without progress.
        progress: Returns a number that changes when the peer accepts bytes; None ends the watch.
        stalled: Called once.
    """

    __slots__ = ("_loop", "_progress", "_seen", "_stalled", "_step", "_still", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeout: float,
        progress: Callable[[], int | None],
        stalled: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._step = timeout / _STEPS
        self._progress = progress
        self._stalled = stalled
        self._seen: int | None = None
        self._still = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts the watch, unless it is running."""
        if self._timer is None:
            self._seen, self._still = self._progress(), 0
            self._timer = self._loop.call_later(self._step, self._look)

    def stop(self) -> None:
        """Stops the watch until the next ``start``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        seen = self._progress()
        if seen is None:
            return
        self._still = self._still + 1 if seen == self._seen else 0
        self._seen = seen
        if self._still >= _STEPS:
            self._stalled()
            return
        self._timer = self._loop.call_later(self._step, self._look)

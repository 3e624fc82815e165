"""Peers that take nothing of what is sent to them."""

import asyncio
from collections.abc import Callable
from typing import Final

__all__ = ["Watchdog"]

_STEPS: Final = 4  # looks within the timeout


class Watchdog:
    """Looks from time to time whether a peer takes anything, and calls when it has not for the whole timeout.

    Args:
        loop: The event loop, on which everything here is called.
        timeout: In seconds.
        progress: Tells a number that changes when the peer has taken something; None ends the watch.
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
        """Begins to watch, unless it does already."""
        if self._timer is None:
            self._seen, self._still = self._progress(), 0
            self._timer = self._loop.call_later(self._step, self._look)

    def stop(self) -> None:
        """Watches no more, until it is started again."""
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

"""The one background thread of an opened log. It never runs user code on its own account."""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from publishers.background import BackgroundThread
from publishers.wal.disk.notify import PollingListener

__all__ = ["HouseTimer", "Housekeeping"]

_log = logging.getLogger("penstock.housekeeping")


class HouseTimer(Protocol):
    """What the thread waits at between two steps."""

    def wait(self) -> object:
        """Waits until the next step is due, or somebody wakes it. For one thread at a time."""
        ...

    def wake(self) -> None:
        """Ends the wait of another thread, now or the next one; harmless if it is interrupted or done twice."""
        ...


class Housekeeping:
    """Calls a step of work at an interval, and when it is told that there is some.

    Args:
        step: One step; what it raises is logged, and the next step is tried all the same.
        interval: Seconds between two steps, or what tells when the next one is due.
        name: Name of the thread.
    """

    def __init__(self, step: Callable[[], None], interval: float | HouseTimer, name: str) -> None:
        self._step = step
        self._wait: Callable[[], object]
        if isinstance(interval, int | float):
            # Nobody notifies it, so it waits for the interval, or until it is woken.
            timer = PollingListener()
            self._wait, self._wake = partial(timer.wait, interval), timer.wake
        else:
            self._wait, self._wake = interval.wait, interval.wake
        self._ended = False
        self._thread = BackgroundThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Asks for a step now."""
        self._wake()

    def close(self) -> None:
        """Ends the thread after the step in progress."""
        self._ended = True
        self.poke()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended:
            try:
                self._wait()
                self._step()
            except Exception:  # noqa: BLE001 - whatever a step raises, the next one is tried all the same
                # An interrupt of `close` may end its wait for this thread, and what the thread works with is closed then.
                if not self._ended:
                    _log.exception("a step of housekeeping failed")

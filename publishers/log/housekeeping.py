"""The only background thread of an opened log. It runs no user code of its own accord."""

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
    """Waits between two steps of housekeeping."""

    def wait(self) -> object:
        """Waits until the next step is due, or `wake` is called. One thread waits at a time."""
        ...

    def wake(self) -> None:
        """Ends the wait of another thread, or else its next one. Idempotent; an interrupt does no harm."""
        ...


class Housekeeping:
    """Runs a step of work at an interval, and on request.

    Args:
        step: One step. Its exceptions are logged and do not stop later steps.
        interval: Seconds between two steps, or a timer that decides.
        name: Name of the thread.
    """

    def __init__(self, step: Callable[[], None], interval: float | HouseTimer, name: str) -> None:
        self._step = step
        self._wait: Callable[[], object]
        if isinstance(interval, int | float):
            # No writer notifies this listener, so it waits for the interval or for `wake`.
            timer = PollingListener()
            self._wait, self._wake = partial(timer.wait, interval), timer.wake
        else:
            self._wait, self._wake = interval.wait, interval.wake
        self._ended = False
        self._thread = BackgroundThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Requests a step now."""
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
            except Exception:  # noqa: BLE001 - an error must not stop later steps
                # An interrupt may end the join in `close`, after which the files are closed under this step.
                if not self._ended:
                    _log.exception("a step of housekeeping failed")

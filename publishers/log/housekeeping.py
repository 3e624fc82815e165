"""The background thread of a follower. It runs no user code of its own accord."""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from publishers.background import BackgroundThread

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
    """Runs a step of work whenever a timer ends its wait.

    Args:
        step: One step. Its exceptions are logged and do not stop later steps.
        timer: Decides when a step is due.
        name: Name of the thread.
    """

    def __init__(self, step: Callable[[], None], timer: HouseTimer, name: str) -> None:
        self._step = step
        self._timer = timer
        self._ended = False
        self._thread = BackgroundThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Requests a step now."""
        self._timer.wake()

    def close(self) -> None:
        """Ends the thread after the step in progress."""
        self._ended = True
        self.poke()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended:
            try:
                self._timer.wait()
                self._step()
            except Exception:  # noqa: BLE001 - an error must not stop later steps
                # An interrupt may end the join in `close`, after which the files are closed under this step.
                if not self._ended:
                    _log.exception("a step of housekeeping failed")

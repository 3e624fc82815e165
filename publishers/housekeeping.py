"""The one background thread of an opened log. It never runs user code on its own account."""

import logging
import threading
from collections.abc import Callable

from publishers.background import BackgroundThread

__all__ = ["Housekeeping"]

_log = logging.getLogger("penstock.housekeeping")


class Housekeeping:
    """Calls a step of work at an interval, and when it is told that there is some.

    Args:
        step: One step; what it raises is logged, and the next step is tried all the same.
        interval: Seconds between two steps.
        name: Name of the thread.
    """

    def __init__(self, step: Callable[[], None], interval: float, name: str) -> None:
        self._step = step
        self._interval = interval
        self._lock = threading.Lock()
        self._asked = threading.Condition(self._lock)
        self._wanted = False
        self._ended = False
        self._thread = BackgroundThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Asks for a step now."""
        with self._lock:
            self._wanted = True
            self._asked.notify()

    def close(self) -> None:
        """Ends the thread after the step in progress."""
        self._ended = True
        self.poke()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended:
            with self._lock:
                if not self._wanted:
                    self._asked.wait(self._interval)
                self._wanted = False
            try:
                self._step()
            except Exception:  # noqa: BLE001 - whatever a step raises, the next one is tried all the same
                _log.exception("a step of housekeeping failed")

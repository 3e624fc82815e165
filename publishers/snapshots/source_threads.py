"""The threads that read pages of the sources of the user's."""

import threading
from collections.abc import Callable, Hashable

from publishers.background import BackgroundThread
from publishers.errors import LogExhausted

__all__ = ["SourceThreads"]


class SourceThreads:
    """Threads for reads that may block for long: as many as there is work for, up to a bound, and none without any.

    Args:
        most: The bound, from 1.
        name: What the threads are called.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, Callable[[], object]] = {}
        self._running = 0

    @property
    def waiting(self) -> int:
        """How many reads wait for a thread."""
        return len(self._waiting)

    def send(self, key: Hashable, read: Callable[[], object]) -> None:
        """Has something read that never raises; ``key`` has nothing else to be read meanwhile.

        Raises:
            LogExhausted: If there is no thread for it, and the system gives none.
        """
        with self._lock:
            self._waiting[key] = read
            if self._running == self._most:
                return
            self._running += 1
        try:
            BackgroundThread(target=self._work, name=self._name, daemon=True).start()
        except LogExhausted:
            with self._lock:
                self._running -= 1
                self._waiting.pop(key, None)
            raise

    def forget(self, key: Hashable) -> None:
        """Reads nothing for a key any more, unless it is being read."""
        with self._lock:
            self._waiting.pop(key, None)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                read = self._waiting.pop(next(iter(self._waiting)))
            read()

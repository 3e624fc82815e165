"""The threads for subscribers that named no executor and run on no event loop: few, and more only where some block."""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

__all__ = ["DispatchPool"]

_LOG: Final = logging.getLogger("penstock.publishers")
_PATIENCE: Final = 0.01  # seconds in which no thread has come for what waits, until there is one more

Task = Callable[[], None]


class DispatchPool:
    """An executor that grows on need: when all its threads are busy and nothing that waits is taken for 10 ms.

    So many subscribers that are quick share few threads, and subscribers that block get others of their own. What has grown
    stays, as what has blocked once blocks again.

    Args:
        threads: How many there are at first; each is started when it is needed.
        most: How many there may be; it is logged once when they are there.
        name: How their names begin.
    """

    def __init__(self, threads: int, most: int, name: str) -> None:
        self._threads = threads
        self._most = max(threads, most)
        self._pool = ThreadPoolExecutor(self._most, name)
        self._lock = threading.Lock()
        self._closing = threading.Condition(self._lock)
        self._waiting: deque[Task] = deque()
        self._running = 0
        self._taken = 0
        self._watched = False
        self._closed = False

    @property
    def threads(self) -> int:
        """How many threads it allows itself now."""
        return self._threads

    def submit(self, task: Task, /) -> None:
        """Runs a task on one of the threads.

        Raises:
            RuntimeError: If it was shut down.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new tasks after shutdown")
            self._waiting.append(task)
            if self._running < self._threads:
                try:
                    self._pool.submit(self._work)
                except RuntimeError:  # the interpreter is shutting down
                    self._waiting.pop()
                    raise
                # After the submit: an interrupt between them leaves one thread too many, and none too few.
                self._running += 1
            else:
                self._watch_if_needed()

    def shutdown(self, *, wait: bool = True) -> None:
        """Takes no more tasks, and ends when what it has is done."""
        with self._lock:
            self._closed = True
            self._closing.notify_all()
        # What waits keeps the threads that run until it is done; only then is there nothing to submit any more.
        self._pool.shutdown(wait=wait)

    def _watch_if_needed(self) -> None:
        if self._waiting and not self._watched and self._threads < self._most and not self._closed:
            with contextlib.suppress(
                RuntimeError
            ):  # the interpreter is shutting down: those that run must do
                self._pool.submit(self._watch)
                self._watched = True

    def _work(self) -> None:
        """One thread, until nothing waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                task = self._waiting.popleft()
                self._taken += 1
            try:
                task()
            except BaseException as error:  # noqa: BLE001 - a subscriber's SystemExit must not strand those who wait
                _LOG.error("dropped by a dispatch thread", exc_info=error)
            del task

    def _watch(self) -> None:
        """Looks whether what waits is taken, and becomes one more thread if it is not."""
        with self._lock:
            seen = None
            while self._waiting and seen != self._taken:
                seen = self._taken
                if not self._closed:
                    self._closing.wait(_PATIENCE)
            self._watched = False
            if not self._waiting:
                return
            self._threads += 1
            self._running += 1
            full = self._threads == self._most
            self._watch_if_needed()
        if full:
            _LOG.warning(
                "subscribers that block have made the pool grow to its %d threads; name an executor for them, or raise "
                "dispatch_threads_max",
                self._most,
            )
        self._work()

"""The thread pool for subscribers that named no executor and run on no event loop; it grows only when subscribers block."""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

__all__ = ["DispatchPool"]

_LOG: Final = logging.getLogger("penstock.publishers")
_PATIENCE: Final = 0.01  # seconds without any task taken from the queue, after which the pool adds a thread

Task = Callable[[], None]


class DispatchPool:
    """An executor that adds a thread when all its threads are busy and no waiting task was taken for 10 ms.

    So many quick subscribers share few threads, and blocking subscribers get further ones. The pool never shrinks, because a
    subscriber that blocked once blocks again.

    Args:
        threads: Most threads at first; each starts when it is needed.
        most: Most threads to grow to; reaching it is logged once.
        name: Prefix of the threads' names.
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
        """Most threads that may run now."""
        return self._threads

    def submit(self, task: Task, /) -> None:
        """Runs a task on one of the threads.

        Raises:
            RuntimeError: If the pool was shut down.
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
                # After the submit: an interrupt in between leaves one thread too many, never one too few.
                self._running += 1
            else:
                self._watch_if_needed()

    def shutdown(self, *, wait: bool = True) -> None:
        """Refuses further tasks and runs the waiting ones; with ``wait``, returns after the last one."""
        with self._lock:
            self._closed = True
            self._closing.notify_all()
        # Running threads finish every waiting task first; nothing is submitted after that.
        self._pool.shutdown(wait=wait)

    def _watch_if_needed(self) -> None:
        if self._waiting and not self._watched and self._threads < self._most and not self._closed:
            with contextlib.suppress(
                RuntimeError
            ):  # the interpreter is shutting down: the running threads must suffice
                self._pool.submit(self._watch)
                self._watched = True

    def _work(self) -> None:
        """Runs waiting tasks on one thread until none is left."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                task = self._waiting.popleft()
                self._taken += 1
            try:
                task()
            except BaseException as error:  # noqa: BLE001 - a subscriber's SystemExit must not strand the waiting tasks
                _LOG.error("dropped by a dispatch thread", exc_info=error)
            del task

    def _watch(self) -> None:
        """Watches whether waiting tasks are taken; if none is taken in time, this thread starts to run tasks itself."""
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
                "subscribers that block have made the pool grow to its %d threads; name an executor for them",
                self._most,
            )
        self._work()

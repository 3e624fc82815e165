"""What other threads want done by the one that runs a sink."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from transports.sinks.errors import SinkStopped

__all__ = ["SinkOrders"]

T = TypeVar("T")


class SinkOrders:
    """Calls that wait for their turn, each with a future of what it returns.

    Args:
        name: Of the sink.
        wake: Called when there is one.
    """

    def __init__(self, name: str, wake: Callable[[], object]) -> None:
        self._name, self._wake = name, wake
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._closed = False

    def give(self, work: Callable[[], T]) -> "Future[T]":
        """Has something done; the future raises ``SinkStopped`` if it is too late for that."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(SinkStopped(self._name))
                return future
            self._waiting.append((work, future))
        self._wake()
        return future

    def obey(self) -> None:
        """Does what is wanted, in the order in which it was."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                work, future = self._waiting.popleft()
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - it is told to the thread that has ordered it
                future.set_exception(error)

    def close(self) -> None:
        """Takes no more, and refuses what waits."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            future.set_exception(SinkStopped(self._name))

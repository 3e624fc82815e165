"""The orders that other threads give to the thread that steps a sink."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from transports.sinks.errors import SinkStopped, plain_error

__all__ = ["SinkOrders"]

T = TypeVar("T")


class SinkOrders:
    """A queue of calls, each with a future of its result.

    Args:
        name: The name of the sink.
        wake: Called when an order arrives.
    """

    def __init__(self, name: str, wake: Callable[[], object]) -> None:
        self._name, self._wake = name, wake
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._closed = False

    def give(self, work: Callable[[], T]) -> "Future[T]":
        """Queues a call; its future raises ``SinkStopped`` if the runner has stopped."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(SinkStopped(self._name))
                return future
            self._waiting.append((work, future))
        self._wake()
        return future

    def waits(self) -> bool:
        """Whether a call is queued."""
        return bool(self._waiting)

    def obey(self) -> None:
        """Makes the queued calls, in order."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                work, future = self._waiting.popleft()
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - passed on to the ordering thread
                future.set_exception(plain_error(error))

    def close(self) -> None:
        """Refuses the queued calls, and all later ones."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            future.set_exception(SinkStopped(self._name))

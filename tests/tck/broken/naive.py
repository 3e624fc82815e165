"""Two that look right: what one writes first when a stream has to be bridged, or told to many.

They are no exotic mistakes, and no demand is lost in them: it was never there.
"""

import threading
from collections import deque
from typing import Any

from tests.tck.broken.catalogue import breaks
from tests.tck.broken.honest import HonestPublisher

__all__ = ["NaiveBridge", "QueuePerSubscriber"]


class _Registration:
    """What the subscribers of the naive bridge get for a subscription."""

    def __init__(self) -> None:
        self.disposed = False

    def request(self, _n: int, /) -> None:
        """An observable knows no demand, so there is nothing to do."""

    def cancel(self) -> None:
        """Disposes of the observer."""
        self.disposed = True


@breaks(
    "required_spec101",
    "required_spec309_requestZero",
    "required_spec309_requestNegative",
    "extra_spec308",
    "extra_spec309",
)
class NaiveBridge(HonestPublisher):
    """An observable of ReactiveX with the methods renamed: whatever it pushes is passed on at once."""

    def serve(self, subscriber: Any) -> None:
        """Push."""
        registration = _Registration()
        subscriber.on_subscribe(registration)
        if self.error is not None:
            subscriber.on_error(self.error)
            return
        for item in range(1, min(self.count, 10_000) + 1):
            if registration.disposed:
                return
            subscriber.on_next(item)
        if not registration.disposed:
            subscriber.on_complete()


class _Queue:
    """The subscription of the broadcaster: an unbounded queue, emptied as the subscriber asks."""

    def __init__(self, subscriber: Any) -> None:
        self.subscriber = subscriber
        self.waiting: deque[Any] = deque()
        self.ended = False
        self.lock = threading.RLock()

    def request(self, n: int, /) -> None:
        """Deliver here and now, if there are so many."""
        with self.lock:
            for _ in range(n):
                if not self.waiting or self.ended:
                    break
                self.subscriber.on_next(self.waiting.popleft())
            if not self.waiting and not self.ended:
                self.ended = True
                self.subscriber.on_complete()

    def cancel(self) -> None:
        """Forget what waits."""
        with self.lock:
            self.ended = True
            self.waiting.clear()


@breaks(
    "required_spec303",
    "required_spec309_requestZero",
    "required_spec309_requestNegative",
    "required_spec313",
    "extra_spec304",
    "extra_spec305",
    "extra_spec209_anEmptyStream",
)
class QueuePerSubscriber(HonestPublisher):
    """A broadcaster that copies each element into a queue for each subscriber, and keeps a list of them."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        super().__init__(count, error)
        self.queues: list[_Queue] = []

    def serve(self, subscriber: Any) -> None:
        """Copy everything."""
        queue = _Queue(subscriber)
        self.queues.append(queue)
        queue.waiting.extend(range(1, min(self.count, 10_000) + 1))
        subscriber.on_subscribe(queue)
        if self.error is not None:
            queue.ended = True
            subscriber.on_error(self.error)

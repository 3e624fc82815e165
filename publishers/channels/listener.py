"""One subscription to channels: what waits for it, within its bound, and its drain."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flow.contracts import Subscriber
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.errors import Overflowed
from flow.executors import AnyExecutor
from flow.overflow import KEPT, Backlog, Meter, Overflow
from publishers.channels.message import Message
from publishers.channels.statistics import ListenerStatistics
from publishers.criteria.criteria import Criteria

__all__ = ["MessageListener"]


class MessageListener:
    """The feed of one subscriber's drain: the messages that concern it and were not delivered yet.

    A loss is told twice: by ``Message.missed`` of the next message behind it, and by the subscriber's optional
    ``on_lagged(missed)``, at once and without demand.

    Attributes:
        id: What tells it from every other one of the same channels.
        name: What it is called.
        criteria: What it listens to.
    """

    def __init__(
        self,
        number: int,
        subscriber: Subscriber[Message],
        criteria: Criteria,
        backlog: Callable[[Meter], Backlog[Message]],
        *,
        executor: AnyExecutor,
        name: str,
        leave: "Callable[[MessageListener], None]",
    ) -> None:
        self.id = number
        self.name = name
        self.criteria = criteria
        self._lock = threading.Lock()
        self._meter = Meter()
        self._backlog = backlog(self._meter)
        self._closed = False
        self._error: Exception | None = None
        self._missed = 0  # not noted on a message yet
        self._untold = 0  # not told to the subscriber yet
        self._leave = leave
        self._hears_of_loss = callable(getattr(subscriber, "on_lagged", None))
        self._drain: Drain[Message] = Drain(subscriber, self, executor=executor)

    def start(self) -> None:
        """Gives the subscriber its subscription."""
        self._drain.start()

    # On the thread of whoever publishes.

    def offer(self, message: Message) -> bool:
        """Keeps a message for the subscriber; answers whether it did. Calls nobody; `wake` follows."""
        with self._lock:
            if self._closed:
                return False
            backlog = self._backlog
            keeps_latest = backlog.overflow is not Overflow.DROP_LATEST
            if self._missed and not keeps_latest and len(backlog) < (backlog.capacity or 0):
                message, self._missed = replace(message, missed=self._missed), 0
            if backlog.put(message) is KEPT:
                return True
            if backlog.overflow is Overflow.ERROR:
                self._closed = True
                self._error = Overflowed(len(backlog) + 1, len(backlog))
                return False
            self._missed += 1
            self._untold += 1
            return keeps_latest

    def wake(self) -> None:
        """There is a message, a loss, or the end. User code may run here, so hold no lock."""
        if self._error is not None:
            self._drain.fail(self._error)
        elif self._untold and self._hears_of_loss:
            self._drain.tell("lagged", self._tell_loss)
        else:
            self._drain.signal()

    def close(self) -> None:
        """Takes in no more; what waits is delivered, and then the end. `wake` follows."""
        with self._lock:
            self._closed = True

    # What its drain calls.

    def pull(self, limit: int, /) -> Sequence[Message]:
        """The oldest of what waits."""
        with self._lock:
            taken = self._backlog.take(limit)
            if taken and self._missed and self._backlog.overflow is not Overflow.DROP_LATEST:
                taken[0], self._missed = replace(taken[0], missed=self._missed), 0
            return taken

    def outcome(self) -> Outcome | None:
        """The end comes after what waits; an error does not wait, nor may it be taken for the end before `wake`."""
        with self._lock:
            if self._error is not None:
                return Failed(self._error)
            return COMPLETED if self._closed and not self._backlog else None

    def release(self) -> None:
        """Leaves the channels, and keeps nothing."""
        with self._lock:
            self._closed = True
            self._backlog.clear()
        self._leave(self)

    def _tell_loss(self, subscriber: Any) -> None:
        with self._lock:
            missed, self._untold = self._untold, 0
        if missed:
            subscriber.on_lagged(missed)

    # What it tells of itself.

    @property
    def dropped(self) -> int:
        """Messages that it lost."""
        return self._meter.statistics().dropped

    def statistics(self) -> ListenerStatistics:
        """The numbers of this moment."""
        counted = self._meter.statistics()
        wishes = self.criteria.criterions
        return ListenerStatistics(
            id=self.id,
            name=self.name,
            channels=tuple(sorted({name for wish in wishes for name in wish.keys})),
            patterns=tuple(sorted({glob for wish in wishes for glob in wish.key_globs})),
            overflow=self._backlog.overflow,
            capacity=self._backlog.capacity or 0,
            waiting=counted.buffered,
            greatest=counted.greatest,
            demand=self._drain.demand,
            received=counted.received,
            dropped=counted.dropped,
        )

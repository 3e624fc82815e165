"""One subscription to channels: its bounded backlog of messages, and its drain; and the statistics of subscriptions."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flow.contracts import Subscriber
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.errors import Overflowed
from flow.executors import AnyExecutor
from flow.overflow import KEPT, Backlog, Meter, Overflow
from publishers.criteria.criteria import Criteria

__all__ = ["ChannelStatistics", "ListenerStatistics", "Message", "MessageListener"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. It is not stored, and has no position: it cannot be requested again.

    Attributes:
        channel: The channel on which it was published.
        content: The published object itself; all subscribers share it.
        missed: Messages that this subscriber lost between the previous message and this one.
    """

    channel: str
    content: object
    missed: int = 0


@dataclass(frozen=True, slots=True)
class ListenerStatistics:
    """Statistics of one subscription.

    Attributes:
        id: Its id, unique among the subscriptions of the same channels.
        name: Its name.
        channels: The names it subscribes to, sorted.
        patterns: The patterns it subscribes to, sorted.
        overflow: What happens to a message beyond the capacity.
        capacity: Most messages that wait.
        waiting: Messages that wait now.
        greatest: Most messages that ever waited.
        demand: Messages requested and not delivered.
        received: Messages that matched it.
        dropped: Messages of these that it lost.
    """

    id: int
    name: str
    channels: tuple[str, ...]
    patterns: tuple[str, ...]
    overflow: Overflow
    capacity: int
    waiting: int
    greatest: int
    demand: int
    received: int
    dropped: int


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """Statistics of all channels.

    Attributes:
        published: Published messages.
        unheard: Published messages that no subscription accepted.
        passed_on: Messages accepted by subscriptions, counted once for each.
        dropped: Messages lost by subscriptions, counted once for each; ended subscriptions included.
        evaluations: How often a pattern was evaluated on a name; this depends only on the patterns that a name leads to.
        closed: Whether the channels were closed.
        listeners: The subscriptions, in the order in which they were added.
    """

    published: int
    unheard: int
    passed_on: int
    dropped: int
    evaluations: int
    closed: bool
    listeners: tuple[ListenerStatistics, ...]


class MessageListener:
    """Feeds one subscriber's drain with the messages that match it and are not delivered yet.

    A loss is reported twice: in ``Message.missed`` of the next message after it, and to the subscriber's optional
    ``on_lagged(missed)``, at once and without demand.

    Attributes:
        id: Its id, unique among the subscriptions of the same channels.
        name: Its name.
        criteria: The names and patterns it subscribes to.
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
        self._unreported = 0  # not reported to on_lagged yet
        self._leave = leave
        self._hears_of_loss = callable(getattr(subscriber, "on_lagged", None))
        self._drain: Drain[Message] = Drain(subscriber, self, executor=executor)

    def start(self) -> None:
        """Calls ``on_subscribe`` with the subscription."""
        self._drain.start()

    # On the publishing thread.

    def offer(self, message: Message) -> bool:
        """Queues a message for the subscriber; returns whether it did. Runs no user code; the caller calls `wake` next."""
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
            self._unreported += 1
            return keeps_latest

    def wake(self) -> None:
        """Delivers a message, a loss, or the end. The caller must hold no lock, because user code may run here."""
        if self._error is not None:
            self._drain.fail(self._error)
        elif self._unreported and self._hears_of_loss:
            self._drain.notify("lagged", self._report_loss)
        else:
            self._drain.signal()

    def close(self) -> None:
        """Accepts no further message; the waiting ones are delivered, then the end. The caller calls `wake` next."""
        with self._lock:
            self._closed = True

    # Called by the drain.

    def pull(self, limit: int, /) -> Sequence[Message]:
        """Takes the oldest waiting messages."""
        with self._lock:
            taken = self._backlog.take(limit)
            if taken and self._missed and self._backlog.overflow is not Overflow.DROP_LATEST:
                taken[0], self._missed = replace(taken[0], missed=self._missed), 0
            return taken

    def outcome(self) -> Outcome | None:
        """The completion follows the waiting messages. An error does not wait, and is visible here even before `wake`."""
        with self._lock:
            if self._error is not None:
                return Failed(self._error)
            return COMPLETED if self._closed and not self._backlog else None

    def release(self) -> None:
        """Leaves the channels, and drops the waiting messages."""
        with self._lock:
            self._closed = True
            self._backlog.clear()
        self._leave(self)

    def _report_loss(self, subscriber: Any) -> None:
        with self._lock:
            missed, self._unreported = self._unreported, 0
        if missed:
            subscriber.on_lagged(missed)

    # Statistics.

    @property
    def dropped(self) -> int:
        """Messages that the subscription has lost."""
        return self._meter.statistics().dropped

    def statistics(self) -> ListenerStatistics:
        """Returns the statistics at this moment."""
        counted = self._meter.statistics()
        criterions = self.criteria.criterions
        return ListenerStatistics(
            id=self.id,
            name=self.name,
            channels=tuple(sorted({name for criterion in criterions for name in criterion.keys})),
            patterns=tuple(sorted({glob for criterion in criterions for glob in criterion.key_globs})),
            overflow=self._backlog.overflow,
            capacity=self._backlog.capacity or 0,
            waiting=counted.buffered,
            greatest=counted.greatest,
            demand=self._drain.demand,
            received=counted.received,
            dropped=counted.dropped,
        )

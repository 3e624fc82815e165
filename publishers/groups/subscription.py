"""The deliveries of a consumer as a stream: a publisher whose demand bounds what is taken from the group."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from flow.bridges.iterators import IterablePublisher
from flow.contracts import Subscriber
from flow.drain import COMPLETED, Drain, Outcome
from flow.executors import AnyExecutor
from flow.misuse import require_subscriber
from publishers.errors import LogClosed, PenstockError
from publishers.groups.consumers import GroupConsumer
from publishers.groups.delivery import GroupDelivery
from publishers.groups.errors import GroupPaused

if TYPE_CHECKING:
    from publishers.groups.ports import GroupLog

__all__ = ["DeliveryFeed", "DeliverySource", "DeliverySubscription", "ReadBounds"]


class DeliverySource(Protocol):
    """The group, as its subscriptions use it."""

    def deliver(
        self, consumer: GroupConsumer, most: int, *, history: bool, nbytes: int | None
    ) -> list[GroupDelivery]:
        """Returns the deliveries ready for a consumer, up to ``most`` and ``max_bytes``, or ``nbytes`` if that is less."""
        ...

    def check(self, consumer: GroupConsumer) -> None:
        """Raises the error for which a consumer can receive no more deliveries, if there is one."""
        ...

    def give_back(self, consumer: GroupConsumer, deliveries: Sequence[GroupDelivery]) -> None:
        """Returns deliveries that the consumer did not receive; they count as no delivery."""
        ...

    def attend(self, consumer: GroupConsumer, waiter: "DeliverySubscription") -> None:
        """Registers a waiter to be set when there may be deliveries; the consumer counts as present meanwhile."""
        ...

    def desert(self, consumer: GroupConsumer, waiter: "DeliverySubscription") -> None:
        """Removes a waiter."""
        ...

    def listen(self, consumer: GroupConsumer, notify: Callable[[], object]) -> Callable[[], object]:
        """Calls ``notify`` when there is a change to read; returns a function that ends this."""
        ...


class ReadBounds(NamedTuple):
    """How a subscription reads.

    Attributes:
        batch: Most deliveries of one read.
        nbytes: Most bytes of their changes; None for ``max_bytes`` of the group.
        history: Whether deliveries pending from before this joining of the name come first.
    """

    batch: int
    nbytes: int | None = None
    history: bool = False


class DeliverySubscription:
    """The feed of a drain. Deliveries are read on the pool of the log, and never more than were requested.

    When the subscription ends, deliveries that were read and not delivered return to the group and count as no delivery.

    Args:
        source: The group.
        log: Runs tasks that may wait for the disk.
        consumer: The consumer.
        subscriber: Receives the deliveries.
        executor: The executor of the signals; None for the thread of the pool or the requesting thread.
        bounds: How it reads.
    """

    def __init__(
        self,
        source: DeliverySource,
        log: "GroupLog",
        consumer: GroupConsumer,
        subscriber: Subscriber[GroupDelivery],
        executor: AnyExecutor | None,
        bounds: ReadBounds,
    ) -> None:
        self._source = source
        self._log = log
        self._consumer = consumer
        self._bounds = bounds
        self._history = bounds.history
        self._lock = threading.Lock()
        self._found: deque[GroupDelivery] = deque()
        self._reading = False
        self._again = False  # set() was called during a read
        self._completed = False
        self._released = False
        self._unlisten: Callable[[], object] = _nothing
        self._drain: Drain[GroupDelivery] = Drain(subscriber, self, executor=executor)

    def start(self) -> None:
        """Calls ``on_subscribe``, after which signals may follow."""
        self._source.attend(self._consumer, self)
        self._drain.start()
        self._check()

    def complete(self) -> None:
        """Completes the subscription, because the consumer leaves."""
        with self._lock:
            self._completed = True
            left, self._found = list(self._found), deque()
        self._source.give_back(self._consumer, left)
        self._drain.signal()

    def set(self) -> None:
        """Reads deliveries on the pool if there is demand; called from any thread when there may be some."""
        with self._lock:
            self._again = self._reading
            idle = self._released or self._completed or self._reading or bool(self._found)
            if idle or not self._drain.demand:
                return
            self._reading = True
        self._aside(self._read)

    def look(self) -> None:
        """Checks on the pool, demand or not, whether the consumer was fenced or the group has ended; from any thread."""
        self._aside(self._check)

    # For the drain, which pulls from it.

    def pull(self, limit: int, /) -> Sequence[GroupDelivery]:
        """Takes deliveries that were read; never does I/O."""
        with self._lock:
            taken = [self._found.popleft() for _ in range(min(limit, len(self._found)))]
        if not taken:
            self.set()
        return taken

    def outcome(self) -> Outcome | None:
        """Whether the consumer has left."""
        return COMPLETED if self._completed and not self._found else None

    def release(self) -> None:
        """Returns deliveries that were read to the group, and ends every wait."""
        with self._lock:
            first, self._released = not self._released, True
            left, self._found = list(self._found), deque()
            unlisten, self._unlisten = self._unlisten, _nothing
        unlisten()
        if first:
            self._source.desert(self._consumer, self)
        if left:
            self._source.give_back(self._consumer, left)

    def _aside(self, task: Callable[[], None]) -> None:
        try:
            self._log.aside(task)
        except RuntimeError:  # the log was closed, and its pool with it
            self._drain.fail(LogClosed())

    # On a thread of the pool.

    def _check(self) -> None:
        try:
            self._source.check(self._consumer)
        except PenstockError as error:
            self._drain.fail(error)

    def _read(self) -> None:
        found: list[GroupDelivery] = []
        unlisten: Callable[[], object] = _nothing
        try:
            most = min(self._drain.demand, self._bounds.batch)
            if most:
                with contextlib.suppress(
                    GroupPaused
                ):  # already logged; resuming the group notifies the subscription
                    found = self._source.deliver(
                        self._consumer, most, history=self._history, nbytes=self._bounds.nbytes
                    )
                if not found:
                    self._history = False  # all of it has been read
                    unlisten = self._source.listen(self._consumer, self.set)
        except Exception as error:  # noqa: BLE001 - every error must reach the subscriber
            self._drain.fail(error)
        with self._lock:
            self._reading = False
            over = self._released or self._completed
            if not over:
                self._found.extend(found)
                unlisten, self._unlisten = self._unlisten, unlisten
            again, self._again = self._again, False
        unlisten()
        if over:
            if found:
                self._source.give_back(self._consumer, found)
        elif found:
            self._drain.signal()
        elif again:
            self.set()


class DeliveryFeed(IterablePublisher[GroupDelivery]):
    """The deliveries of a consumer, as a publisher; what ``member.deliveries()`` returns.

    A subscriber receives as many deliveries as it has requested, and only these are taken from the group. It acknowledges with the
    methods of the consumer. While the group is paused it waits.

    Args:
        subscribe: Starts a subscription.
    """

    def __init__(
        self, subscribe: "Callable[[Subscriber[GroupDelivery], AnyExecutor | None], object]"
    ) -> None:
        self._subscribe = subscribe

    def subscribe(
        self, subscriber: Subscriber[GroupDelivery], /, *, executor: AnyExecutor | None = None
    ) -> None:
        """Starts a subscription, which completes when the consumer leaves.

        The subscriber gets ``on_error`` with ``ConsumerFenced`` if another consumer has joined under its name, and with
        ``GroupLost``, ``NoSuchGroup`` or ``LogClosed`` if there can be no more deliveries.

        Args:
            subscriber: Receives the deliveries.
            executor: The executor of the signals; None for a thread of the log or the requesting thread.

        Raises:
            TypeError: If the subscriber is None or lacks a method, or ``executor`` is not an executor.
        """
        require_subscriber(subscriber)
        self._subscribe(subscriber, executor)


def _nothing() -> None:
    """Does nothing; stands for a listener that is not there."""

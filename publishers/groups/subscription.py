"""Deliveries as a stream: a consumer of a group as a publisher, whose demand is what it may be given."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from flow.bridges.iterable import IterablePublisher
from flow.contracts import Subscriber
from flow.drain import COMPLETED, Drain, Outcome
from flow.executors import AnyExecutor
from flow.misuse import require_subscriber
from publishers.errors import LogClosed, PenstockError
from publishers.groups.delivery import GroupDelivery
from publishers.groups.errors import GroupPaused
from publishers.groups.members import GroupConsumer

if TYPE_CHECKING:
    from publishers.groups.ports import GroupLog

__all__ = ["DeliveryFeed", "DeliverySource", "DeliverySubscription", "ReadBounds"]


class DeliverySource(Protocol):
    """The group, as its subscriptions use it."""

    def deliver(
        self, consumer: GroupConsumer, most: int, *, history: bool, nbytes: int | None
    ) -> list[GroupDelivery]:
        """What there is for a consumer now, up to ``max_bytes``, or to fewer bytes."""
        ...

    def check(self, consumer: GroupConsumer) -> None:
        """Raises what a consumer can have nothing any more for."""
        ...

    def give_back(self, consumer: GroupConsumer, deliveries: Sequence[GroupDelivery]) -> None:
        """What was not given to the consumer counts as not delivered."""
        ...

    def attend(self, consumer: GroupConsumer, waiter: "DeliverySubscription") -> None:
        """Tells a waiter when there may be something, and takes the consumer for present meanwhile."""
        ...

    def desert(self, consumer: GroupConsumer, waiter: "DeliverySubscription") -> None:
        """Ends that."""
        ...

    def listen(self, consumer: GroupConsumer, notify: Callable[[], object]) -> Callable[[], object]:
        """Has something called when there is a change to be read; answers with what ends that."""
        ...


class ReadBounds(NamedTuple):
    """How a subscription reads.

    Attributes:
        batch: Most deliveries of one read.
        nbytes: Most bytes of their changes; None for ``max_bytes`` of the group.
        history: Whether what a consumer of the name had before it joined again comes first.
    """

    batch: int
    nbytes: int | None = None
    history: bool = False


class DeliverySubscription:
    """What a drain pulls deliveries from. They are read on the pool of the log, never more than were asked for.

    What was read and not given goes back to the group, uncounted, when the subscription ends.

    Args:
        source: The group.
        log: Where tasks run that may wait for the disk.
        consumer: Of which consumer.
        subscriber: Gets the deliveries.
        executor: Where signals run; None for the thread of the pool, or whichever requests.
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
        self._again = False  # something came while it was reading
        self._completed = False
        self._released = False
        self._unlisten: Callable[[], object] = _nothing
        self._drain: Drain[GroupDelivery] = Drain(subscriber, self, executor=executor)

    def start(self) -> None:
        """Gives the subscriber its subscription, after which signals may follow."""
        self._source.attend(self._consumer, self)
        self._drain.start()
        self._check()

    def complete(self) -> None:
        """The consumer leaves: nothing follows."""
        with self._lock:
            self._completed = True
            left, self._found = list(self._found), deque()
        self._source.give_back(self._consumer, left)
        self._drain.signal()

    def set(self) -> None:
        """There may be something; from any thread."""
        with self._lock:
            self._again = self._reading
            idle = self._released or self._completed or self._reading or bool(self._found)
            if idle or not self._drain.demand:
                return
            self._reading = True
        self._aside(self._read)

    def look(self) -> None:
        """Its consumer may be fenced, or the group gone, which the subscriber hears without demand; from any thread."""
        self._aside(self._check)

    # What its drain pulls from.

    def pull(self, limit: int, /) -> Sequence[GroupDelivery]:
        """Takes what was read; never does I/O."""
        with self._lock:
            taken = [self._found.popleft() for _ in range(min(limit, len(self._found)))]
        if not taken:
            self.set()
        return taken

    def outcome(self) -> Outcome | None:
        """Whether the consumer has left."""
        return COMPLETED if self._completed and not self._found else None

    def release(self) -> None:
        """Gives back what was read, and waits for nothing more."""
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
        except RuntimeError:  # its pool is gone, as the log was closed
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
                ):  # it was logged as an error; whoever resumes the group tells
                    found = self._source.deliver(
                        self._consumer, most, history=self._history, nbytes=self._bounds.nbytes
                    )
                if not found:
                    self._history = False  # it has come
                    unlisten = self._source.listen(self._consumer, self.set)
        except Exception as error:  # noqa: BLE001 - whatever it is, the subscriber must hear of it
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

    A subscriber is given as many as it has requested, and nothing is taken from the group that was not. It acknowledges with the
    methods of the consumer. While the group is paused it waits.

    Args:
        subscribe: Begins a subscription.
    """

    def __init__(
        self, subscribe: "Callable[[Subscriber[GroupDelivery], AnyExecutor | None], object]"
    ) -> None:
        self._subscribe = subscribe

    def subscribe(
        self, subscriber: Subscriber[GroupDelivery], /, *, executor: AnyExecutor | None = None
    ) -> None:
        """Begins a subscription, which completes when the consumer leaves.

        The subscriber gets ``on_error`` with ``ConsumerFenced`` if the consumer has joined again, ``GroupLost``, ``NoSuchGroup`` or
        ``LogClosed`` if there is nothing to be had any more.

        Args:
            subscriber: Gets the deliveries.
            executor: Where signals run; None for a thread of the log, or whichever requests.

        Raises:
            TypeError: If the subscriber is None or lacks a method, or the executor is none.
        """
        require_subscriber(subscriber)
        self._subscribe(subscriber, executor)


def _nothing() -> None:
    """Ends nothing."""

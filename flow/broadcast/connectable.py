"""Publishers that share one subscription to their source, and the policies that begin and end it."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from flow.broadcast.hub import Hub
from flow.broadcast.policy import BroadcastStart, Lag
from flow.clock import SYSTEM_CLOCK
from flow.contracts import UNBOUNDED, Publisher, Subscriber, Subscription
from flow.demand import Tide
from flow.drain import COMPLETED, Failed, Outcome
from flow.drain.feed import GONE
from flow.errors import FlowError
from flow.executors import AnyExecutor
from flow.misuse import require_publisher, require_seconds
from flow.operators.link import at_least
from flow.operators.timers import TIMERS, Alarm, Timers
from flow.sources import Source

__all__ = ["Connectable", "Connection", "Disconnected", "publish", "replay", "share"]


T = TypeVar("T")


class Disconnected(FlowError):
    """The publisher was disconnected from its source."""

    def __init__(self) -> None:
        super().__init__("the publisher was disconnected from its source")


class Connection(Generic[T]):
    """The one subscriber of a source, and the ring from which many subscriptions read.

    It requests ``prefetch`` elements ahead of the slowest BLOCK subscription: the ring has room for these, and for the elements
    that are replayed. Without BLOCK subscriptions it requests as fast as the source delivers.

    Args:
        source: The source; `connect` subscribes to it.
        prefetch: Elements requested at first; afterwards, 75 % of it or more whenever there is room.
        replay: The number of newest elements with which a new subscriber begins.
        lag: The policy of subscribers that name none.

    Raises:
        ValueError: If a number is out of its bounds.
    """

    def __init__(self, source: Publisher[T], prefetch: int, replay: int, lag: Lag) -> None:
        tide = Tide(prefetch)
        if prefetch >= UNBOUNDED:
            raise ValueError(
                f"prefetch: {prefetch!r}; a bounded integer is expected: it is the size of a ring"
            )
        at_least("replay", replay, 0)
        self._prefetch = prefetch
        self._refill = tide.refill
        self._source: Publisher[T] | None = source
        self._upstream: Subscription = GONE
        self._greeted = False
        # The sequence number up to which elements were requested. It is at most ``prefetch`` behind the end of the ring, and a
        # subscription begins at most ``replay`` before the end: so requested elements never overtake a BLOCK subscription.
        self._granted = 0
        self._asking = False
        self._hub: Hub[T] = Hub(prefetch + replay, replay, lag, SYSTEM_CLOCK, make_room=self._ask)

    @property
    def ended(self) -> bool:
        """Whether the stream has ended."""
        return self._hub.outcome is not None

    def on_left(self, call: Callable[[], object]) -> None:
        """Set the function that is called after each end of a subscription."""
        self._hub.left = call

    def connect(self) -> None:
        """Subscribe to the source; later calls have no effect."""
        with self._hub.lock:
            source, self._source = self._source, None
        if source is not None:
            source.subscribe(self)

    def disconnect(self) -> None:
        """Cancel upstream; open subscriptions end with `Disconnected`."""
        self._end(Failed(Disconnected())).cancel()

    def subscribe(
        self,
        subscriber: Subscriber[T],
        lag: Lag | None,
        executor: AnyExecutor | None,
    ) -> None:
        """Begin a subscription.

        Args:
            subscriber: Begins with the replayed elements.
            lag: Its policy; that of the connection if ``None``.
            executor: Runs its signals.

        Raises:
            TypeError: If the subscriber is ``None``, or the executor is no executor.
        """
        self._hub.subscribe(subscriber, lag, BroadcastStart.REPLAY, executor)

    # Called by the source.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Accept the first subscription and request the prefetch; cancel any other (rule 2.5)."""
        if subscription is None:
            raise TypeError("rule 2.13: the subscription is None")
        with self._hub.lock:
            refused = self._greeted or self._hub.outcome is not None
            if not refused:
                self._greeted = True
                self._upstream = subscription
        if refused:
            subscription.cancel()
        else:
            self._ask()

    def on_next(self, item: T, /) -> None:
        """Deliver an element to all subscribers."""
        if item is None:
            raise TypeError("rule 2.13: the element is None")
        hub = self._hub
        with hub.lock:
            if hub.outcome is not None:
                return
            asked = hub.ring.end < self._granted
            items = hub.put((item,)) if asked else None
        if not asked:
            error = RuntimeError("rule 1.1: the source gave an element that was not requested")
            self._end(Failed(error)).cancel()
            return
        hub.deliver(items)
        self._ask()

    def on_error(self, error: Exception, /) -> None:
        """End all subscriptions with the error, which overtakes waiting elements."""
        if error is None:
            raise TypeError("rule 2.13: the error is None")
        self._end(Failed(error))

    def on_complete(self) -> None:
        """Complete each subscription after its waiting elements."""
        self._end(COMPLETED)

    def _end(self, outcome: Outcome) -> Subscription:
        """End all subscriptions, and detach upstream first (rule 2.3); returns the upstream subscription."""
        with self._hub.lock:
            upstream, self._upstream, self._source = self._upstream, GONE, None
            self._greeted = True
        self._hub.end(outcome)
        return upstream

    def _ask(self) -> None:
        """Request as many elements as there is room for; one thread at a time does, so requests are serial (rule 2.7)."""
        asking = False
        try:
            while True:
                with self._hub.lock:
                    due = self._hub.gate + self._prefetch - self._granted
                    if due < self._refill or not self._greeted or (self._asking and not asking):
                        self._asking = self._asking and not asking
                        return
                    self._asking = asking = True
                    self._granted += due
                    upstream = self._upstream
                upstream.request(due)
        except BaseException:
            with self._hub.lock:
                self._asking = False
            raise


def publish(publisher: Publisher[T], prefetch: int = 256, *, lag: Lag = Lag.BLOCK) -> "Connectable[T]":
    """Share one subscription to a publisher, which becomes hot once it is connected.

    Args:
        publisher: The source.
        prefetch: Elements requested at first, and most elements ahead of the slowest BLOCK subscriber.
        lag: The policy for subscribers that are ``prefetch`` elements behind, and name no other policy.

    Raises:
        ValueError: If ``prefetch`` is not a positive integer, or unbounded.
    """
    require_publisher("publisher", publisher)
    return Connectable(lambda: Connection(publisher, prefetch, 0, lag))


def replay(publisher: Publisher[T], n: int, prefetch: int = 256, *, lag: Lag = Lag.BLOCK) -> "Connectable[T]":
    """Share one subscription to a publisher; late subscribers begin with the last ``n`` elements.

    Args:
        publisher: The source.
        n: Elements that are kept for late subscribers; also after the completion.
        prefetch: As in `publish`.
        lag: As in `publish`; a subscriber may be ``n`` elements further behind.

    Raises:
        ValueError: If a number is out of its bounds.
    """
    require_publisher("publisher", publisher)
    return Connectable(lambda: Connection(publisher, prefetch, n, lag))


def share(publisher: Publisher[T], prefetch: int = 256, *, grace: float = 0) -> Source[T]:
    """Share one subscription while there are subscribers: ``publish(publisher, prefetch).ref_count(grace=grace)``."""
    return publish(publisher, prefetch).ref_count(grace=grace)


class Connectable(Generic[T]):
    """A publisher that shares one subscription to its source, from `connect` on.

    Before that subscribers wait; afterwards the source runs, with subscribers or without. After its end a new
    subscriber gets the replayed elements and the end, until `connect` is called again.
    """

    __slots__ = ("_connection", "_lock", "_make")

    def __init__(self, make: Callable[[], Connection[T]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._connection = make()

    def subscribe(
        self,
        subscriber: Subscriber[T],
        /,
        *,
        lag: Lag | None = None,
        executor: AnyExecutor | None = None,
    ) -> None:
        """Begin a subscription; see `flow.Broadcast.subscribe`."""
        with self._lock:
            connection = self._connection
        connection.subscribe(subscriber, lag, executor)

    def connect(self) -> Callable[[], None]:
        """Subscribe to the source if that was not done yet, or if the source has ended since.

        Returns:
            A function that ends this connection: it cancels upstream, and ends subscriptions with `flow.Disconnected`.
            Idempotent.
        """
        with self._lock:
            if self._connection.ended:
                self._connection = self._make()
            connection = self._connection
        connection.connect()
        return connection.disconnect

    def auto_connect(self, n: int = 1) -> Source[T]:
        """Connect once, when the ``n``-th subscriber subscribes.

        Raises:
            ValueError: If ``n`` is not a positive integer.
        """
        return _AutoConnected(self, at_least("n", n))

    def ref_count(self, n: int = 1, grace: float = 0, *, timers: Timers = TIMERS) -> Source[T]:
        """Connect when there are ``n`` subscribers, and disconnect when the last has left.

        The returned publisher has connections of its own. A subscriber after the end of the source begins a new connection.

        Args:
            n: Subscribers to wait for; at least 1.
            grace: Seconds for which the connection outlives its last subscriber; a subscriber that comes meanwhile joins it.
            timers: Measure the grace time.

        Raises:
            ValueError: If a number is out of its bounds.
        """
        require_seconds("grace", grace)
        return _RefCounted(self._make, at_least("n", n), grace, timers)


class _AutoConnected(Generic[T]):
    __slots__ = ("_connectable", "_lock", "_missing")

    def __init__(self, connectable: Connectable[T], n: int) -> None:
        self._connectable = connectable
        self._lock = threading.Lock()
        self._missing = n

    def subscribe(
        self,
        subscriber: Subscriber[T],
        /,
        *,
        executor: AnyExecutor | None = None,
    ) -> None:
        self._connectable.subscribe(subscriber, executor=executor)
        with self._lock:
            self._missing -= 1
            go = self._missing == 0
        if go:
            self._connectable.connect()


class _RefCounted(Generic[T]):
    """One lock decides which subscriber is the first, and which the last; a counted subscriber keeps its connection open."""

    __slots__ = ("_alarm", "_connection", "_count", "_grace", "_lock", "_make", "_n", "_parting", "_timers")

    def __init__(self, make: Callable[[], Connection[T]], n: int, grace: float, timers: Timers) -> None:
        self._make = make
        self._n = n
        self._grace = grace
        self._timers = timers
        self._lock = threading.Lock()
        self._connection: Connection[T] | None = None
        self._count = 0
        self._parting: object = None  # identifies the grace time that runs
        self._alarm: Alarm | None = None

    def subscribe(
        self,
        subscriber: Subscriber[T],
        /,
        *,
        executor: AnyExecutor | None = None,
    ) -> None:
        with self._lock:
            connection = self._connection
            if connection is None or connection.ended:
                connection = self._connection = self._make()
                connection.on_left(partial(self._left, connection))
                self._count = 0
            self._count += 1
            self._parting = None
            alarm, self._alarm = self._alarm, None
            go = self._count >= self._n
        if alarm is not None:
            alarm.cancel()
        try:
            connection.subscribe(subscriber, None, executor)
        except TypeError:
            self._left(connection)
            raise
        if go:
            connection.connect()

    def _left(self, connection: Connection[T]) -> None:
        with self._lock:
            if connection is not self._connection:
                return
            self._count -= 1
            if self._count:
                return
            if self._grace and not connection.ended:
                self._parting = parting = object()
                self._alarm = self._timers.after(self._grace, partial(self._part, parting))
                return
            self._connection = None
        connection.disconnect()

    def _part(self, parting: object) -> None:
        with self._lock:
            if self._parting is not parting:
                return
            self._parting = self._alarm = None
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

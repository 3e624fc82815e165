"""Publishers that share one subscription to their source, and the policies that begin and end it."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from flow.broadcast.connection import Connection
from flow.broadcast.policy import Lag
from flow.contracts import Publisher, Subscriber
from flow.executors import AnyExecutor
from flow.misuse import require_publisher, require_seconds
from flow.operators.link import at_least
from flow.operators.timers import TIMERS, Alarm, Timers
from flow.sources import Source

__all__ = ["Connectable", "publish", "replay", "share"]

T = TypeVar("T")


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

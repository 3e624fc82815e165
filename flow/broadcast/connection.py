"""One upstream subscription, shared by many subscribers."""

from collections.abc import Callable
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
from flow.operators.link import at_least

__all__ = ["Connection", "Disconnected"]

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

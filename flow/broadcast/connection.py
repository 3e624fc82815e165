"""One subscription upstream, shared by many subscribers."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from flow.broadcast.cursor import Cursor
from flow.broadcast.delivery import conclude, deliver
from flow.broadcast.policy import Lag, Start
from flow.broadcast.ring import Ring
from flow.broadcast.seat import Seat
from flow.clock import SYSTEM_CLOCK
from flow.contracts import UNBOUNDED, Publisher, Subscriber, Subscription
from flow.demand import Tide
from flow.drain import COMPLETED, Failed, Outcome
from flow.drain.feed import GONE
from flow.errors import FlowError
from flow.executors import Executor

__all__ = ["Connection", "Disconnected"]

T = TypeVar("T")


class Disconnected(FlowError):
    """The subscriber's publisher was cut off from its source."""

    def __init__(self) -> None:
        super().__init__("the publisher was disconnected from its source")


class Connection(Generic[T]):
    """The one subscriber of a source, and the ring from which many read.

    It requests ``prefetch`` elements ahead of the slowest BLOCK cursor, so the ring has room for each of them, and for
    those that are replayed. Without such cursors it takes whatever comes.

    Args:
        source: Subscribed to by `connect`.
        prefetch: Requested at first, and again 75 % of it whenever there is room for as many.
        replay: With how many of the newest elements a subscriber begins.
        lag: The policy of those who name none.

    Raises:
        ValueError: If a number is out of its bounds.
    """

    __slots__ = (
        "_asking",
        "_granted",
        "_greeted",
        "_lag",
        "_prefetch",
        "_refill",
        "_ring",
        "_source",
        "_upstream",
    )

    def __init__(self, source: Publisher[T], prefetch: int, replay: int, lag: Lag) -> None:
        tide = Tide(prefetch)
        if prefetch >= UNBOUNDED:
            raise ValueError(
                f"prefetch: {prefetch!r}; a bounded integer is expected: it is the size of a ring"
            )
        if isinstance(replay, bool) or not isinstance(replay, int) or replay < 0:
            raise ValueError(f"replay: {replay!r}; an integer of at least 0 is expected")
        self._prefetch = prefetch
        self._refill = tide.refill
        self._lag = Lag(lag)
        self._source: Publisher[T] | None = source
        self._upstream: Subscription = GONE
        self._greeted = False
        # The sequence up to which elements were requested. It is at most prefetch beyond the end, and a cursor starts at
        # most the replay before the end: so what was requested never overtakes a BLOCK cursor.
        self._granted = 0
        self._asking = False
        self._ring: Ring[T] = Ring(prefetch + replay, replay, self._ask)

    @property
    def ended(self) -> bool:
        """Whether no more elements come."""
        return self._ring.outcome is not None

    def connect(self) -> None:
        """Subscribe to the source; once."""
        with self._ring.lock:
            source, self._source = self._source, None
        if source is not None:
            source.subscribe(self)

    def disconnect(self) -> None:
        """Cancel upstream; who still reads ends with `Disconnected`."""
        error = Disconnected()
        with self._ring.lock:
            upstream = self._upstream
        self._end(Failed(error), error)
        upstream.cancel()

    def subscribe(
        self,
        subscriber: Subscriber[T],
        lag: Lag | None,
        executor: Executor | asyncio.AbstractEventLoop | None,
        on_left: Callable[[], object],
    ) -> None:
        """Begin a subscription.

        Args:
            subscriber: Begins with what is replayed.
            lag: Its policy, if not that of the connection.
            executor: Where its signals run.
            on_left: Called once, when it has ended.

        Raises:
            TypeError: If the subscriber is ``None``, or the executor is none.
        """
        ring = self._ring
        cursor = Cursor(ring, self._lag if lag is None else Lag(lag), SYSTEM_CLOCK, on_left)
        drain = Seat(subscriber, cursor, executor)
        with ring.lock:
            cursor.enter(drain, ring.begin(Start.REPLAY))
        drain.start()

    # What the source calls.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Accept the first subscription and request the prefetch; cancel any other (rule 2.5)."""
        if subscription is None:
            raise TypeError("rule 2.13: the subscription is None")
        with self._ring.lock:
            refused = self._greeted or self._ring.outcome is not None
            if not refused:
                self._greeted = True
                self._upstream = subscription
        if refused:
            subscription.cancel()
        else:
            self._ask()

    def on_next(self, item: T, /) -> None:
        """Give an element to everybody."""
        if item is None:
            raise TypeError("rule 2.13: the element is None")
        ring = self._ring
        with ring.lock:
            if ring.outcome is not None:
                return
            excess = ring.end >= self._granted
            swift = owned = not excess and ring.company.pass_on(1)
            if not excess and not swift:
                ring.append(item)
                owned = ring.company.claim()
            loose = ring.loose
            upstream = self._upstream
        if excess:
            error = RuntimeError("rule 1.1: the source gave an element that was not requested")
            self._end(Failed(error), error)
            upstream.cancel()
            return
        deliver(ring, loose, (item,) if swift else (), owned=owned)
        self._ask()

    def on_error(self, error: Exception, /) -> None:
        """Fail for everybody; that overtakes what waits."""
        if error is None:
            raise TypeError("rule 2.13: the error is None")
        self._end(Failed(error), error)

    def on_complete(self) -> None:
        """Complete for each, after what waits."""
        self._end(COMPLETED)

    def _end(self, outcome: Outcome, error: Exception | None = None) -> None:
        ring = self._ring
        with ring.lock:
            if ring.outcome is not None:
                return
            ring.outcome = outcome
            self._source = None
            self._upstream = GONE
            cursors = ring.cursors
            leaving = ring.company.dissolve()
        conclude(leaving, cursors, error)

    def _ask(self) -> None:
        """Request what there is room for; one thread at a time does, so requests are serial (rule 2.7)."""
        asking = False
        try:
            while True:
                with self._ring.lock:
                    due = self._ring.gate + self._prefetch - self._granted
                    if due < self._refill or not self._greeted or (self._asking and not asking):
                        self._asking = self._asking and not asking
                        return
                    self._asking = asking = True
                    self._granted += due
                    upstream = self._upstream
                upstream.request(due)
        except BaseException:
            with self._ring.lock:
                self._asking = False
            raise

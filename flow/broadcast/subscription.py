"""One subscription to a hub: its position in the ring, its lag policy, and its drain; and the statistics of subscriptions."""

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

from flow.broadcast.policy import Lag
from flow.broadcast.ring import Positions, RingBuffer
from flow.clock import Clock
from flow.contracts import BatchSubscriber, Subscriber
from flow.demand import subtract
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.drain.strand import LENT
from flow.errors import Lagged
from flow.executors import AnyExecutor

__all__ = ["BroadcastStatistics", "BroadcastSubscription", "CursorStatistics", "Owner"]


@dataclass(frozen=True, slots=True)
class CursorStatistics:
    """The statistics of one subscription.

    Attributes:
        policy: Its lag policy.
        lag: Elements that wait for it; at most the capacity.
        demand: Elements requested and not yet delivered.
        delivered: Elements that it has taken for delivery.
        dropped: Elements that it lost.
        blocked_seconds: Seconds for which it held up a writer, in total.
    """

    policy: Lag
    lag: int
    demand: int
    delivered: int
    dropped: int
    blocked_seconds: float


@dataclass(frozen=True, slots=True)
class BroadcastStatistics:
    """The statistics of a broadcast.

    Attributes:
        capacity: Most elements in the ring.
        buffered: Elements in the ring, or in the queue of a DROP_LATEST subscription if one is longer.
        submitted: Elements that were accepted.
        refused: Offers that returned FULL.
        stalled: Subscriptions that held up a writer for longer than the stall timeout.
        closed: Whether the broadcast has ended.
        subscribers: The subscriptions, in the order in which they began.
    """

    capacity: int
    buffered: int
    submitted: int
    refused: int
    stalled: int
    closed: bool
    subscribers: tuple[CursorStatistics, ...]


T = TypeVar("T")

_APART: Final = 16
"""A subscription that left the group may rejoin after this many elements: each join and leave costs all members time."""


class Owner(Protocol[T]):
    """The hub of a subscription; its lock guards everything here, and every subscription.

    Attributes:
        place: The next sequence number of all synced subscriptions.
        gating: The positions of the unsynced BLOCK subscriptions.
        lossy: The positions of the other unsynced subscriptions.
        outcome: How the stream ended; None while it is open.
    """

    lock: threading.Lock
    clock: Clock
    ring: RingBuffer[T]
    place: int
    gating: Positions
    lossy: Positions
    outcome: Outcome | None

    def trim(self) -> None:
        """Drop elements that no subscription will read."""

    def make_room(self) -> None:
        """Wake writers, since the slowest BLOCK subscription has moved; called without the lock, like the next two."""

    def reclaim(self, subscription: "BroadcastSubscription[T]") -> None:
        """Return the flag of a subscription, if it has lent it."""

    def remove(self, subscription: "BroadcastSubscription[T]") -> None:
        """Remove a subscription that has ended."""


class BroadcastSubscription(Drain[T]):
    """Reads the ring for one subscriber by its own policy; a drain that is its own feed.

    *Unsynced*, it moves forward when it pulls. *Synced*, it has lent its flag to the group of the hub, which delivers to all
    members at the same position. Lost elements are counted, and reported by the optional ``on_lagged`` of the subscriber
    before the next element or the end; that spends no demand.

    Attributes:
        lag: The policy; a BLOCK subscription that stalled becomes an ERROR subscription.
        next: Its next sequence number; while it is synced, the next one at the time it joined.
        queue: The waiting elements of a DROP_LATEST subscription, which does not read the ring; None for other policies.
        dropped: Elements that it lost.
        gating_since: When it began to hold up a writer; None if it does not.
        blocked: Seconds for which it held up a writer before that.
        synced: Whether it has lent its flag to the group.
        rank: Its index in the group: among the members with ``on_next_batch`` if it has that, else among those without.
    """

    __slots__ = (
        "_hub",
        "_rejoins",
        "_reported",
        "blocked",
        "dropped",
        "gating_since",
        "lag",
        "next",
        "queue",
        "rank",
        "synced",
    )

    given: int  # declared by the drain; what the group delivers is added here

    def __init__(
        self,
        hub: Owner[T],
        subscriber: Subscriber[T],
        lag: Lag,
        executor: AnyExecutor | None,
    ) -> None:
        super().__init__(subscriber, self, executor=executor)
        self._hub = hub
        self._rejoins = 0
        self._reported = 0  # dropped elements that were reported to the subscriber
        self.lag: Lag = lag
        self.next: int = 0
        self.queue: deque[T] | None = deque() if lag is Lag.DROP_LATEST else None
        self.dropped: int = 0
        self.gating_since: float | None = None
        self.blocked: float = 0.0
        self.synced: bool = False
        self.rank: int = 0

    # For the hub: the caller holds its lock.

    def enter(self, sequence: int) -> None:
        """Begin at a sequence number from the start of the ring to its end."""
        self.next = sequence
        if self.queue is None:
            self._positions.enter(sequence)
        else:
            self.queue.extend(self._hub.ring.read(sequence, self._hub.ring.capacity))

    @property
    def _positions(self) -> Positions:
        return self._hub.gating if self.lag is Lag.BLOCK else self._hub.lossy

    @property
    def at(self) -> int:
        """Its next sequence number."""
        return self._hub.place if self.synced else self.next

    @property
    def waiting(self) -> int:
        """The number of elements that wait for it."""
        if self.queue is not None:
            return len(self.queue)
        behind = self._hub.ring.end - max(self.at, self._hub.ring.start)
        return min(behind, 1) if self.lag is Lag.LATEST else behind

    @property
    def lost(self) -> int:
        """The number of elements that it lost, including those that were overwritten since its last pull."""
        if self.queue is not None:
            return self.dropped
        return self.dropped + self._hub.ring.end - self.at - self.waiting

    @property
    def overtaken(self) -> bool:
        """Whether an ERROR subscription has lost elements."""
        return self.lag is Lag.ERROR and self.next < self._hub.ring.start

    @property
    def granted(self) -> int:
        """The first sequence number that its subscriber has not requested, while it is synced."""
        return self.next + self.demand

    def statistics(self, now: float) -> CursorStatistics:
        """The statistics as of a time of the hub's clock."""
        taken = self.at - self.next
        return CursorStatistics(
            self.lag,
            self.waiting,
            subtract(self.demand, taken),
            self.given + taken,
            self.lost,
            self.blocked + (0.0 if self.gating_since is None else now - self.gating_since),
        )

    def count_blocked(self) -> None:
        """End the time for which it held up a writer, and add it to `blocked`."""
        if self.gating_since is not None:
            self.blocked += self._hub.clock.monotonic() - self.gating_since
            self.gating_since = None

    def stall(self) -> None:
        """Stop gating: become an ERROR subscription, which the next element overtakes and so ends."""
        self.count_blocked()
        self.lag = Lag.ERROR
        if not self.synced:
            self._hub.gating.leave(self.next)
            self._hub.lossy.enter(self.next)

    def offer(self, item: T) -> None:
        """Queue an element of a DROP_LATEST subscription; count it as dropped if the queue has the capacity of the ring."""
        if self.queue is not None:
            if len(self.queue) < self._hub.ring.capacity:
                self.queue.append(item)
            else:
                self.dropped += 1

    def join(self) -> bool:
        """Lend the flag to the group, if no element waits, it is INLINE, has demand, and `_APART` elements have passed."""
        if (
            self.next != self._hub.ring.end
            or self.next < self._rejoins
            or not self.given  # its first element shows whether it changes its context
            or not self._inline
            or not self.lend(1, self)
        ):
            return False
        self._positions.leave(self.next)
        self.synced = True
        return True

    def leave(self) -> None:
        """Leave the group, at the position of the group; the caller then calls `restore` without the lock."""
        place = self.at
        self.given += place - self.next
        self.next = place
        self.synced = False
        self._rejoins = place + _APART
        self._positions.enter(place)

    def exit(self) -> bool:
        """Drop its position or queue; returns whether no other subscription was as slow."""
        self.count_blocked()
        if self.queue is None:
            return self._positions.leave(self.next)
        self.queue.clear()
        return False

    # For the group, while it holds the flag.

    @property
    def call(self) -> Callable[[Any], object]:
        """The method of the subscriber that receives an element, or a batch."""
        if self.batches:
            return cast("BatchSubscriber[T]", self._subscriber).on_next_batch
        return self._subscriber.on_next

    @property
    def context(self) -> contextvars.Context:
        """The context in which the subscription began."""
        assert self._context is not None
        return self._context

    @property
    def halted(self) -> bool:
        """Whether no element may follow."""
        return self._halted

    @property
    def recalled(self) -> bool:
        """Whether it was woken since it lent its flag."""
        return self._state != LENT

    def fault(self, error: BaseException) -> None:
        """End the subscription after its subscriber raised."""
        if isinstance(error, Exception):
            self._drop(error, self._subscriber)
        else:
            self.cancel()

    def restore(self) -> None:
        """Take the flag back, and pull from the ring."""
        self.signal()
        self.release_hold(self)

    # For the drain: without the lock.

    def recall(self) -> None:
        """Take the flag back from the group, at the latest after its round."""
        self._hub.reclaim(self)

    def pull(self, limit: int, /) -> Sequence[T]:
        """Take the next elements of this subscription."""
        hub = self._hub
        items: list[T] = []
        room = False
        with hub.lock:
            # A drain pulls until a pull is empty: every other pull finds nothing.
            if self.next < hub.ring.end or self.queue:
                items, room = self._take(limit)
            missed = self.dropped != self._reported
        if room:
            hub.make_room()
        if missed:
            self.notify(BroadcastSubscription, self._report_missed, wake=False)
        return items

    def outcome(self) -> Outcome | None:
        """The end of the stream: a failure at once, the completion after all elements were pulled."""
        hub = self._hub
        with hub.lock:
            if self.overtaken:
                return Failed(Lagged(self.lost))
            return None if hub.outcome is COMPLETED and self.waiting else hub.outcome

    def release(self) -> None:
        """Leave the hub."""
        self._hub.remove(self)

    def _take(self, limit: int) -> tuple[list[T], bool]:
        """The next elements, and whether taking them made room for a writer; under the lock."""
        hub, last = self._hub, False
        if self.overtaken or isinstance(hub.outcome, Failed):
            return [], False
        if self.queue is not None:
            items = [self.queue.popleft() for _ in range(min(limit, len(self.queue)))]
        else:
            begin = hub.ring.end - 1 if self.lag is Lag.LATEST else max(self.next, hub.ring.start)
            self.dropped += begin - self.next
            items = hub.ring.read(begin, limit)
            last = self._positions.move(self.next, begin + len(items))
            self.next = begin + len(items)
            self.count_blocked()
            if last:
                hub.trim()
        return items, last and self.lag is Lag.BLOCK

    def _report_missed(self, subscriber: Any) -> None:
        with self._hub.lock:
            missed, self._reported = self.dropped - self._reported, self.dropped
        handler = getattr(subscriber, "on_lagged", None)
        if missed and callable(handler):
            handler(missed)

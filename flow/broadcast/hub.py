"""Serves many subscriptions from one ring, into which a `Broadcast`, or a `Connection` to a source, writes.

*Synced* subscriptions share one position, wait for nothing but the next element, and run on `flow.INLINE`. A round takes the
new elements once, moves all synced subscriptions by one assignment, and the group calls one subscriber after the other. The
*horizon*, the smallest requested sequence number of the members, stands for all their demands. *Unsynced* subscriptions pull,
each with its own drain and by its own policy. A member that lacks demand becomes unsynced, and so does a LATEST member when
more than one element waits.

The lock guards ring, sets, group and all positions. One thread at a time owns the group (`busy`) and serves it without the
lock. Meanwhile the group holds the flags of its members' drains, so signals stay serial (rule 1.3). A request only adds to the
demand. A cancel or a failure recalls the flag: at once if no round runs; else the round skips that subscription from then on,
and returns its flag at the end. Lock order: the hub's lock, then that of a drain.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from flow.broadcast.group import SyncedGroup
from flow.broadcast.policy import BroadcastStart, Lag
from flow.broadcast.ring import Positions, RingBuffer
from flow.broadcast.subscription import BroadcastSubscription
from flow.clock import Clock
from flow.contracts import Subscriber
from flow.drain import Failed, Outcome
from flow.executors import AnyExecutor

__all__ = ["Hub"]

T = TypeVar("T")

_ROUND: Final = 256  # elements taken ahead of their delivery, at most; as in a drain


class Hub(Generic[T]):
    """One ring, its lock, and two sets of subscriptions.

    Args:
        capacity: Most elements in the ring.
        replay: The number of newest elements kept for later subscriptions.
        lag: The policy of subscriptions that name none.
        clock: Measures for how long a subscription gates.
        make_room: Called without the lock when the slowest BLOCK subscription may have moved, or has left.
        left: Called without the lock after a subscription has ended.

    Attributes:
        subscriptions: All subscriptions, in the order in which they began.
        unsynced: The subscriptions that pull; the tuple is replaced as a whole, so it can be iterated without the lock.
        group: The synced subscriptions.
        place: The next sequence number of the group.
        busy: Whether a thread owns the group.
        gated: Whether a writer found a member of the group gating.
        gating: The positions of the unsynced BLOCK subscriptions.
        lossy: The positions of the other unsynced subscriptions.
        outcome: How the stream ended; None while it is open.
    """

    def __init__(
        self,
        capacity: int,
        replay: int,
        lag: Lag,
        clock: Clock,
        *,
        make_room: Callable[[], None],
        left: Callable[[], object] = lambda: None,
    ) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.clock = clock
        self.ring: RingBuffer[T] = RingBuffer(capacity)
        self.replay = replay
        self.make_room = make_room
        self.subscriptions: dict[BroadcastSubscription[T], None] = {}
        self.unsynced: tuple[BroadcastSubscription[T], ...] = ()
        self.group: SyncedGroup[T] = SyncedGroup()
        self.place: int = 0
        self.busy: bool = False
        self.gated: bool = False
        self.gating: Positions = Positions()
        self.lossy: Positions = Positions()
        self.outcome: Outcome | None = None
        self.left = left
        self._queued: tuple[BroadcastSubscription[T], ...] = ()
        self._horizon = 0
        self._lag = Lag(lag)

    def subscribe(
        self,
        subscriber: Subscriber[T],
        lag: Lag | None,
        start: BroadcastStart,
        executor: AnyExecutor | None,
    ) -> None:
        """Begin a subscription; ``lag`` is the hub's if ``None``.

        Raises:
            TypeError: If the subscriber is ``None``, or the executor is no executor.
        """
        lag = self._lag if lag is None else Lag(lag)
        subscription = BroadcastSubscription(self, subscriber, lag, executor)
        ring = self.ring
        with self.lock:
            subscription.enter(
                max(ring.start, ring.end - self.replay) if start is BroadcastStart.REPLAY else ring.end
            )
            self.subscriptions[subscription] = None
            self.unsynced += (subscription,)
            if lag is Lag.DROP_LATEST:
                self._queued += (subscription,)
        subscription.start()

    # The caller holds the lock.

    @property
    def gate(self) -> int:
        """The position of the slowest BLOCK subscription; the end of the ring if there is none."""
        return self.gating.least(self.place if self.group.gates else self.ring.end)

    @property
    def room(self) -> int:
        """The number of elements that can be written without overtaking a BLOCK subscription."""
        return self.ring.capacity - self.ring.end + self.gate

    def pass_on(self, count: int) -> bool:
        """Own the group to deliver elements past the ring, if all subscriptions are synced and have demand for them."""
        # The position of a group that no thread owns is the end of the ring; without members the horizon is 0.
        ring = self.ring
        to = ring.end + count
        if (
            self.busy
            or self.unsynced
            or self.replay
            or (to > self._horizon and to > self._look_ahead())
            or (count > 1 and self.group.conflates)
        ):
            return False
        self.busy = True
        ring.end = ring.start = self.place = to
        return True

    def put(self, items: tuple[T, ...]) -> tuple[T, ...] | None:
        """Write elements for which there is room; the caller passes the result to `deliver` after it has released the lock.

        Returns:
            The elements to deliver to the group past the ring; an empty tuple if the group is to read the ring; ``None`` if
            the caller does not own the group.
        """
        if not self.unsynced and self.pass_on(len(items)):
            return items
        for item in items:
            for each in self._queued:
                each.offer(item)
            self.ring.append(item)
        self.trim()
        if self.busy or not self.group.members:
            return None
        self.busy = True
        return ()

    def trim(self) -> None:
        """Drop elements that no subscription will read and that are not replayed."""
        least = self.place if self.group.members else self.ring.end
        self.ring.trim(min(self.gating.least(least), self.lossy.least(least), self.ring.end - self.replay))

    # The caller does not hold the lock.

    def deliver(self, items: tuple[T, ...] | None) -> None:
        """Deliver written elements to all subscriptions.

        Args:
            items: The result of `put`.

        Raises:
            BaseException: As `serve` does.
        """
        try:
            if items is not None:
                self.serve(items)
        finally:
            if self.unsynced:
                _each(self.unsynced, BroadcastSubscription.signal)
                with self.lock:
                    self._admit()

    def end(self, outcome: Outcome, *, if_deserted: bool = False) -> None:
        """End the stream for all subscriptions; later calls have no effect.

        Args:
            outcome: How it ends.
            if_deserted: Whether to end it only if there are no subscriptions.
        """
        with self.lock:
            if self.outcome is not None or (if_deserted and self.subscriptions):
                return
            self.outcome = outcome
            subscriptions = tuple(self.subscriptions)
            leaving = () if self.busy else self._dismiss(self.group.members)
            self.group.disturbed = self.busy
        self.make_room()
        try:
            if isinstance(outcome, Failed):
                _each(subscriptions, lambda each: each.fail(outcome.error))
            else:
                _each(subscriptions, BroadcastSubscription.signal)
        finally:
            _each(leaving, BroadcastSubscription.restore)

    def remove(self, subscription: BroadcastSubscription[T]) -> None:
        """Remove a subscription that has ended."""
        with self.lock:
            if subscription not in self.subscriptions:
                return
            del self.subscriptions[subscription]
            self.unsynced = tuple(each for each in self.unsynced if each is not subscription)
            self._queued = tuple(each for each in self._queued if each is not subscription)
            room = subscription.exit()
            self.trim()
        # In this order: the end of the last subscription may end the stream, which the room would otherwise let continue.
        self.left()
        if room:
            self.make_room()

    def reclaim(self, subscription: BroadcastSubscription[T]) -> None:
        """Return the flag of a member; a round that runs returns it at its end, and skips the member if it has halted."""
        with self.lock:
            if not subscription.synced:
                return
            if self.busy:
                self.group.disturbed = True
                if subscription.halted:
                    self.group.silence(subscription)
                return
            self._dismiss((subscription,))
        subscription.restore()

    def serve(self, items: tuple[T, ...]) -> None:
        """Deliver to the group in rounds, and dismiss members that cannot stay; then no thread owns the group.

        Args:
            items: The elements of the first round; further rounds read the ring.

        Raises:
            BaseException: An interrupt that a subscriber raised, such as KeyboardInterrupt, after all members were served.
        """
        group, owned, passing = self.group, True, None
        try:
            while True:
                if items:
                    group.give(items)
                with self.lock:
                    if self.place == self.ring.end and not group.disturbed:
                        self.busy = owned = False
                        break
                    leaving, items = self._next_round()
                    passing, group.passing = group.passing or passing, None
                try:
                    if items and group.gates:
                        self.make_room()
                    _each(leaving, BroadcastSubscription.restore)
                except BaseException as interrupt:  # noqa: BLE001 - taken elements are delivered first
                    passing = interrupt
        except BaseException:
            # An interrupt of this thread outside of any subscriber: each member continues with its own drain.
            if owned:
                with self.lock:
                    leaving = self._dismiss(group.members)
                    self.busy, group.passing = False, None
                _each(leaving, BroadcastSubscription.restore)
            raise
        if passing is not None:
            raise passing

    # Under the lock.

    def _next_round(self) -> tuple[Sequence[BroadcastSubscription[T]], tuple[T, ...]]:
        """The members that must leave the group, and the elements of the next round for the others."""
        ring, group = self.ring, self.group
        leaving: Sequence[BroadcastSubscription[T]] = group.members
        waiting = ring.end - self.place
        if self.outcome is None and self.place >= ring.start:
            lacking = waiting and self._horizon <= self.place and self._look_ahead() <= self.place
            conflates = group.conflates and waiting > 1
            leaving = [
                each
                for each in (group.members if lacking or conflates or group.disturbed else ())
                if each.recalled
                or (conflates and each.lag is Lag.LATEST)
                or (lacking and each.granted <= self.place)
            ]
        if leaving or group.disturbed:
            self._dismiss(leaving)
        upto = min(ring.end, self._horizon, self.place + _ROUND) if group.members else ring.end
        items = ring.read(self.place, upto - self.place) if group.members else ()
        if self.gated:
            self.gated = False
            for each in group.members:
                each.count_blocked()
        self.place = upto
        self.trim()
        return leaving, tuple(items)

    def _admit(self) -> None:
        """Move each unsynced subscription that has kept up into the group."""
        if self.busy or self.outcome is not None:
            return
        joining = [each for each in self.unsynced if each.join()]
        if joining:
            self.place = self.ring.end
            self.unsynced = tuple(each for each in self.unsynced if not each.synced)
            self.group.arrange([*self.group.members, *joining])
            self._look_ahead()

    def _dismiss(self, leaving: Sequence[BroadcastSubscription[T]]) -> Sequence[BroadcastSubscription[T]]:
        """Move members out of the group; the caller then restores them without the lock."""
        for each in leaving:
            each.leave()
        self.unsynced += tuple(leaving)
        self.group.arrange([each for each in self.group.members if each.synced])
        self._look_ahead()
        return leaving

    def _look_ahead(self) -> int:
        """Compute the horizon."""
        self._horizon = min((each.granted for each in self.group.members), default=0)
        return self._horizon


def _each(
    subscriptions: Iterable[BroadcastSubscription[T]], act: Callable[[BroadcastSubscription[T]], Any]
) -> None:
    """Call a function for each subscription; an interrupt within one call is raised after the calls for all others."""
    passing: BaseException | None = None
    for each in subscriptions:
        try:
            act(each)
        except BaseException as interrupt:  # noqa: BLE001 - KeyboardInterrupt of a subscriber
            passing = interrupt
    if passing is not None:
        raise passing

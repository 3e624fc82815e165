"""What serves many subscriptions from one ring: a `Broadcast` writes into it, or a `Connection` to a source.

The *synced* subscriptions stand together at one place, wait for nothing but the next element and run on `flow.INLINE`. A round
takes what was written once, moves all of them by one assignment, and lets the group call one subscriber after the other. The
smallest granted sequence of all, the *horizon*, stands for their demands. The *unsynced* ones pull, each by its own drain,
which knows its policy; that is where a subscription goes that lacks demand, or is not as patient as the round is slow.

The lock guards ring, sets, group and all places. One thread at a time owns the group (`busy`) and serves it without the lock,
while the group holds the flags of its members' drains: so signals stay serial (rule 1.3). A request only adds to the demand. A
cancel or a failure asks for the flag: at once if no round runs, else the round passes by that subscription from then on, and
lets go of it at its end. Locks are taken in this order: the hub's, then that of a drain.
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
        replay: How many of the newest are kept for subscriptions that come later.
        lag: The policy of subscriptions that name none.
        clock: Measures for how long a subscription gates.
        make_room: Called without the lock when the slowest of the BLOCK subscriptions may have gone forward, or has left.
        left: Called without the lock when a subscription has ended.

    Attributes:
        subscriptions: All of them, in the order in which they came.
        unsynced: Those that pull; replaced as a whole, so that it can be iterated over without the lock.
        group: The others.
        place: The sequence that the group takes next.
        busy: Whether a thread owns the group.
        gated: Whether a member of the group was found in the way of a writer.
        gating: Where the unsynced BLOCK subscriptions stand.
        lossy: Where the other unsynced ones stand.
        outcome: How the stream ended.
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
        self.lock = threading.Lock()
        self.clock = clock
        self.ring: RingBuffer[T] = RingBuffer(capacity)
        self.replay = replay
        self.make_room = make_room
        self.subscriptions: dict[BroadcastSubscription[T], None] = {}
        self.unsynced: tuple[BroadcastSubscription[T], ...] = ()
        self.group: SyncedGroup[T] = SyncedGroup()
        self.place = 0
        self.busy = False
        self.gated = False
        self.gating = Positions()
        self.lossy = Positions()
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
        """Begin a subscription; without a ``lag`` of its own it has the hub's.

        Raises:
            TypeError: If the subscriber is ``None``, or the executor is none.
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
        """Where the slowest BLOCK subscription stands; the end if there is none."""
        return self.gating.least(self.place if self.group.gates else self.ring.end)

    @property
    def room(self) -> int:
        """How many elements can be written without overtaking a BLOCK subscription."""
        return self.ring.capacity - self.ring.end + self.gate

    def pass_on(self, count: int) -> bool:
        """Own the group and take elements past the ring for it, if all subscriptions are there and want them."""
        # A group that no thread owns stands at the end of the ring; without members the horizon is 0.
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
        """Write elements for which there is room; the caller gives the answer to `deliver` when it has let go of the lock.

        Returns:
            What the group has to be given past the ring; nothing, if it is to read the ring; ``None`` if the caller does not
            own the group.
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
        """Let go of what no subscription will read, and is not replayed."""
        least = self.place if self.group.members else self.ring.end
        self.ring.trim(min(self.gating.least(least), self.lossy.least(least), self.ring.end - self.replay))

    # Without it.

    def deliver(self, items: tuple[T, ...] | None) -> None:
        """Let all subscriptions have what was written.

        Args:
            items: What `put` answered.

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
        """End the stream for all subscriptions; later calls have no effect."""
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
        """Forget a subscription that has ended."""
        with self.lock:
            if subscription not in self.subscriptions:
                return
            del self.subscriptions[subscription]
            self.unsynced = tuple(each for each in self.unsynced if each is not subscription)
            self._queued = tuple(each for each in self._queued if each is not subscription)
            room = subscription.exit()
            self.trim()
        # In this order: the last that leaves may end what the room would let go on.
        self.left()
        if room:
            self.make_room()

    def reclaim(self, subscription: BroadcastSubscription[T]) -> None:
        """Let a member go; a round that runs does so at its end, and passes it by until then if it has halted."""
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
        """Deliver to the group, and let go of members that cannot stay; then no thread owns it.

        Args:
            items: What was taken for it; then comes what waits in the ring.

        Raises:
            BaseException: What a subscriber raised that no subscription may swallow, after all were served.
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
                except BaseException as interrupt:  # noqa: BLE001 - what was taken has to be given first
                    passing = interrupt
        except BaseException:
            # An interrupt of this thread outside of any subscriber: each goes on by itself.
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
        """Members that cannot be served with the others, and what the others are to be given."""
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
        """Let each unsynced subscription that has kept up join the group."""
        if self.busy or self.outcome is not None:
            return
        joining = [each for each in self.unsynced if each.join()]
        if joining:
            self.place = self.ring.end
            self.unsynced = tuple(each for each in self.unsynced if not each.synced)
            self.group.arrange([*self.group.members, *joining])
            self._look_ahead()

    def _dismiss(self, leaving: Sequence[BroadcastSubscription[T]]) -> Sequence[BroadcastSubscription[T]]:
        """Let members leave the group; without the lock, they have to be restored then."""
        for each in leaving:
            each.leave()
        self.unsynced += tuple(leaving)
        self.group.arrange([each for each in self.group.members if each.synced])
        self._look_ahead()
        return leaving

    def _look_ahead(self) -> int:
        """Find the horizon."""
        self._horizon = min((each.granted for each in self.group.members), default=0)
        return self._horizon


def _each(
    subscriptions: Iterable[BroadcastSubscription[T]], act: Callable[[BroadcastSubscription[T]], Any]
) -> None:
    """Do something with each; what passes through one must not leave the others asleep, and is raised then."""
    passing: BaseException | None = None
    for each in subscriptions:
        try:
            act(each)
        except BaseException as interrupt:  # noqa: BLE001 - KeyboardInterrupt of a subscriber
            passing = interrupt
    if passing is not None:
        raise passing

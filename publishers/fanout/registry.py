"""Which predicates are wanted now, and by whom."""

import threading
from collections.abc import Callable
from itertools import islice
from typing import Final, TypeVar

from publishers.criteria.criteria import Criteria
from publishers.criteria.index import DIRECT, MatchingIndex, Prepared, prepare
from publishers.criteria.predicate import Predicate
from publishers.errors import InvalidOption
from publishers.fanout.bench import RingCursor
from publishers.fanout.ports import Subscribed
from publishers.fanout.shared_publisher import SharedPublisher, Standing
from publishers.fanout.watermark import Watermark
from publishers.fanout.weights import Weights
from publishers.model.position import Position
from publishers.options import LogOptions

__all__ = ["Registry"]

_OWED: Final = 4096

S = TypeVar("S", bound=Subscribed)


class Registry:
    """The shared publishers of one log, one for each distinct ``Criteria``.

    Looking up or making a publisher and adding a subscription is one step under one lock; so is removing the last
    subscription and the publisher with it.

    The matching index follows what was added and removed: at once while nothing is being matched, else before the next
    commit is. So it costs whoever subscribes, and hardly ever a commit, and neither cares how many others there are.

    Args:
        matched_through: The newest version that needs no matching any more.
        options: Bounds of the rings.
        watermark: What has been matched and published.

    Attributes:
        weights: Which publishers are in the index, and why the others are not.
    """

    def __init__(self, matched_through: int, options: LogOptions, watermark: Watermark) -> None:
        self._lock = threading.Lock()
        self._options = options
        self._publishers: dict[Criteria, SharedPublisher] = {}
        self._by_id: dict[int, Subscribed] = {}
        self._index: MatchingIndex[SharedPublisher] = MatchingIndex()
        # Of which the index does not know yet whether they are wanted. What has gone stays here until then, so that the
        # memory of its tables is not freed under the lock.
        self._stale: dict[Criteria, SharedPublisher] = {}
        self._owed = 0  # places that the index does not know yet
        self._watermark = watermark
        self._matched_through = matched_through
        self.weights = Weights(options)

    def add(
        self,
        criteria: Criteria,
        make: Callable[[SharedPublisher], S],
        prepared: Prepared | None = None,
    ) -> S:
        """Adds a subscription, made for the publisher of its criteria.

        Args:
            criteria: What it wants.
            make: Makes it, under the lock.
            prepared: The same criteria as ``prepare`` made them, or None; then they are made here if they are new.

        Raises:
            TooCostly: If no further publisher of their weight is taken.
        """
        shared = self._publishers.get(criteria)
        if shared is not None:
            criteria = shared.criteria  # the same object: to find it again under the lock compares no keys
        while True:
            with self._lock:
                known = self._publishers.get(criteria)
                if known is not None:
                    return self._added(known, make)
                if prepared is not None:
                    self.weights.check(prepared.asks)
                    # What is being matched at this moment is matched without a new publisher, so its ring starts behind.
                    start = Position(self._matched_through + 1, 0)
                    return self._added(SharedPublisher(prepared, start, self._options), make)
            prepared = self.prepare(criteria)

    def knows(self, criteria: Criteria) -> bool:
        """Whether there is a publisher of these criteria at this moment."""
        return criteria in self._publishers

    def prepare(self, criteria: Criteria) -> Prepared:
        """Compiles criteria, without the lock and in time of their size, for one ``add``."""
        # While much waits to be entered by the next commit, what comes beside it is entered by one reference each.
        return prepare(Predicate(criteria), direct=DIRECT if self._owed < _OWED else 0)

    def _added(self, shared: SharedPublisher, make: Callable[[SharedPublisher], S]) -> S:
        is_new = shared.criteria not in self._publishers
        subscription = make(shared)
        shared.subscriptions[subscription] = None
        self._by_id[subscription.id] = subscription
        if is_new:
            self.weights.enter(shared)
            if shared.standing is Standing.DETACHED:
                shared.ring.detach(self._watermark.visible)
            self._stale[shared.criteria] = shared
            self._publishers[shared.criteria] = shared
            self._owed += len(shared.prepared.placed)
            self._refresh_if_idle()
        return subscription

    def remove(self, shared: SharedPublisher, subscription: Subscribed) -> bool:
        """Removes a subscription of a publisher, and that too if it was the last; answers whether it was there."""
        with self._lock:
            if subscription not in shared.subscriptions:
                return False
            del shared.subscriptions[subscription]
            self._by_id.pop(subscription.id, None)
            shared.leave(subscription.cursor.group)
            if not shared.subscriptions:
                self.weights.leave(shared)
                self._stale[shared.criteria] = shared
                del self._publishers[shared.criteria]
                self._refresh_if_idle()
            return True

    def find(self, subscription_id: int) -> Subscribed | None:
        """The subscription of an id; costs the same however many publishers there are.

        Raises:
            InvalidOption: If it is no id.
        """
        if isinstance(subscription_id, bool) or not isinstance(subscription_id, int):
            raise InvalidOption(
                "subscription_id", subscription_id, "the id of a subscription, a whole number"
            )
        with self._lock:
            return self._by_id.get(subscription_id)

    def if_empty(self, call: Callable[[], None]) -> None:
        """Calls something if there is no subscription, and lets none in meanwhile."""
        with self._lock:
            if not self._publishers:
                call()

    def snapshot(self, matched_through: int) -> MatchingIndex[SharedPublisher]:
        """The publishers that a commit must be matched against; later ones start behind ``matched_through``."""
        with self._lock:
            attached = self.weights.next_trial(matched_through) if self.weights.detached else None
            if attached is not None:
                attached.reenter(Position(self._matched_through + 1, 0))
                self._stale[attached.criteria] = attached
            self._matched_through = matched_through
            let_go = self._refresh() if self._stale or self._index.leaving else None
        del let_go
        return self._index

    def detach_costly(self, visible: int) -> list[tuple[SharedPublisher, list[RingCursor]]]:
        """Detaches publishers that were found to ask too much, for whoever holds the publish gate.

        Returns:
            Each with the cursors that this overtook.
        """
        costly = self._index.costly(
            self._options.detach_weight
        )  # only who publishes counts there, so without the lock
        with self._lock:
            found = []
            for shared in costly:
                if shared.subscriptions and shared.standing is Standing.ATTACHED:
                    self.weights.too_dear(shared, self._matched_through)
                    # The ring first: with an interrupt in between, no LIVE cursor misses what is matched no longer.
                    found.append((shared, shared.ring.detach(visible)))
                    self._index.retire(shared.criteria)
            return found

    def publishers(self) -> list[SharedPublisher]:
        """All publishers at this moment."""
        with self._lock:
            return list(self._publishers.values())

    def listed(self, most: int | None) -> list[tuple[SharedPublisher, int, list[Subscribed]]]:
        """Publishers, of each how many subscriptions it has, and some of those.

        Args:
            most: How many publishers, and how many subscriptions of each; None for all.
        """
        if most is None:
            return [(one, len(one.subscriptions), list(one.subscriptions)) for one in self.publishers()]
        with self._lock:
            return [
                (shared, len(shared.subscriptions), list(islice(shared.subscriptions, most)))
                for shared in islice(self._publishers.values(), most)
            ]

    def counts(self) -> tuple[int, int, int]:
        """How many publishers, subscriptions and LIVE subscriptions there are; costs the same however many subscribe."""
        with self._lock:
            publishers, subscriptions = list(self._publishers.values()), len(self._by_id)
        return len(publishers), subscriptions, sum(shared.ring.served for shared in publishers)

    def rings(self) -> tuple[int, int, float]:
        """Changes and bytes in all rings, and how full the fullest is, from 0 to 1."""
        found = [shared.ring.fullness() for shared in self.publishers()]
        events, nbytes = sum(one[0] for one in found), sum(one[1] for one in found)
        return events, nbytes, max((full for _, _, full in found), default=0.0)

    def subscriptions(self) -> list[Subscribed]:
        """All subscriptions at this moment."""
        with self._lock:
            return [
                subscription for shared in self._publishers.values() for subscription in shared.subscriptions
            ]

    def _refresh_if_idle(self) -> None:
        # Whoever matches has taken a snapshot up to a version that is not visible before it has finished.
        if self._watermark.visible >= self._matched_through:
            self._refresh()

    def _refresh(self) -> list[SharedPublisher]:
        """Brings the index up to date, and returns what is to be let go of without the lock.

        Whoever is interrupted here leaves what is stale to be done again.
        """
        let_go = []
        while self._stale:
            criteria, stale = next(iter(self._stale.items()))
            shared = self._publishers.get(criteria)
            if shared is None or shared.standing is Standing.DETACHED:
                self._index.retire(criteria)
            else:
                self._index.enter(shared.prepared, shared)
            del self._stale[criteria]
            if shared is not None:
                shared.prepared.entered()  # if it is attached one day, it is prepared again
            let_go.append(stale)
        self._index.sweep()
        self._owed = 0
        return let_go

"""The registry of a log: its shared publishers, their subscriptions, and the matching index."""

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
from publishers.fanout.shared_publisher import PublisherState, SharedPublisher
from publishers.fanout.watermark import Watermark
from publishers.fanout.weights import DETACH_WEIGHT, Weights
from publishers.model.position import Position
from publishers.options import LogOptions

__all__ = ["Registry"]

_OWED: Final = 4096

S = TypeVar("S", bound=Subscribed)


class Registry:
    """The shared publishers of one log, one for each distinct ``Criteria``.

    Looking up or creating a publisher and adding a subscription is one step under one lock. So is removing the last
    subscription together with its publisher.

    The matching index is brought up to date at once while no commit is being matched, else before the next commit is matched.
    So the cost falls on the subscribing thread and hardly ever on a commit, and does not grow with the number of publishers.

    Args:
        matched_through: The newest version that needs no matching any more.
        options: Bounds of the rings and weights.
        watermark: The log's watermark.

    Attributes:
        weights: Decides which publishers are attached to the index.
    """

    def __init__(self, matched_through: int, options: LogOptions, watermark: Watermark) -> None:
        self._lock = threading.Lock()
        self._options = options
        self._publishers: dict[Criteria, SharedPublisher] = {}
        self._by_id: dict[int, Subscribed] = {}
        self._index: MatchingIndex[SharedPublisher] = MatchingIndex()
        # Publishers added or removed since the index was brought up to date. Removed ones stay referenced here until then, so
        # that the memory of their tables is not freed under the lock.
        self._stale: dict[Criteria, SharedPublisher] = {}
        self._owed = 0  # places in index tables that are not entered yet
        self._watermark = watermark
        self._matched_through = matched_through
        self.weights: Weights = Weights(options)

    def add(
        self,
        criteria: Criteria,
        make: Callable[[SharedPublisher], S],
        prepared: Prepared | None = None,
    ) -> S:
        """Adds a subscription to the publisher of its criteria, which is created if there is none.

        Args:
            criteria: The criteria of the subscription.
            make: Creates the subscription; called under the lock.
            prepared: The result of ``prepare`` for these criteria, or None to prepare them here if no publisher has them.

        Raises:
            TooCostly: If there is no room for a publisher of this weight.
        """
        shared = self._publishers.get(criteria)
        if shared is not None:
            criteria = shared.criteria  # the same object, so that the look-up under the lock compares no keys
        while True:
            with self._lock:
                known = self._publishers.get(criteria)
                if known is not None:
                    return self._added(known, make)
                if prepared is not None:
                    self.weights.check(prepared.asks)
                    # A commit that is being matched now does not see the new publisher, so its ring starts behind the commit.
                    start = Position(self._matched_through + 1, 0)
                    return self._added(SharedPublisher(prepared, start, self._options), make)
            prepared = self.prepare(criteria)

    def knows(self, criteria: Criteria) -> bool:
        """Whether there is a publisher with these criteria now."""
        return criteria in self._publishers

    def prepare(self, criteria: Criteria) -> Prepared:
        """Compiles criteria for one ``add``; takes no lock, and time proportional to their size."""
        # While the next commit has many places to enter, each further publisher adds only one reference to its work.
        return prepare(Predicate(criteria), direct=DIRECT if self._owed < _OWED else 0)

    def _added(self, shared: SharedPublisher, make: Callable[[SharedPublisher], S]) -> S:
        is_new = shared.criteria not in self._publishers
        subscription = make(shared)
        shared.subscriptions[subscription] = None
        self._by_id[subscription.id] = subscription
        if is_new:
            self.weights.enter(shared)
            if shared.state is PublisherState.DETACHED:
                shared.ring.detach(self._watermark.visible)
            self._stale[shared.criteria] = shared
            self._publishers[shared.criteria] = shared
            self._owed += len(shared.prepared.placed)
            self._refresh_if_idle()
        return subscription

    def remove(self, shared: SharedPublisher, subscription: Subscribed) -> bool:
        """Removes a subscription, and with the last one its publisher; returns whether the subscription was registered."""
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
        """Returns the subscription with an id, None if there is none; costs the same however many publishers there are.

        Raises:
            InvalidOption: If ``subscription_id`` is not an integer.
        """
        if isinstance(subscription_id, bool) or not isinstance(subscription_id, int):
            raise InvalidOption(
                "subscription_id", subscription_id, "the id of a subscription, a whole number"
            )
        with self._lock:
            return self._by_id.get(subscription_id)

    def if_empty(self, call: Callable[[], None]) -> None:
        """Calls ``call`` under the lock if there is no subscription, so that none is added meanwhile."""
        with self._lock:
            if not self._publishers:
                call()

    def snapshot(self, matched_through: int) -> MatchingIndex[SharedPublisher]:
        """Returns the index of the publishers to match a commit with; the rings of later ones start behind ``matched_through``."""
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
        """Detaches publishers whose measured cost is too high. The caller holds the publish gate.

        Returns:
            Each detached publisher with the cursors that this overtook.
        """
        costly = self._index.costly(
            DETACH_WEIGHT
        )  # no lock: only the holder of the publish gate changes these counts
        with self._lock:
            found = []
            for shared in costly:
                if shared.subscriptions and shared.state is PublisherState.ATTACHED:
                    self.weights.too_dear(shared, self._matched_through)
                    # The ring first: if an interrupt comes in between, no LIVE cursor misses changes that are no longer matched.
                    found.append((shared, shared.ring.detach(visible)))
                    self._index.retire(shared.criteria)
            return found

    def publishers(self) -> list[SharedPublisher]:
        """All publishers now."""
        with self._lock:
            return list(self._publishers.values())

    def listed(self, most: int | None) -> list[tuple[SharedPublisher, int, list[Subscribed]]]:
        """Lists publishers, each with its number of subscriptions and the first of these.

        Args:
            most: Most publishers to list, and most subscriptions of each; None for all.
        """
        if most is None:
            return [(one, len(one.subscriptions), list(one.subscriptions)) for one in self.publishers()]
        with self._lock:
            return [
                (shared, len(shared.subscriptions), list(islice(shared.subscriptions, most)))
                for shared in islice(self._publishers.values(), most)
            ]

    def counts(self) -> tuple[int, int, int]:
        """Numbers of publishers, subscriptions and LIVE subscriptions; costs the same however many subscriptions there are."""
        with self._lock:
            publishers, subscriptions = list(self._publishers.values()), len(self._by_id)
        return len(publishers), subscriptions, sum(shared.ring.served for shared in publishers)

    def rings(self) -> tuple[int, int, float]:
        """Changes and bytes in all rings, and how full the fullest ring is, from 0 to 1."""
        found = [shared.ring.fullness() for shared in self.publishers()]
        events, nbytes = sum(one[0] for one in found), sum(one[1] for one in found)
        return events, nbytes, max((full for _, _, full in found), default=0.0)

    def subscriptions(self) -> list[Subscribed]:
        """All subscriptions now."""
        with self._lock:
            return [
                subscription for shared in self._publishers.values() for subscription in shared.subscriptions
            ]

    def _refresh_if_idle(self) -> None:
        # A commit that is being matched has set matched_through to a version that is not visible until matching is done.
        if self._watermark.visible >= self._matched_through:
            self._refresh()

    def _refresh(self) -> list[SharedPublisher]:
        """Brings the index up to date; returns publishers whose memory is to be freed after the lock is released.

        An interrupt leaves the rest in ``_stale``, for the next call.
        """
        let_go = []
        while self._stale:
            criteria, stale = next(iter(self._stale.items()))
            shared = self._publishers.get(criteria)
            if shared is None or shared.state is PublisherState.DETACHED:
                self._index.retire(criteria)
            else:
                self._index.enter(shared.prepared, shared)
            del self._stale[criteria]
            if shared is not None:
                shared.prepared.entered()  # if it is attached again, reenter() prepares it again
            let_go.append(stale)
        self._index.sweep()
        self._owed = 0
        return let_go

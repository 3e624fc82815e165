"""Which predicates are wanted now, and by whom."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from publishers.criteria.criteria import Criteria
from publishers.criteria.index import MatchingIndex
from publishers.errors import InvalidOption
from publishers.fanout.shared import SharedPublisher
from publishers.fanout.watermark import Watermark
from publishers.options import LogOptions
from publishers.position import Position

if TYPE_CHECKING:
    from publishers.fanout.subscription import ChangeSubscription

__all__ = ["Registry"]


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
    """

    def __init__(self, matched_through: int, options: LogOptions, watermark: Watermark) -> None:
        self._lock = threading.Lock()
        self._options = options
        self._publishers: dict[Criteria, SharedPublisher] = {}
        self._by_id: dict[int, ChangeSubscription] = {}
        self._index: MatchingIndex[SharedPublisher] = MatchingIndex()
        self._stale: dict[Criteria, None] = {}  # of which the index does not know yet whether they are wanted
        self._watermark = watermark
        self._matched_through = matched_through

    def add(
        self, criteria: Criteria, make: Callable[[SharedPublisher], "ChangeSubscription"]
    ) -> "ChangeSubscription":
        """Adds a subscription, made for the publisher of its criteria."""
        with self._lock:
            known = self._publishers.get(criteria)
            # What is being matched at this moment is matched without a new publisher, so its ring starts behind.
            shared = known or SharedPublisher(criteria, Position(self._matched_through + 1, 0), self._options)
            subscription = make(shared)
            shared.subscriptions[subscription] = None
            self._by_id[subscription.id] = subscription
            if known is None:
                self._stale[criteria] = None
                self._publishers[criteria] = shared
                self._refresh_if_idle()
            return subscription

    def remove(self, subscription: "ChangeSubscription") -> bool:
        """Removes a subscription, and its publisher if it was the last; answers whether it was there."""
        with self._lock:
            shared = subscription.shared
            if subscription not in shared.subscriptions:
                return False
            del shared.subscriptions[subscription]
            self._by_id.pop(subscription.id, None)
            shared.leave(subscription.cursor.cohort)
            if not shared.subscriptions:
                self._stale[shared.criteria] = None
                del self._publishers[shared.criteria]
                self._refresh_if_idle()
            return True

    def find(self, subscription_id: int) -> "ChangeSubscription | None":
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
            self._matched_through = matched_through
            self._refresh()
            return self._index

    def publishers(self) -> list[SharedPublisher]:
        """All publishers at this moment."""
        with self._lock:
            return list(self._publishers.values())

    def subscriptions(self) -> list["ChangeSubscription"]:
        """All subscriptions at this moment."""
        with self._lock:
            return [
                subscription for shared in self._publishers.values() for subscription in shared.subscriptions
            ]

    def _refresh_if_idle(self) -> None:
        # Whoever matches has taken a snapshot up to a version that is not visible before it has finished.
        if self._watermark.visible >= self._matched_through:
            self._refresh()

    def _refresh(self) -> None:
        """Brings the index up to date. Whoever is interrupted here leaves what is stale to be done again."""
        while self._stale:
            criteria = next(iter(self._stale))
            shared = self._publishers.get(criteria)
            if shared is None:
                self._index.remove(criteria)
            else:
                self._index.add(shared.predicate, shared)
            del self._stale[criteria]

"""Subscriptions to wake after an advance of the watermark even if nothing matches: they wait for it, or end with it."""

import threading
from collections.abc import Iterable
from typing import Final

from publishers.fanout.ports import Subscribed, Wakeable
from publishers.fanout.replayer import Replayer
from publishers.fanout.watermark import Watermark

__all__ = ["WaitingList"]

_WOKEN: Final = 64  # in one slice


class WaitingList:
    """Keeps the subscriptions that are WAITING, and those that end at a version.

    Subscriptions of detached publishers are woken on a thread of the replayer, within the share of time for detached
    subscriptions. A commit only enlists this list with the replayer.

    Attributes:
        empty: Whether the list is empty; never true while an entry waits. Read without the lock, after an advance.

    Args:
        watermark: The log's watermark.
    """

    detached: Final = True
    heavy: Final = False

    def __init__(self, watermark: Watermark) -> None:
        self._watermark = watermark
        self._lock = threading.Lock()
        self._parked: set[Wakeable] = set()
        self._bounded: set[Subscribed] = set()
        # Subscriptions of detached publishers, each with the version up to which it has read.
        self._behind: dict[Subscribed, int] = {}
        self._due: dict[Subscribed, int] = {}
        self._advanced = False  # whether the watermark advanced since _behind last became _due
        self.empty: bool = True
        self._queued = False

    def add(self, subscription: Subscribed, upto: int) -> None:
        """Adds a WAITING subscription that has read up to version ``upto``."""
        with self._lock:
            self.empty = False
            if subscription.detached:
                self._behind[subscription] = upto
            else:
                self._parked.add(subscription)

    def park(self, one: Wakeable) -> None:
        """Adds an object to wake once, after the next advance."""
        with self._lock:
            self.empty = False
            self._parked.add(one)

    def bound(self, subscription: Subscribed) -> None:
        """Adds a subscription with ``until``, which may end with an advance in which nothing matches."""
        with self._lock:
            self.empty = False
            self._bounded.add(subscription)

    def discard(self, subscription: Subscribed) -> None:
        """Removes a subscription that has ended."""
        with self._lock:
            self._parked.discard(subscription)
            self._bounded.discard(subscription)
            self._behind.pop(subscription, None)
            self._due.pop(subscription, None)
            self._look()

    def due(self, replayer: Replayer) -> Iterable[Wakeable]:
        """Returns the subscriptions to wake after an advance; detached ones are left to the replayer, at a constant cost."""
        if self._behind or self._due:
            self._enlist(replayer)
        if not self._parked and not self._bounded:
            return ()
        with self._lock:
            parked, self._parked = self._parked, set()
            visible = self._watermark.visible
            ended = [one for one in self._bounded if one.until is not None and one.until <= visible]
            self._look()
        return [*parked, *ended]

    def _look(self) -> None:
        self.empty = not (self._parked or self._bounded or self._behind or self._due or self._queued)

    def _enlist(self, replayer: Replayer) -> None:
        with self._lock:
            self._advanced = True
            if self._queued:
                return
            self._queued = True
        try:
            replayer.enlist(self)
        except BaseException:
            self._queued = False  # the next advance tries again
            raise

    def replay(self) -> bool:
        """Wakes one slice of the detached subscriptions; returns whether more are due."""
        with self._lock:
            if not self._due:
                self._due, self._behind, self._advanced = self._behind, {}, False
            some = [self._due.popitem() for _ in range(min(_WOKEN, len(self._due)))]
        visible = self._watermark.visible
        for subscription, upto in some:
            if upto < visible:
                subscription.wake()
        with self._lock:
            # Subscriptions that have read up to the watermark keep waiting: for the next advance, unless one came just now.
            self._behind |= {one: upto for one, upto in some if upto >= visible and not one.ended}
            self._advanced = self._advanced or self._watermark.visible > visible
            self._queued = more = bool(self._due or (self._advanced and self._behind))
            self._look()
        return more

    def replay_stopped(self) -> None:
        """Does nothing: closing the log wakes every subscription."""

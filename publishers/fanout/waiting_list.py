"""Subscriptions that an advance of the watermark concerns although nothing may match: they wait for it, or end with it."""

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

    Those of detached publishers it wakes on a thread of the replayer, in the time that is theirs: a commit only says that it
    was there.

    Attributes:
        empty: Whether nobody waits; never true when somebody does. Read without the lock, after an advance.

    Args:
        watermark: What may be read.
    """

    detached: Final = True

    def __init__(self, watermark: Watermark) -> None:
        self._watermark = watermark
        self._lock = threading.Lock()
        self._parked: set[Wakeable] = set()
        self._bounded: set[Subscribed] = set()
        # Those of detached publishers, each with the version up to which it has read.
        self._behind: dict[Subscribed, int] = {}
        self._due: dict[Subscribed, int] = {}
        self._advanced = False  # since the last of them became due
        self.empty = True
        self._queued = False

    def add(self, subscription: Subscribed, upto: int) -> None:
        """Keeps one that has read up to a version."""
        with self._lock:
            self.empty = False
            if subscription.detached:
                self._behind[subscription] = upto
            else:
                self._parked.add(subscription)

    def park(self, one: Wakeable) -> None:
        """Wakes one with the next advance, and then no more."""
        with self._lock:
            self.empty = False
            self._parked.add(one)

    def bound(self, subscription: Subscribed) -> None:
        """Keeps one whose end may come with an advance in which nothing matches."""
        with self._lock:
            self.empty = False
            self._bounded.add(subscription)

    def discard(self, subscription: Subscribed) -> None:
        """Drops one that has ended."""
        with self._lock:
            self._parked.discard(subscription)
            self._bounded.discard(subscription)
            self._behind.pop(subscription, None)
            self._due.pop(subscription, None)
            self._look()

    def due(self, replayer: Replayer) -> Iterable[Wakeable]:
        """The subscriptions that are to be woken after an advance; costs the same however many detached ones wait."""
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
        """Wakes some of detached publishers; answers whether there are more."""
        with self._lock:
            if not self._due:
                self._due, self._behind, self._advanced = self._behind, {}, False
            some = [self._due.popitem() for _ in range(min(_WOKEN, len(self._due)))]
        visible = self._watermark.visible
        for subscription, upto in some:
            if upto < visible:
                subscription.wake()
        with self._lock:
            # Those that were parked after the advance wait on; for the next one, unless it came just now.
            self._behind |= {one: upto for one, upto in some if upto >= visible and not one.ended}
            self._advanced = self._advanced or self._watermark.visible > visible
            self._queued = more = bool(self._due or (self._advanced and self._behind))
            self._look()
        return more

    def replay_stopped(self) -> None:
        """The log was closed, and wakes everybody itself."""

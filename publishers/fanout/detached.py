"""Subscriptions of detached publishers that have read everything, and wait for the watermark to advance."""

import threading
from typing import Final

from publishers.fanout.ports import Subscribed
from publishers.fanout.replayer import Replayer
from publishers.fanout.watermark import Watermark

__all__ = ["Waiting"]

_WOKEN: Final = 64  # in one slice


class Waiting:
    """Wakes them on a thread of the replayer, in the time that is theirs: a commit only says that it was there.

    Args:
        watermark: What may be read.
    """

    detached: Final = True

    def __init__(self, watermark: Watermark) -> None:
        self._watermark = watermark
        self._lock = threading.Lock()
        # Each with the version up to which it has read.
        self._parked: dict[Subscribed, int] = {}
        self._due: dict[Subscribed, int] = {}
        self._advanced = False  # since those who are due were taken from those who are parked
        self._queued = False

    def add(self, subscription: Subscribed, upto: int) -> None:
        """Keeps one that has read up to a version."""
        with self._lock:
            self._parked[subscription] = upto

    def discard(self, subscription: Subscribed) -> None:
        """Drops one that has ended."""
        with self._lock:
            self._parked.pop(subscription, None)
            self._due.pop(subscription, None)

    def advanced(self, replayer: Replayer) -> None:
        """The watermark has advanced; costs the same however many wait."""
        if not self._parked and not self._due:
            return
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
        """Wakes some; answers whether there are more."""
        with self._lock:
            if not self._due:
                self._due, self._parked, self._advanced = self._parked, {}, False
            some = [self._due.popitem() for _ in range(min(_WOKEN, len(self._due)))]
        visible = self._watermark.visible
        for subscription, upto in some:
            if upto < visible:
                subscription.wake()
        with self._lock:
            # Those that were parked after the advance wait on; for the next one, unless it came just now.
            self._parked |= {one: upto for one, upto in some if upto >= visible and not one.ended}
            self._advanced = self._advanced or self._watermark.visible > visible
            self._queued = more = bool(self._due or (self._advanced and self._parked))
        return more

    def replay_stopped(self) -> None:
        """The log was closed, and wakes everybody itself."""

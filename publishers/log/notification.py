"""Telling that there is something to read, without reading it."""

import threading
from collections.abc import Callable

from flow.contracts import Subscription
from publishers.model.change import Change

__all__ = ["NotifyingSubscriber"]


class NotifyingSubscriber:
    """Asks for one change, and tells that it is there, or that the log has ended.

    Args:
        notify: What is called.
    """

    def __init__(self, notify: Callable[[], object]) -> None:
        self._notify = notify
        self._lock = threading.Lock()
        self._subscription: Subscription | None = None
        self._ended = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Asks for one."""
        with self._lock:
            ended, self._subscription = self._ended, subscription
        if ended:
            subscription.cancel()
        else:
            subscription.request(1)

    def on_next(self, change: Change, /) -> None:
        """There is one."""
        self._notify()

    def on_error(self, error: Exception, /) -> None:
        """There will be none; whoever waits has a bound on that."""

    def on_complete(self) -> None:
        """There will be none."""
        self._notify()

    def end(self) -> None:
        """Nothing is told any more."""
        with self._lock:
            self._ended, subscription = True, self._subscription
        if subscription is not None:
            subscription.cancel()

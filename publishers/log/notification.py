"""Notification that there is something to read, without reading it."""

import threading
from collections.abc import Callable

from flow.contracts import Subscription
from publishers.model.change import Change

__all__ = ["NotifyingSubscriber"]


class NotifyingSubscriber:
    """Requests one change, and notifies when it arrives or the log is completed.

    Args:
        notify: The callback.
    """

    def __init__(self, notify: Callable[[], object]) -> None:
        self._notify = notify
        self._lock = threading.Lock()
        self._subscription: Subscription | None = None
        self._ended = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Requests one change, unless `end` was called before."""
        with self._lock:
            ended, self._subscription = self._ended, subscription
        if ended:
            subscription.cancel()
        else:
            subscription.request(1)

    def on_next(self, change: Change, /) -> None:
        """Notifies of the change."""
        self._notify()

    def on_error(self, error: Exception, /) -> None:
        """Does nothing: the waiting side has a time limit."""

    def on_complete(self) -> None:
        """There will be none."""
        self._notify()

    def end(self) -> None:
        """Cancels the subscription; no notification follows."""
        with self._lock:
            self._ended, subscription = True, self._subscription
        if subscription is not None:
            subscription.cancel()

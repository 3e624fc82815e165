"""Subscribing with plain functions."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from flow import forks, hooks
from flow.contracts import UNBOUNDED, Publisher, Subscription
from flow.demand import Tide
from flow.misuse import require_functions, require_publisher
from flow.operators.link import present

__all__ = ["CallbackSubscription", "subscribe"]

T = TypeVar("T")


def subscribe(
    publisher: Publisher[T],
    on_next: Callable[[T], object],
    on_error: Callable[[Exception], object] | None = None,
    on_complete: Callable[[], object] | None = None,
    *,
    prefetch: int = UNBOUNDED,
) -> "CallbackSubscription[T]":
    """Call functions for the signals of a publisher.

    Args:
        publisher: Subscribed to at once.
        on_next: Called for each element. If it raises, the subscription ends and the error goes to
            `flow.hooks.on_dropped_error`.
        on_error: Called if the stream fails; without it the error goes to `flow.hooks.on_dropped_error`.
        on_complete: Called at the end.
        prefetch: First request; 75 % of it is requested again whenever as many calls of ``on_next`` have returned. By
            default demand is unbounded, which suits a callback that finishes its work before it returns, and never waits.

    Returns:
        The subscription; it can be cancelled from any thread.

    Raises:
        ValueError: If ``prefetch`` is not a positive integer.
    """
    require_publisher("publisher", publisher)
    require_functions(on_next=on_next)
    require_functions(on_error=on_error, on_complete=on_complete, optional=True)
    subscriber = CallbackSubscription(on_next, on_error, on_complete, Tide(prefetch))
    publisher.subscribe(subscriber)
    return subscriber


class CallbackSubscription(Generic[T]):
    """The subscriber behind `subscribe`; callers of `subscribe` use only `cancel` and `active`."""

    __slots__ = (
        "__weakref__",
        "_cancelled",
        "_lock",
        "_on_complete",
        "_on_error",
        "_on_next",
        "_open",
        "_subscription",
        "_tide",
    )

    def __init__(
        self,
        on_next: Callable[[T], object],
        on_error: Callable[[Exception], object] | None,
        on_complete: Callable[[], object] | None,
        tide: Tide,
        *,
        opened: bool = True,
    ) -> None:
        self._on_next: Callable[[T], object] | None = on_next
        self._on_error = on_error
        self._on_complete = on_complete
        self._tide = tide
        self._lock = threading.Lock()
        self._subscription: Subscription | None = None
        self._cancelled = False
        self._open = opened  # whether it may request
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`: no callback is called, and cancelling does nothing."""
        self._lock = threading.Lock()
        self._subscription = None
        self._cancelled = True

    @property
    def active(self) -> bool:
        """Whether signals may still come: the subscription is neither cancelled nor ended."""
        return not self._cancelled

    def cancel(self) -> None:
        """End the subscription and drop the callbacks; idempotent, from any thread."""
        subscription = self._end()
        if subscription is not None:
            subscription.cancel()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Accept the first subscription (rule 2.5), and request unless requests are held back."""
        present(subscription, "the subscription")
        with self._lock:
            refused = self._subscription is not None or self._cancelled
            if not refused:
                self._subscription = subscription
            opened = self._open
        if refused:
            subscription.cancel()
        elif opened:
            subscription.request(self._tide.prefetch)

    def on_next(self, item: T, /) -> None:
        """Call the callback, then request more if that is due."""
        if item is None:
            raise TypeError("rule 2.13: the element is None")
        call = self._on_next
        if call is None:
            return
        try:
            call(item)
        except BaseException:
            self.cancel()
            raise
        finally:
            del call
        due = self._tide.consume()
        if due:
            with self._lock:
                subscription = self._subscription
            if subscription is not None:
                subscription.request(due)

    def on_error(self, error: Exception, /) -> None:
        """Call the callback; without one, report the error."""
        present(error, "the error")
        call = self._on_error
        if self._cancelled:
            return
        self._end()
        if call is None:
            hooks.report(error, self)
        else:
            call(error)

    def on_complete(self) -> None:
        """Call the callback."""
        call = self._on_complete
        if self._cancelled:
            return
        self._end()
        if call is not None:
            call()

    def _end(self) -> Subscription | None:
        with self._lock:
            self._cancelled = True
            subscription, self._subscription = self._subscription, None
        self._on_next = self._on_error = self._on_complete = None
        return subscription

"""The common part of both iterators: a subscriber with a bounded buffer, emptied by a consumer."""

import _thread
import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar

from flow import forks
from flow.contracts import Subscription
from flow.demand import Tide
from flow.errors import Forked, Lagged
from flow.operators.link import present

__all__ = ["EMPTY", "Inbox", "OnLag", "abandon"]

T = TypeVar("T")

OnLag = Literal["fail", "skip"] | Callable[[int], object]
"""What an iterator does after it was overtaken: raise `flow.Lagged`, skip, or call back with the number of missed elements."""


class _Empty:
    __slots__ = ()


EMPTY: Final = _Empty()
"""Result of `Inbox.take` if the buffer is empty."""


class _Lag:
    __slots__ = ("missed",)

    def __init__(self, missed: int) -> None:
        self.missed = missed


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Inbox(Generic[T]):
    """Receives signals on any thread, and passes the elements to one consumer on another thread.

    At most ``tide.prefetch`` elements are buffered, because no more are requested. An error overtakes buffered elements,
    completion does not. A second subscription is cancelled (rule 2.5); signals after `close` are ignored (rule 2.8).

    Args:
        tide: Decides when to request more.
        wake: Called, on the thread of the signal, once after each `take` that returned `EMPTY`. It must not raise.
        on_lag: What `take` does where elements are missing.
    """

    _tide: Tide
    _wake: Callable[[], object]
    _on_lag: OnLag
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _arrived: list[T | _Lag] = field(default_factory=list)  # guarded by the lock
    # The consumer's own, in reverse order; a list, because an empty one is small.
    _ready: list[T | _Lag] = field(default_factory=list)
    _subscription: Subscription | None = None
    _error: Exception | None = None
    _done: bool = False  # no further signal comes
    _closed: bool = False  # by the consumer
    _waiting: bool = False

    def __post_init__(self) -> None:
        if not callable(self._on_lag) and self._on_lag not in ("fail", "skip"):
            raise ValueError(f"on_lag: {self._on_lag!r}; 'fail', 'skip' or a callable is expected")
        forks.register(self)

    def forked(self, pid: int, /) -> None:
        """See `flow.forks.Forkable`: `take` raises `Forked` instead of waiting for ever, and `close` cancels nothing."""
        self._lock = threading.Lock()
        self._subscription = None
        self._waiting = False
        if not self._done and not self._closed:
            self._done = True
            self._error = Forked(pid)

    # Called by the publisher.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Accept the first subscription and request as many elements as may be buffered."""
        present(subscription, "the subscription")
        with self._lock:
            refused = self._subscription is not None or self._closed or self._done
            if not refused:
                self._subscription = subscription
        if refused:
            subscription.cancel()
        else:
            subscription.request(self._tide.prefetch)

    def on_next(self, item: T, /) -> None:
        """Buffer one element."""
        if item is None:
            raise TypeError("rule 2.13: the element is None")
        self._put((item,))

    def on_next_batch(self, items: Iterable[T], /) -> None:
        """Buffer several elements; if they cannot be unpacked, the stream has failed."""
        try:
            unpacked = tuple(items)
        except Exception as error:  # noqa: BLE001 - the waiting consumer must receive the error
            self.fail(error)
        else:
            self._put(unpacked)

    def on_lagged(self, missed: int, /) -> None:
        """Note that elements are missing at this place."""
        with self._lock:
            last = self._arrived[-1] if self._arrived else None
            if isinstance(last, _Lag):
                last.missed += missed
                return
        self._put((_Lag(missed),))

    def on_error(self, error: Exception, /) -> None:
        """End; buffered elements are discarded."""
        present(error, "the error")
        self._finish(error)

    def on_complete(self) -> None:
        """End, once the buffered elements are taken."""
        self._finish(None)

    def _put(self, items: Iterable[T | _Lag]) -> None:
        with self._lock:
            if self._done or self._closed:
                return
            self._arrived.extend(items)
            wake, self._waiting = self._waiting, False
        if wake:
            self._wake()

    def _finish(self, error: Exception | None) -> None:
        with self._lock:
            if self._done or self._closed:
                return
            self._done = True
            self._error = error
            self._subscription = None
            wake, self._waiting = self._waiting, False
        if wake:
            self._wake()

    def fail(self, error: Exception) -> None:
        """End as `on_error` does, and cancel the subscription, because the error is not the publisher's."""
        with self._lock:
            subscription = self._subscription
        self._finish(error)
        if subscription is not None:
            subscription.cancel()

    # Called by the consumer.

    @property
    def finished(self) -> bool:
        """Whether `EMPTY` means the end, rather than a wait."""
        with self._lock:
            return self._closed or (
                self._done and not self._arrived and not self._ready and self._error is None
            )

    def take(self) -> T | _Empty:
        """Take the next element, or `EMPTY`: then a wake-up will follow, unless `finished`.

        Raises:
            Lagged: If elements are missing before the next one, and ``on_lag`` is "fail". The caller may take further elements.
            Exception: The error of ``on_error``, once.
        """
        while True:
            if self._error is not None:
                self._fail()
            if not self._ready:
                with self._lock:
                    self._ready, self._arrived = self._arrived, self._ready
                    self._ready.reverse()
                    if not self._ready:
                        self._waiting = not self._done and not self._closed
                        if self._error is None:
                            return EMPTY
                        continue
            item = self._ready.pop()
            if isinstance(item, _Lag):
                self._report_lag(item.missed)
                continue
            due = self._tide.consume()
            if due:
                self._request(due)
            return item

    def close(self) -> None:
        """Cancel the subscription and discard the buffer; idempotent, from any thread."""
        with self._lock:
            self._closed = True
            subscription, self._subscription = self._subscription, None
            self._error = None
            self._arrived = []
            self._ready = []
            wake, self._waiting = self._waiting, False
        if subscription is not None:
            subscription.cancel()
        if wake:
            self._wake()

    def _request(self, n: int) -> None:
        with self._lock:
            subscription = self._subscription
        if subscription is not None:
            subscription.request(n)

    def _fail(self) -> None:
        with self._lock:
            error, self._error = self._error, None
            self._arrived.clear()
            self._ready.clear()
        if error is not None:
            try:
                raise error
            finally:
                del error

    def _report_lag(self, missed: int) -> None:
        if self._on_lag == "fail":
            raise Lagged(missed)
        if callable(self._on_lag):
            self._on_lag(missed)


def abandon(items: object, close: Callable[[], object]) -> None:
    """Close an iterator from its finalizer, so that the end of its last reference ends its subscription."""
    if sys.is_finalizing():
        return  # threads are frozen, perhaps holding a lock, and every subscription ends with the process
    # The garbage collector marks an object before it calls this; after the drop of a last reference the mark comes later.
    if not gc.is_finalized(items):
        close()  # code that drops the iterator holds none of our locks
        return
    # The collector may run in the middle of any operation, even while this thread holds a lock that closing needs. Starting
    # a thread through `threading` needs a lock as well.
    # No thread can be started any more: the interpreter is ending.
    with contextlib.suppress(RuntimeError):
        _thread.start_new_thread(close, ())

"""Operators with a buffer between two paces."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from flow.contracts import UNBOUNDED, Publisher, Subscriber, Subscription
from flow.demand import add, refusal, subtract
from flow.drain import COMPLETED, Failed, Outcome
from flow.drain.feed import GONE
from flow.errors import Overflowed
from flow.executors import Executor, executor_of
from flow.misuse import require_functions
from flow.operators.link import Fitting, In, Link, Operator, lift, present
from flow.operators.stage import Stage, queued, staged
from flow.overflow import KEPT, Backlog, Meter, Overflow, require_meter

__all__ = [
    "on_backpressure_buffer",
    "on_backpressure_drop",
    "on_backpressure_error",
    "on_backpressure_latest",
    "publish_on",
]

T = TypeVar("T")


def publish_on(
    executor: Executor | asyncio.AbstractEventLoop,
    *,
    prefetch: int = 256,
    low_tide: int | None = None,
    delay_error: bool = False,
) -> Callable[[Publisher[T]], Publisher[T]]:
    """Give all signals on an executor, or on an event loop, and let upstream run ahead.

    Args:
        executor: Signals are serial whatever it is, and its threads are given back after 256 elements.
        prefetch: Requested at first, and the most that is ahead of the subscriber.
        low_tide: How many must be delivered before as many more are requested; ``None`` is 75 % of ``prefetch``, 0
            requests only when all were.
        delay_error: Whether an error of upstream waits until what is buffered was delivered.

    Raises:
        ValueError: If a number is out of its bounds.
        TypeError: If the executor is none.
    """
    queue: Operator[Any, Any] = queued(executor_of(executor), prefetch, low_tide, delay_error=delay_error)
    return queue


def on_backpressure_buffer(
    capacity: int,
    overflow: Overflow = Overflow.ERROR,
    on_drop: Callable[[In], object] | None = None,
    *,
    meter: Meter | None = None,
) -> Fitting[In, In]:
    """Request everything of upstream, and let wait what nobody has asked for.

    An error overtakes what waits, completion does not.

    Args:
        capacity: Most elements that wait; there is no default. Without effect for LATEST and BUFFER.
        overflow: Which element goes when there is one too many; ERROR ends the stream with `Overflowed`.
        on_drop: Called with each element that went, on upstream's thread; if it raises, the stream ends with that.
        meter: Counts what comes, waits and goes, for all subscribers.

    Raises:
        ValueError: If the capacity is no positive integer, or the policy none.
    """
    Backlog[In](overflow, capacity, meter)
    require_functions(on_drop=on_drop, optional=True)
    return staged(lambda source: _Overflowing(source, Backlog(overflow, capacity, meter), on_drop))


def on_backpressure_latest(
    on_drop: Callable[[In], object] | None = None, *, meter: Meter | None = None
) -> Fitting[In, In]:
    """Request everything of upstream, and keep the newest of what nobody has asked for."""
    return on_backpressure_buffer(1, Overflow.LATEST, on_drop, meter=meter)


def on_backpressure_drop(
    on_drop: Callable[[In], object] | None = None, *, meter: Meter | None = None
) -> Fitting[In, In]:
    """Request everything of upstream, and let go of each element that nobody has asked for when it comes.

    Args:
        on_drop: Called with each of them, on upstream's thread; if it raises, the stream ends with that.
        meter: Counts what comes and what goes, for all subscribers.
    """
    require_meter(meter)
    require_functions(on_drop=on_drop, optional=True)
    return lift(lambda below: _Unasked(below, on_drop, meter, fails=False))


def on_backpressure_error(*, meter: Meter | None = None) -> Callable[[Publisher[T]], Publisher[T]]:
    """Request everything of upstream, and end with `Overflowed` at the first element that nobody has asked for."""
    require_meter(meter)
    return lift(lambda below: _Unasked(below, None, meter, fails=True))


class _Overflowing(Stage[T]):
    """The subscriber of upstream, and the feed of the drain that serves who is below."""

    __slots__ = ("_backlog", "_closed", "_greeted", "_lock", "_on_drop", "_outcome", "_source", "_upstream")

    def __init__(
        self, source: Publisher[T], backlog: Backlog[T], on_drop: Callable[[T], object] | None
    ) -> None:
        super().__init__()
        self._source: Publisher[T] | None = source
        self._lock = threading.Lock()
        self._backlog = backlog
        self._on_drop = on_drop
        self._outcome: Outcome | None = None
        self._upstream: Subscription = GONE
        self._greeted = False
        self._closed = False  # nothing is taken in any more

    def open(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.subscribe(self)

    # What upstream calls.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        present(subscription, "the subscription")
        with self._lock:
            refused = self._greeted or self._closed
            if not refused:
                self._greeted = True
                self._upstream = subscription
        if refused:
            subscription.cancel()
        else:
            subscription.request(UNBOUNDED)

    def on_next(self, item: T, /) -> None:
        present(item, "the element")
        with self._lock:
            if self._closed:
                return
            evicted: Any = self._backlog.put(item)
            waiting = len(self._backlog)
            on_drop = self._on_drop
        if evicted is not KEPT:
            self._overflow(evicted, waiting, on_drop)
        self._wake()

    def on_error(self, error: Exception, /) -> None:
        present(error, "the error")
        if self._end(Failed(error)):
            self._abort(error)

    def on_complete(self) -> None:
        if self._end(COMPLETED):
            self._wake()

    def _end(self, outcome: Outcome) -> bool:
        with self._lock:
            if self._closed:
                return False
            self._closed = True
            self._upstream = GONE
            self._outcome = outcome
        return True

    def _overflow(self, evicted: T, waiting: int, on_drop: Callable[[T], object] | None) -> None:
        if self._backlog.overflow is Overflow.ERROR:
            self._fail(Overflowed(waiting + 1, waiting))
        elif on_drop is not None:
            try:
                on_drop(evicted)
            except Exception as error:  # noqa: BLE001 - what drops unheard must not go on
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End although upstream does not; it is not kept until the subscriber, who may be busy, is told."""
        self._abort(error)
        self._close()

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            upstream, self._upstream = self._upstream, GONE
        upstream.cancel()

    # What the drain calls.

    def pull(self, limit: int, /) -> Sequence[T]:
        with self._lock:
            return self._backlog.take(limit)

    def outcome(self) -> Outcome | None:
        with self._lock:
            return None if self._backlog else self._outcome

    def release(self) -> None:
        super().release()
        self._close()
        with self._lock:
            self._source = self._on_drop = None
            self._backlog.clear()


class _Unasked(Link[T, T]):
    """Passes on what was asked for, and does not keep anything else."""

    __slots__ = ("_demand", "_fails", "_lock", "_meter", "_on_drop")

    def __init__(
        self,
        below: Subscriber[T],
        on_drop: Callable[[T], object] | None,
        meter: Meter | None,
        *,
        fails: bool,
    ) -> None:
        super().__init__(below)
        self._meter = meter
        self._lock = threading.Lock()
        self._demand = 0
        self._on_drop = on_drop
        self._fails = fails

    def on_subscribe(self, subscription: Subscription, /) -> None:
        first = not self._greeted
        super().on_subscribe(subscription)
        if first:
            self._upstream.request(UNBOUNDED)

    def on_next(self, item: T, /) -> None:
        present(item, "the element")
        with self._lock:
            asked = self._demand > 0
            if asked:
                self._demand = subtract(self._demand, 1)
        if self._meter is not None and self._upstream is not GONE:
            self._meter.count(received=1, dropped=int(not asked))
        if asked:
            self._pass(item)
        elif self._fails:
            self._fail(Overflowed(1, 0))
        elif self._on_drop is not None and self._upstream is not GONE:
            try:
                self._on_drop(item)
            except Exception as error:  # noqa: BLE001 - what drops unheard must not go on
                self._fail(error)

    def request(self, n: int, /) -> None:
        if refusal(n) is None:
            with self._lock:
                self._demand = add(self._demand, n)
        else:
            self._upstream.request(n)

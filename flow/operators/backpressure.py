"""Operators whose pace upstream is not the demand below: `publish_on`, `limit_rate` and the family `on_backpressure_*`."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from flow.contracts import UNBOUNDED, Publisher, Subscriber
from flow.demand import Tide, add, refusal, subtract
from flow.drain import Outcome
from flow.drain.feed import GONE
from flow.errors import Overflowed
from flow.executors import INLINE, AnyExecutor, executor_of
from flow.misuse import require_functions
from flow.operators.link import Fitting, In, Link, at_least, lift, present
from flow.operators.stage import Inlet, QueueStage, StageQueue, staged
from flow.overflow import KEPT, Backlog, Meter, Overflow, require_meter

__all__ = [
    "Bounded",
    "limit_rate",
    "on_backpressure_buffer",
    "on_backpressure_drop",
    "on_backpressure_error",
    "on_backpressure_latest",
    "publish_on",
]


T = TypeVar("T")


def publish_on(
    executor: AnyExecutor,
    *,
    prefetch: int = 256,
    low_tide: int | None = None,
    delay_error: bool = False,
) -> Callable[[Publisher[T]], Publisher[T]]:
    """Run all signals on an executor, or on an event loop, with upstream running ahead.

    Args:
        executor: Signals are serial on any executor; its thread is released after at most 256 elements.
        prefetch: First request, and the most elements that are ahead of the subscriber.
        low_tide: How many must be delivered before as many more are requested; ``None`` is 75 % of ``prefetch``, 0
            requests only when all were.
        delay_error: Whether an error of upstream waits until the buffered elements are delivered.

    Raises:
        ValueError: If a number is out of its bounds.
        TypeError: If the executor is invalid.
    """
    Tide(prefetch, low_tide)  # checks the arguments now, not at the first subscriber
    return staged(
        lambda source: StageQueue[Any, Any](source, Tide(prefetch, low_tide), delay_error=delay_error),
        executor_of(executor),
    )


def limit_rate(high: int, low: int | None = None) -> Callable[[Publisher[T]], Publisher[T]]:
    """Request ``high`` elements at first, and ``low`` more whenever as many were delivered, whatever the demand is.

    So with unbounded demand at most ``high`` elements are in flight, and a subscriber that requests one by one does
    not cause a request upstream for each. Elements ahead of the demand are queued here; errors overtake them.

    Args:
        high: At least 1.
        low: ``None`` is 75 % of ``high``, 0 requests only when all were delivered.

    Raises:
        ValueError: If a number is out of its bounds.
    """
    at_least("high", high)
    return publish_on(INLINE, prefetch=high, low_tide=low)


def on_backpressure_buffer(
    capacity: int,
    overflow: Overflow = Overflow.ERROR,
    on_drop: Callable[[In], object] | None = None,
    *,
    meter: Meter | None = None,
) -> Fitting[In, In]:
    """Request everything of upstream, and queue elements beyond the demand.

    An error overtakes queued elements, completion does not.

    Args:
        capacity: Most elements that wait; there is no default. Without effect for LATEST and BUFFER.
        overflow: Which element is discarded when there is one too many; ERROR ends the stream with `Overflowed`.
        on_drop: Called with each discarded element, on upstream's thread; if it raises, the stream ends with that error.
        meter: Counts arriving, waiting and discarded elements, for all subscribers.

    Raises:
        ValueError: If ``capacity`` is not a positive integer, or ``overflow`` is not a policy.
    """
    backlog = partial(Backlog[In], overflow, capacity, meter)
    backlog()  # checks the arguments now, not at the first subscriber
    require_functions(on_drop=on_drop, optional=True)
    return staged(lambda source: Bounded(source, backlog(), on_drop))


class Bounded(QueueStage[T]):
    """A queue that requests everything, so there is nothing to settle."""

    __slots__ = ("_inlet",)

    def __init__(
        self, source: Publisher[T], backlog: Backlog[T], on_drop: Callable[[T], object] | None
    ) -> None:
        self._inlet = _BoundedInlet(backlog, on_drop, Tide(UNBOUNDED), self._wake, self._abort)
        super().__init__((source,), (self._inlet,))

    def pull(self, limit: int, /) -> Sequence[T]:
        """Take the oldest elements."""
        return self._inlet.take(limit)

    def outcome(self) -> Outcome | None:
        """Return how the inlet ended."""
        return self._inlet.outcome()


class _BoundedInlet(Inlet[T]):
    """Discards elements for which there is no room."""

    __slots__ = ("_on_drop",)

    def __init__(self, backlog: Backlog[T], on_drop: Callable[[T], object] | None, *inlet: Any) -> None:
        super().__init__(*inlet)
        self._buffer = backlog
        self._on_drop = on_drop

    def on_next(self, item: T, /) -> None:
        """Queue the element, and discard one if there is no room."""
        present(item, "the element")
        with self._lock:
            if self._subscription is None:
                return
            evicted = self._buffer.put(item)
        if evicted is not KEPT:
            self._let_go(evicted)
        self._wake()

    def on_next_batch(self, items: Sequence[T], /) -> None:
        """Queue the elements one by one: the subscriber may take some in between."""
        for item in items:
            self.on_next(item)

    def take(self, limit: int) -> list[T]:
        """Remove and return the oldest elements, at most ``limit``."""
        with self._lock:
            taken: list[T] = self._buffer.take(limit)
            return taken

    def close(self) -> None:
        """Drop the callback too."""
        super().close()
        self._on_drop = None

    def _let_go(self, item: T) -> None:
        on_drop = self._on_drop
        if self._buffer.overflow is Overflow.ERROR:
            waiting = self._buffer.capacity
            self._fail(Overflowed(waiting + 1, waiting))
        elif on_drop is not None:
            try:
                on_drop(item)
            except Exception as error:  # noqa: BLE001 - a callback that fails must not go unnoticed
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End the stream before upstream does, and cancel upstream without waiting for the subscriber, which may be busy."""
        fail = self._on_failure
        if fail is not None:
            fail(error)
        self.close()


def on_backpressure_latest(
    on_drop: Callable[[In], object] | None = None, *, meter: Meter | None = None
) -> Fitting[In, In]:
    """Request everything of upstream, and keep the newest of the elements that arrive without demand."""
    return on_backpressure_buffer(1, Overflow.LATEST, on_drop, meter=meter)


def on_backpressure_drop(
    on_drop: Callable[[In], object] | None = None, *, meter: Meter | None = None
) -> Fitting[In, In]:
    """Request everything of upstream, and drop each element that arrives without demand.

    Args:
        on_drop: Called with each dropped element, on upstream's thread; if it raises, the stream ends with that error.
        meter: Counts arriving and dropped elements, for all subscribers.
    """
    require_meter(meter)
    require_functions(on_drop=on_drop, optional=True)
    return lift(Unasked, lambda: (meter, on_drop))


class Unasked(Link[T, T]):
    """Requests everything, passes on requested elements, and calls ``on_drop`` with all others.

    If ``on_drop`` raises, the stream ends with that error.
    """

    __slots__ = ("_demand", "_lock", "_meter", "_on_drop")

    def __init__(
        self, below: Subscriber[T], meter: Meter | None, on_drop: Callable[[T], object] | None
    ) -> None:
        super().__init__(below)
        self._meter = meter
        self._lock = threading.Lock()
        self._demand = 0
        self._on_drop = on_drop

    def _begin(self) -> None:
        self._upstream.request(UNBOUNDED)

    def on_next(self, item: T, /) -> None:
        """Pass the element on, or drop it."""
        present(item, "the element")
        with self._lock:
            asked = self._demand > 0
            if asked:
                self._demand = subtract(self._demand, 1)
        if self._meter is not None and self._upstream is not GONE:
            self._meter.count(received=1, dropped=int(not asked))
        if asked:
            self._pass(item)
        elif self._on_drop is not None and self._upstream is not GONE:
            try:
                self._on_drop(item)
            except Exception as error:  # noqa: BLE001 - a callback that fails must not go unnoticed
                self._finish(error)

    def request(self, n: int, /) -> None:
        """Record the demand; upstream has unbounded demand already."""
        if refusal(n) is None:
            with self._lock:
                self._demand = add(self._demand, n)
        else:
            self._upstream.request(n)


def on_backpressure_error(*, meter: Meter | None = None) -> Callable[[Publisher[T]], Publisher[T]]:
    """Request everything of upstream, and end with `Overflowed` at the first element that arrives without demand."""
    require_meter(meter)
    return lift(Unasked, lambda: (meter, _overflow))


def _overflow(_: object) -> NoReturn:
    raise Overflowed(1, 0)

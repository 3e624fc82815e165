"""Applying operators in sequence: by `pipe`, or as the methods of `Flow`, for chains that read from left to right."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from flow.contracts import Publisher, Subscriber
from flow.executors import AnyExecutor
from flow.misuse import require_function, require_publisher
from flow.operators.backpressure import (
    limit_rate,
    on_backpressure_buffer,
    on_backpressure_drop,
    on_backpressure_error,
    on_backpressure_latest,
    publish_on,
)
from flow.operators.buffer import buffer
from flow.operators.combining import (
    concat,
    flat_map,
    merge,
    zip,  # noqa: A004 - the name of the field
)
from flow.operators.limiting import skip, take, take_while, timeout
from flow.operators.link import Operator
from flow.operators.recovering import USUAL, RetryDelay, on_error_resume, retry
from flow.operators.tap import tap
from flow.operators.timers import Timers
from flow.operators.transforming import (
    distinct_until_changed,
    filter,  # noqa: A004 - the name of the field
    map,  # noqa: A004 - the name of the field
    scan,
)
from flow.overflow import Meter, Overflow

__all__ = ["Flow", "pipe"]


A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")
Z = TypeVar("Z")


@overload
def pipe(publisher: Publisher[A], /) -> Publisher[A]: ...


@overload
def pipe(publisher: Publisher[A], b: Operator[A, B], /) -> Publisher[B]: ...


@overload
def pipe(publisher: Publisher[A], b: Operator[A, B], c: Operator[B, C], /) -> Publisher[C]: ...


@overload
def pipe(
    publisher: Publisher[A], b: Operator[A, B], c: Operator[B, C], d: Operator[C, D], /
) -> Publisher[D]: ...


@overload
def pipe(
    publisher: Publisher[A], b: Operator[A, B], c: Operator[B, C], d: Operator[C, D], e: Operator[D, E], /
) -> Publisher[E]: ...


@overload
def pipe(
    publisher: Publisher[A],
    b: Operator[A, B],
    c: Operator[B, C],
    d: Operator[C, D],
    e: Operator[D, E],
    f: Operator[E, F],
    /,
) -> Publisher[F]: ...


@overload
def pipe(
    publisher: Publisher[A],
    b: Operator[A, B],
    c: Operator[B, C],
    d: Operator[C, D],
    e: Operator[D, E],
    f: Operator[E, F],
    g: Operator[F, G],
    /,
) -> Publisher[G]: ...


@overload
def pipe(
    publisher: Publisher[A],
    b: Operator[A, B],
    c: Operator[B, C],
    d: Operator[C, D],
    e: Operator[D, E],
    f: Operator[E, F],
    g: Operator[F, G],
    h: Operator[G, H],
    /,
) -> Publisher[H]: ...


@overload
def pipe(
    publisher: Publisher[A],
    b: Operator[A, B],
    c: Operator[B, C],
    d: Operator[C, D],
    e: Operator[D, E],
    f: Operator[E, F],
    g: Operator[F, G],
    h: Operator[G, H],
    i: Operator[H, Z],
    /,
) -> Publisher[Z]: ...


@overload
def pipe(
    publisher: Publisher[Any],
    b: Operator[Any, Any],
    c: Operator[Any, Any],
    d: Operator[Any, Any],
    e: Operator[Any, Any],
    f: Operator[Any, Any],
    g: Operator[Any, Any],
    h: Operator[Any, Any],
    i: Operator[Any, Any],
    /,
    *operators: Operator[Any, Any],
) -> Publisher[Any]: ...


def pipe(publisher: Publisher[Any], /, *operators: Operator[Any, Any]) -> Publisher[Any]:
    """Apply operators from left to right.

    Types are followed through the first eight. The types of a lambda are inferred by pyright everywhere, by mypy in the first
    operator only; later they may be ``Any``. With the methods of `flow.Flow`, both infer everything.

    ::

        flow.pipe(publisher, operators.map(str), operators.take(10))
    """
    require_publisher("publisher", publisher)
    for number, operator in enumerate(operators, 1):
        require_function(f"operator {number}", operator)
        publisher = operator(publisher)
        require_publisher(f"the result of operator {number}", publisher)
    return publisher


T = TypeVar("T")


class Flow(Generic[T]):
    """A publisher whose methods are the operators; each returns another, and subscribes to nothing.

    ::

        Flow(publisher).filter(bool).map(str).take(10).subscribe(subscriber)

    The functions of the same names in `flow.operators` document the methods in full.

    Args:
        publisher: The publisher to wrap.
    """

    __slots__ = ("_publisher",)

    def __init__(self, publisher: Publisher[T]) -> None:
        require_publisher("publisher", publisher)
        self._publisher = publisher

    def subscribe(self, subscriber: Subscriber[T], /) -> None:
        """Subscribe to the wrapped publisher."""
        self._publisher.subscribe(subscriber)

    def through(self, operator: Operator[T, B]) -> "Flow[B]":
        """Apply any operator, for example one of your own."""
        return Flow(operator(self._publisher))

    # Transforming.

    def map(self, f: Callable[[T], B]) -> "Flow[B]":
        """Replace each element by ``f(element)``."""
        return self.through(map(f))

    def filter(self, keep: Callable[[T], object]) -> "Flow[T]":
        """Omit each element for which ``keep(element)`` is false."""
        return self.through(filter(keep))

    def scan(self, f: Callable[[B, T], B], seed: B) -> "Flow[B]":
        """Replace each element by the value accumulated up to it."""
        return self.through(scan(f, seed))

    def distinct_until_changed(self, key: Callable[[T], object] | None = None) -> "Flow[T]":
        """Omit each element that is equal to the one before it."""
        return self.through(distinct_until_changed(key))

    def flat_map(
        self,
        f: Callable[[T], Publisher[B]],
        concurrency: int = 8,
        prefetch: int = 32,
        *,
        delay_error: bool = False,
    ) -> "Flow[B]":
        """Publish the elements of the publishers that ``f`` makes from the elements."""
        return self.through(flat_map(f, concurrency, prefetch, delay_error=delay_error))

    def buffer(
        self, count: int = 256, seconds: float | None = None, *, timers: Timers | None = None
    ) -> "Flow[list[T]]":
        """Publish lists of ``count`` elements."""
        operator: Operator[T, list[T]] = buffer(count, seconds, timers=timers)
        return self.through(operator)

    # Limiting.

    def take(self, count: int) -> "Flow[T]":
        """Complete after ``count`` elements."""
        return self.through(take(count))

    def take_while(self, keep: Callable[[T], object]) -> "Flow[T]":
        """Complete before the first element for which ``keep(element)`` is false."""
        return self.through(take_while(keep))

    def skip(self, count: int) -> "Flow[T]":
        """Omit the first ``count`` elements."""
        return self.through(skip(count))

    def limit_rate(self, high: int, low: int | None = None) -> "Flow[T]":
        """Request ``high`` elements at first, and ``low`` more whenever as many were delivered."""
        return self.through(limit_rate(high, low))

    # Combining.

    def merge(self, *others: Publisher[T], prefetch: int = 32, delay_error: bool = False) -> "Flow[T]":
        """Publish the elements of this and the other publishers, as they come."""
        return self.through(merge(*others, prefetch=prefetch, delay_error=delay_error))

    def concat(self, *others: Publisher[T]) -> "Flow[T]":
        """Publish the elements of this publisher, and then those of the others."""
        return self.through(concat(*others))

    @overload
    def zip(self, b: Publisher[B], /, *, prefetch: int = 32) -> "Flow[tuple[T, B]]": ...

    @overload
    def zip(self, b: Publisher[B], c: Publisher[C], /, *, prefetch: int = 32) -> "Flow[tuple[T, B, C]]": ...

    @overload
    def zip(self, *others: Publisher[Any], prefetch: int = 32) -> "Flow[tuple[Any, ...]]": ...

    def zip(self, *others: Publisher[Any], prefetch: int = 32) -> "Flow[Any]":
        """Publish tuples of one element of each publisher."""
        return self.through(zip(*others, prefetch=prefetch))

    # Recovering.

    def retry(
        self,
        attempts: int = 3,
        backoff: RetryDelay = USUAL,
        *,
        when: Callable[[Exception], object] | None = None,
        timers: Timers | None = None,
    ) -> "Flow[T]":
        """Subscribe again when the publisher fails."""
        return self.through(retry(attempts, backoff, when=when, timers=timers))

    def on_error_resume(self, fallback: Callable[[Exception], Publisher[T]]) -> "Flow[T]":
        """Continue with ``fallback(error)`` when the publisher fails."""
        return self.through(on_error_resume(fallback))

    def timeout(self, seconds: float, *, timers: Timers | None = None) -> "Flow[T]":
        """End with ``TimeoutError`` if a requested element does not come in time."""
        return self.through(timeout(seconds, timers=timers))

    # Buffering.

    def publish_on(
        self,
        executor: AnyExecutor,
        *,
        prefetch: int = 256,
        low_tide: int | None = None,
        delay_error: bool = False,
    ) -> "Flow[T]":
        """Run all signals on an executor, with upstream running ahead."""
        return self.through(
            publish_on(executor, prefetch=prefetch, low_tide=low_tide, delay_error=delay_error)
        )

    def on_backpressure_buffer(
        self,
        capacity: int,
        overflow: Overflow = Overflow.ERROR,
        on_drop: Callable[[T], object] | None = None,
        *,
        meter: Meter | None = None,
    ) -> "Flow[T]":
        """Request everything, and queue elements beyond the demand."""
        return self.through(on_backpressure_buffer(capacity, overflow, on_drop, meter=meter))

    def on_backpressure_drop(
        self, on_drop: Callable[[T], object] | None = None, *, meter: Meter | None = None
    ) -> "Flow[T]":
        """Request everything, and drop elements beyond the demand."""
        return self.through(on_backpressure_drop(on_drop, meter=meter))

    def on_backpressure_latest(
        self, on_drop: Callable[[T], object] | None = None, *, meter: Meter | None = None
    ) -> "Flow[T]":
        """Request everything, and keep the newest of the elements beyond the demand."""
        return self.through(on_backpressure_latest(on_drop, meter=meter))

    def on_backpressure_error(self, *, meter: Meter | None = None) -> "Flow[T]":
        """Request everything, and fail at the first element beyond the demand."""
        return self.through(on_backpressure_error(meter=meter))

    # Observing.

    def tap(
        self,
        on_next: Callable[[T], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
        on_complete: Callable[[], object] | None = None,
        *,
        on_request: Callable[[int], object] | None = None,
        on_cancel: Callable[[], object] | None = None,
    ) -> "Flow[T]":
        """Call functions for the signals that pass."""
        return self.through(tap(on_next, on_error, on_complete, on_request=on_request, on_cancel=on_cancel))

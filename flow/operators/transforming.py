"""Operators that change elements or leave some out. Of these, only `flat_map` has queues."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar, overload

from flow.contracts import Publisher, Subscriber
from flow.misuse import require_functions
from flow.operators.link import (
    Batchwise,
    Fitting,
    In,
    Link,
    Operator,
    Out,
    at_least,
    lift,
    none_is_no_element,
    present,
    present_all,
)
from flow.operators.merging import Merging
from flow.operators.stage import staged

__all__ = ["Sieve", "distinct_until_changed", "filter", "flat_map", "map", "scan", "sieve"]

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


def map(f: Callable[[In], Out]) -> Fitting[In, Out]:  # noqa: A001 - the name of the field
    """Replace each element by ``f(element)``.

    If ``f`` raises, or returns ``None``, upstream is cancelled and the stream ends in ``on_error``.
    """
    require_functions(f=f)
    return lift(lambda below: _Mapping(below, f), lambda below: _BatchMapping(below, f))


def filter(keep: Callable[[In], object]) -> Fitting[In, In]:  # noqa: A001 - the name of the field
    """Leave out each element for which ``keep(element)`` is false; one more is requested in its stead.

    If ``keep`` raises, upstream is cancelled and the stream ends in ``on_error``.
    """
    require_functions(keep=keep)
    return sieve(lambda: keep)


def flat_map(
    f: Callable[[In], Publisher[Out]], concurrency: int = 8, prefetch: int = 32, *, delay_error: bool = False
) -> Fitting[In, Out]:
    """Publish what the publishers do that ``f`` makes of the elements, as it comes, until all have ended.

    Args:
        f: Called in the turns of the subscriber; it should not block. If it raises, the stream ends in ``on_error``.
        concurrency: Most publishers that are subscribed to at once; no more elements are requested of upstream. With 1
            they come one after the other.
        prefetch: Most elements of each that are requested and not delivered; more are requested when 75 % of them
            were.
        delay_error: Whether the error of one waits for the end of all; several make an ``ExceptionGroup``.

    Raises:
        ValueError: If a number is not a positive integer.
    """
    require_functions(f=f)
    at_least("concurrency", concurrency)
    at_least("prefetch", prefetch)
    return staged(
        lambda source: Merging(source, f, concurrency=concurrency, prefetch=prefetch, delay_error=delay_error)
    )


@overload
def scan(f: Callable[[In, In], In]) -> Fitting[In, In]: ...


@overload
def scan(f: Callable[[Out, In], Out], seed: Out) -> Fitting[In, Out]: ...


def scan(f: Callable[[Any, Any], Any], seed: Any = None) -> Fitting[Any, Any]:
    """Replace each element by what was accumulated up to it: ``f(accumulated, element)``.

    Args:
        f: Fails as that of `map`.
        seed: What is accumulated before the first element; it is not an element itself. Without it, the first element
            passes as it is. Subscribers share it, so ``f`` should not change it but return another.
    """
    require_functions(f=f)
    return lift(
        lambda below: _Mapping(below, _Running(f, seed)),
        lambda below: _BatchMapping(below, _Running(f, seed)),
    )


def distinct_until_changed(key: Callable[[In], object] | None = None) -> Fitting[In, In]:
    """Leave out each element that is equal to the one before it.

    Args:
        key: What is compared instead of the elements. If it raises, or comparing does, the stream ends in
            ``on_error``.
    """
    require_functions(key=key, optional=True)
    return sieve(lambda: _Changed(key))


class _Mapping(Link[A, B]):
    __slots__ = ("_f",)

    def __init__(self, below: Subscriber[B], f: Callable[[A], B]) -> None:
        super().__init__(below)
        self._f = f

    def on_next(self, item: A, /) -> None:
        present(item, "the element")
        try:
            made = self._f(item)
        except Exception as error:  # noqa: BLE001 - rule 1.4: told to the subscriber
            self._fail(error)
            return
        if made is None:
            self._fail(none_is_no_element())
        else:
            self._pass(made)


class _BatchMapping(Batchwise[A, B], _Mapping[A, B]):
    __slots__ = ()

    def on_next_batch(self, items: Sequence[A], /) -> None:
        present_all(items)
        made: list[B] = []
        failure: Exception | None = None
        try:
            for item in items:
                result = self._f(item)
                if result is None:
                    failure = none_is_no_element()
                    break
                made.append(result)
        except Exception as error:  # noqa: BLE001 - rule 1.4: told to the subscriber
            failure = error
        self._pass_all(made)
        if failure is not None:
            self._fail(failure)


def sieve(make: Callable[[], Callable[[T], object]]) -> Operator[T, T]:
    """Make an operator that leaves out elements, of what makes a predicate for each subscriber."""
    return lift(lambda below: Sieve(below, make()), lambda below: _BatchSieve(below, make()))


class Sieve(Link[T, T]):
    """Passes on what ``keep`` accepts, and requests one more for each element that it does not."""

    __slots__ = ("_keep",)

    def __init__(self, below: Subscriber[T], keep: Callable[[T], object]) -> None:
        super().__init__(below)
        self._keep = keep

    def on_next(self, item: T, /) -> None:
        """Pass the element on, or do without it."""
        present(item, "the element")
        try:
            kept = bool(self._keep(item))
        except Exception as error:  # noqa: BLE001 - rule 1.4: told to the subscriber
            self._fail(error)
            return
        if kept:
            self._pass(item)
        else:
            self._leave_out()

    def _leave_out(self) -> None:
        """Ask for another; upstream is inside a signal, so that only records (rule 3.3)."""
        self._upstream.request(1)


class _BatchSieve(Batchwise[T, T], Sieve[T]):
    __slots__ = ()

    def on_next_batch(self, items: Sequence[T], /) -> None:
        present_all(items)
        kept: list[T] = []
        seen = 0
        failure: Exception | None = None
        try:
            for item in items:
                seen += 1
                if self._keep(item):
                    kept.append(item)
        except Exception as error:  # noqa: BLE001 - rule 1.4: told to the subscriber
            failure = error
        self._pass_all(items if len(kept) == len(items) else kept)
        if failure is not None:
            self._fail(failure)
        elif len(kept) < seen:
            self._upstream.request(seen - len(kept))


class _Running:
    """The state of one `scan`."""

    __slots__ = ("_accumulated", "_f")

    def __init__(self, f: Callable[[Any, Any], Any], seed: Any) -> None:
        self._f = f
        self._accumulated = seed

    def __call__(self, item: Any) -> Any:
        before = self._accumulated
        self._accumulated = item if before is None else self._f(before, item)
        return self._accumulated


class _Nothing:
    __slots__ = ()


_NOTHING: Final = _Nothing()


class _Changed(Generic[T]):
    """The state of one `distinct_until_changed`."""

    __slots__ = ("_key", "_last")

    def __init__(self, key: Callable[[T], object] | None) -> None:
        self._key = key
        self._last: object = _NOTHING

    def __call__(self, item: T) -> bool:
        found = item if self._key is None else self._key(item)
        changed = self._last is _NOTHING or bool(found != self._last)
        self._last = found
        return changed

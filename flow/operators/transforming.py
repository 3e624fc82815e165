"""Operators that change elements or leave some out. None has a queue."""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, overload

from flow.contracts import Subscriber
from flow.operators.link import Link, Operator, lift, none_is_no_element, present

__all__ = ["Sieve", "distinct_until_changed", "filter", "map", "scan"]

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


def map(f: Callable[[A], B]) -> Operator[A, B]:  # noqa: A001 - the name of the field
    """Replace each element by ``f(element)``.

    If ``f`` raises, or returns ``None``, upstream is cancelled and the stream ends in ``on_error``.
    """
    return lift(lambda below: _Mapping(below, f))


def filter(keep: Callable[[T], object]) -> Operator[T, T]:  # noqa: A001 - the name of the field
    """Leave out each element for which ``keep(element)`` is false; one more is requested in its stead.

    If ``keep`` raises, upstream is cancelled and the stream ends in ``on_error``.
    """
    return lift(lambda below: Sieve(below, keep))


@overload
def scan(f: Callable[[T, T], T]) -> Operator[T, T]: ...


@overload
def scan(f: Callable[[B, A], B], seed: B) -> Operator[A, B]: ...


def scan(f: Callable[[Any, Any], Any], seed: Any = None) -> Operator[Any, Any]:
    """Replace each element by what was accumulated up to it: ``f(accumulated, element)``.

    Args:
        f: Fails as that of `map`.
        seed: What is accumulated before the first element; it is not an element itself. Without it, the first element
            passes as it is. Subscribers share it, so ``f`` should not change it but return another.
    """
    return lift(lambda below: _Mapping(below, _Running(f, seed)))


def distinct_until_changed(key: Callable[[T], object] | None = None) -> Operator[T, T]:
    """Leave out each element that is equal to the one before it.

    Args:
        key: What is compared instead of the elements. If it raises, or comparing does, the stream ends in
            ``on_error``.
    """
    return lift(lambda below: Sieve(below, _Changed(key)))


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
            self._downstream.on_next(made)


class Sieve(Link[T, T]):
    """Passes on what ``keep`` accepts, and requests one more for each element that it does not."""

    __slots__ = ("_keep",)

    def __init__(self, below: Subscriber[T], keep: Callable[[T], object]) -> None:
        super().__init__(below)
        self._keep = keep

    def on_next(self, item: T, /) -> None:
        """Pass the element on, or ask for another; upstream is inside a signal, so that only records (rule 3.3)."""
        present(item, "the element")
        try:
            kept = bool(self._keep(item))
        except Exception as error:  # noqa: BLE001 - rule 1.4: told to the subscriber
            self._fail(error)
            return
        if kept:
            self._downstream.on_next(item)
        else:
            self._upstream.request(1)


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

"""Operators that replace elements or omit them: `map`, `scan`, `filter`, `distinct_until_changed`."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, TypeVar, overload

from flow.contracts import Subscriber
from flow.misuse import require_functions
from flow.operators.link import Fitting, In, Link, Out, lift, none_is_no_element, present, present_all

__all__ = ["Mapping", "Sieve", "distinct_until_changed", "filter", "map", "scan"]


A = TypeVar("A")
B = TypeVar("B")


def map(f: Callable[[In], Out]) -> Fitting[In, Out]:  # noqa: A001 - the name of the field
    """Replace each element by ``f(element)``.

    If ``f`` raises, or returns ``None``, upstream is cancelled and the stream ends in ``on_error``.
    """
    require_functions(f=f)
    return lift(Mapping, lambda: (f,))


class Mapping(Link[A, B]):
    """Passes on ``f(element)``."""

    __slots__ = ("_f",)

    def __init__(self, below: Subscriber[B], f: Callable[[A], B]) -> None:
        super().__init__(below)
        self._f = f

    def on_next(self, item: A, /) -> None:
        """Pass on the result for the element."""
        present(item, "the element")
        try:
            made = self._f(item)
        except Exception as error:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
            self._finish(error)
            return
        if made is None:
            self._finish(none_is_no_element())
        else:
            self._pass(made)

    def _on_batch(self, items: Sequence[A], /) -> None:
        present_all(items)
        made: list[B] = []
        failure: Exception | None = None
        try:
            for item in items:
                result = self._f(item)
                if result is None:
                    raise none_is_no_element()
                made.append(result)
        except Exception as error:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
            failure = error
        self._pass_all(made, failure)


@overload
def scan(f: Callable[[In, In], In]) -> Fitting[In, In]: ...


@overload
def scan(f: Callable[[Out, In], Out], seed: Out) -> Fitting[In, Out]: ...


def scan(f: Callable[[Any, Any], Any], seed: Any = None) -> Fitting[Any, Any]:
    """Replace each element by the value accumulated up to it: ``f(accumulated, element)``.

    Args:
        f: If it raises, or returns ``None``, the stream fails as in `map`.
        seed: The accumulated value before the first element; it is not published. Without it, the first element
            passes unchanged. Subscribers share it, so ``f`` should return a new value instead of changing it.
    """
    require_functions(f=f)
    return lift(Mapping, lambda: (_accumulating(f, seed),))


def _accumulating(f: Callable[[Any, Any], Any], accumulated: Any) -> Callable[[Any], Any]:
    def step(item: Any) -> Any:
        nonlocal accumulated
        accumulated = item if accumulated is None else f(accumulated, item)
        return accumulated

    return step


T = TypeVar("T")


def filter(keep: Callable[[In], object]) -> Fitting[In, In]:  # noqa: A001 - the name of the field
    """Omit each element for which ``keep(element)`` is false; one more is requested in its place.

    If ``keep`` raises, upstream is cancelled and the stream ends in ``on_error``.
    """
    require_functions(keep=keep)
    return lift(Sieve, lambda: (keep,))


class Sieve(Link[T, T]):
    """Passes on the elements that ``keep`` accepts, and requests one more for each other element."""

    __slots__ = ("_keep",)
    _ends: ClassVar[bool] = False
    """Whether the first omitted element ends the stream."""

    def __init__(self, below: Subscriber[T], keep: Callable[[T], object]) -> None:
        super().__init__(below)
        self._keep = keep

    def on_next(self, item: T, /) -> None:
        """Pass the element on, or omit it."""
        present(item, "the element")
        try:
            kept = bool(self._keep(item))
        except Exception as error:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
            self._finish(error)
            return
        if kept:
            self._pass(item)
        else:
            self._leave_out(1)

    def _on_batch(self, items: Sequence[T], /) -> None:
        present_all(items)
        kept: list[T] = []
        failure: Exception | None = None
        try:
            for item in items:
                if self._keep(item):
                    kept.append(item)
                elif self._ends:
                    break
        except Exception as error:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
            failure = error
        self._pass_all(items if len(kept) == len(items) else kept, failure)
        if failure is None and len(kept) < len(items):
            self._leave_out(len(items) - len(kept))

    def _leave_out(self, count: int) -> None:
        """Request more; upstream is inside a signal, so it only records the request (rule 3.3)."""
        self._upstream.request(count)


_NOTHING: Final = object()


def distinct_until_changed(key: Callable[[In], object] | None = None) -> Fitting[In, In]:
    """Omit each element that is equal to the one before it.

    Args:
        key: Returns the value to compare instead of the element. If it raises, or the comparison does, the stream ends
            in ``on_error``.
    """
    require_functions(key=key, optional=True)
    return lift(Sieve, lambda: (_changes(key),))


def _changes(key: Callable[[Any], object] | None) -> Callable[[Any], bool]:
    last: Any = _NOTHING

    def changed(item: Any) -> bool:
        nonlocal last
        found = item if key is None else key(item)
        differs = last is _NOTHING or bool(found != last)
        last = found
        return differs

    return changed

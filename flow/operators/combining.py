"""Operators that make one stream of several."""

from builtins import zip as rows_of
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

from flow.contracts import Publisher, Subscriber
from flow.demand import Tide
from flow.drain import Outcome
from flow.misuse import require_publisher
from flow.operators.inlet import Inlet
from flow.operators.link import Operator, at_least
from flow.operators.merging import Merging
from flow.operators.stage import Stage, staged
from flow.operators.switching import Switched, Switching
from flow.sources import from_iterable

__all__ = ["concat", "merge", "zip"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
T = TypeVar("T")


def merge(*others: Publisher[T], prefetch: int = 32, delay_error: bool = False) -> Operator[T, T]:
    """Publish what the publisher and the others do, as it comes, until all have ended.

    All are subscribed to at once; none is served twice while another has something.

    Args:
        others: Any number.
        prefetch: Most elements of each that are requested and not delivered; more are requested when 75 % of them
            were.
        delay_error: Whether the error of one waits for the end of all; several make an ``ExceptionGroup``.

    Raises:
        ValueError: If ``prefetch`` is not a positive integer.
    """
    at_least("prefetch", prefetch)
    _publishers(others)
    return staged(
        lambda source: Merging(
            from_iterable((source, *others)),
            lambda publisher: publisher,
            concurrency=1 + len(others),
            prefetch=prefetch,
            delay_error=delay_error,
        )
    )


def concat(*others: Publisher[T]) -> Operator[T, T]:
    """Publish what the publisher does, and then, one after the other, what the others do.

    Each is subscribed to when the one before has completed, and nothing is requested of it that is not asked for.
    """
    _publishers(others)
    return lambda source: Switched(source, lambda _, below: _Concatenating(below, iter(others)))


@overload
def zip(b: Publisher[B], /, *, prefetch: int = 32) -> Callable[[Publisher[A]], Publisher[tuple[A, B]]]: ...  # noqa: A001 - as below


@overload
def zip(  # noqa: A001 - as below
    b: Publisher[B], c: Publisher[C], /, *, prefetch: int = 32
) -> Callable[[Publisher[A]], Publisher[tuple[A, B, C]]]: ...


@overload
def zip(  # noqa: A001 - as below
    b: Publisher[B], c: Publisher[C], d: Publisher[D], /, *, prefetch: int = 32
) -> Callable[[Publisher[A]], Publisher[tuple[A, B, C, D]]]: ...


@overload
def zip(*others: Publisher[Any], prefetch: int = 32) -> Operator[Any, tuple[Any, ...]]: ...  # noqa: A001 - as below


def zip(*others: Publisher[Any], prefetch: int = 32) -> Operator[Any, Any]:  # noqa: A001 - the name of the field
    """Publish tuples: the first elements of all, the second ones, and so on, until one has no more.

    The others are cancelled then; up to ``prefetch`` of their elements were taken in vain. An error of any ends the
    stream at once.

    Args:
        others: Any number.
        prefetch: Most elements of each that are requested and not delivered; more are requested when 75 % of them
            were.

    Raises:
        ValueError: If ``prefetch`` is not a positive integer.
    """
    at_least("prefetch", prefetch)
    _publishers(others)
    return staged(lambda source: _Zipping((source, *others), prefetch))


def _publishers(others: Sequence[object]) -> None:
    for number, publisher in enumerate(others, 1):
        require_publisher(f"publisher {number}", publisher)


class _Concatenating(Switching[T]):
    __slots__ = ("_others",)

    def __init__(self, below: Subscriber[T], others: Iterator[Publisher[T]]) -> None:
        super().__init__(below)
        self._others = others

    def _follow(self, error: Exception | None) -> None:
        if error is None:
            for following in self._others:
                self.switch(following)
                return
        self.finish(error)


class _Zipping(Stage[tuple[Any, ...]]):
    __slots__ = ("_inlets", "_lent", "_publishers")

    def __init__(self, publishers: Sequence[Publisher[Any]], prefetch: int) -> None:
        super().__init__()
        self._publishers = publishers
        self._inlets = [Inlet[Any](Tide(prefetch), self._wake, self._abort) for _ in publishers]
        self._lent = 0

    def open(self) -> None:
        for publisher, inlet in rows_of(self._publishers, self._inlets, strict=False):
            publisher.subscribe(inlet)

    def pull(self, limit: int, /) -> Sequence[tuple[Any, ...]]:
        self._settle()
        self._lent = min(limit, *map(len, self._inlets))
        return list(rows_of(*(inlet.take(self._lent) for inlet in self._inlets), strict=True))

    def outcome(self) -> Outcome | None:
        self._settle()
        if all(map(len, self._inlets)):
            return None
        return next((outcome for inlet in self._inlets if (outcome := inlet.outcome()) is not None), None)

    def release(self) -> None:
        super().release()
        inlets, self._inlets, self._publishers = self._inlets, [], ()
        for inlet in inlets:
            inlet.close()

    def _settle(self) -> None:
        """What was pulled last has been delivered by now."""
        lent, self._lent = self._lent, 0
        for inlet in self._inlets:
            inlet.settle(lent)

"""The operator `zip`."""

from builtins import zip as rows_of
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from flow.contracts import Publisher
from flow.demand import Tide
from flow.drain import Outcome
from flow.operators.inlet import Inlet
from flow.operators.link import Operator, at_least, require_publishers
from flow.operators.stage import QueueStage, staged

__all__ = ["zip"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


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
    """Publish tuples: the first elements of all publishers, the second ones, and so on, until a publisher has no more.

    Then the others are cancelled; up to ``prefetch`` of their elements are discarded. An error of any publisher ends the
    stream at once.

    Args:
        others: Any number of publishers.
        prefetch: Most elements of each that are requested and not delivered; more are requested when 75 % of them
            are.

    Raises:
        ValueError: If ``prefetch`` is not a positive integer.
    """
    at_least("prefetch", prefetch)
    require_publishers(others)
    return staged(lambda source: _Zip((source, *others), prefetch))


class _Zip(QueueStage[tuple[Any, ...]]):
    __slots__ = ()

    def __init__(self, publishers: Sequence[Publisher[Any]], prefetch: int) -> None:
        super().__init__(
            publishers, [Inlet[Any](Tide(prefetch), self._wake, self._abort) for _ in publishers]
        )

    def pull(self, limit: int, /) -> Sequence[tuple[Any, ...]]:
        self._settle()
        count = min(limit, *map(len, self._inlets))
        return list(rows_of(*(inlet.take(count) for inlet in self._inlets), strict=True))

    def outcome(self) -> Outcome | None:
        self._settle()
        if all(map(len, self._inlets)):
            return None
        return next((outcome for inlet in self._inlets if (outcome := inlet.outcome()) is not None), None)

    def _settle(self) -> None:
        """Settle the elements of the previous pull, which are delivered by now."""
        for inlet in self._inlets:
            inlet.settle()

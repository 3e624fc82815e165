"""Operators that make one stream of several: `concat`, `flat_map`, `merge`, `zip`."""

from builtins import zip as rows_of
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

from flow.contracts import Publisher, Subscriber
from flow.demand import Tide
from flow.drain import COMPLETED, Failed, Outcome
from flow.misuse import require_functions, require_publisher
from flow.operators.link import Fitting, In, Operator, Out, at_least, require_publishers
from flow.operators.stage import Inlet, QueueStage, staged
from flow.operators.switch import Switch, switched
from flow.sources import from_iterable

__all__ = ["concat", "flat_map", "merge", "zip"]


T = TypeVar("T")


def concat(*others: Publisher[T]) -> Operator[T, T]:
    """Publish the elements of the publisher, and then those of the others, one publisher after the other.

    Each is subscribed to when the one before has completed, and receives only the subscriber's own demand.
    """
    require_publishers(others)
    return switched(lambda _, below: _Concat(below, iter(others)))


class _Concat(Switch[T]):
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


B = TypeVar("B")


def flat_map(
    f: Callable[[In], Publisher[Out]], concurrency: int = 8, prefetch: int = 32, *, delay_error: bool = False
) -> Fitting[In, Out]:
    """Publish the elements of the publishers that ``f`` makes from the elements, as they come, until all have ended.

    Args:
        f: Called in the drain of the subscriber; it should not block. If it raises, the stream ends in ``on_error``.
        concurrency: Most publishers that are subscribed to at a time; no more elements are requested of upstream. With 1
            the publishers follow one another.
        prefetch: Most elements of each publisher that are requested and not delivered; more are requested when 75 % of
            them are.
        delay_error: Whether an error waits until all publishers have ended; several errors make an ``ExceptionGroup``.

    Raises:
        ValueError: If a number is not a positive integer.
    """
    require_functions(f=f)
    at_least("concurrency", concurrency)
    at_least("prefetch", prefetch)
    return staged(lambda source: _FlatMap(source, f, concurrency, prefetch, delay_error=delay_error))


class _FlatMap(QueueStage[B]):
    """Subscribes to the publisher that ``f`` makes from each element of the source, and takes from all of them in turn.

    Everything but the signals of the publishers happens in the drain's turns, even subscribing, and the requests
    for which an ended publisher makes room. So no terminal signal calls upstream (rule 2.3), and nothing recurses. Elements
    of the source wait for a free branch, so at most ``concurrency`` are requested and unfinished.
    """

    __slots__ = ("_branches", "_concurrency", "_delay_error", "_errors", "_f", "_outer", "_prefetch")

    def __init__(
        self,
        source: Publisher[Any],
        f: Callable[[Any], Publisher[B]],
        concurrency: int,
        prefetch: int,
        *,
        delay_error: bool,
    ) -> None:
        self._f = f
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._delay_error = delay_error
        self._branches: deque[Inlet[B]] = deque()
        self._errors: list[Exception] = []
        self._outer = self._inlet_of(Tide(concurrency, 1))
        super().__init__((source,), (self._outer,))

    def pull(self, limit: int, /) -> Sequence[B]:
        """Take from each branch in turn; a branch that got nothing is the first in the next pull."""
        self._tend()
        items: list[B] = []
        for _ in range(len(self._branches)):
            items += self._branches[0].take(limit - len(items))
            self._branches.rotate(-1)
            if len(items) == limit:
                break
        return items

    def outcome(self) -> Outcome | None:
        """Ended if there is no branch, and there will be no other."""
        self._tend()
        if self._errors and not self._delay_error:
            return Failed(self._errors[0])
        outer = self._outer.outcome()
        if self._branches or outer is None:
            return None
        errors = self._errors + ([outer.error] if isinstance(outer, Failed) else [])
        if len(errors) > 1:
            return Failed(ExceptionGroup("several publishers failed", errors))
        return Failed(errors[0]) if errors else COMPLETED

    def release(self) -> None:
        """Cancel the source and all branches."""
        super().release()
        while self._branches:
            self._branches.pop().close()
        self._errors = []

    def _inlet_of(self, tide: Tide) -> Inlet[Any]:
        return Inlet(tide, self._wake, None if self._delay_error else self._abort)

    def _tend(self) -> None:
        """Request more for delivered elements, remove ended branches, and begin others."""
        for branch in tuple(self._branches):
            branch.settle()
            outcome = branch.outcome()
            if outcome is not None:
                self._branches.remove(branch)
                branch.close()
                if isinstance(outcome, Failed):
                    self._errors.append(outcome.error)
        self._outer.settle(len(self._branches))
        while len(self._branches) < self._concurrency and (items := self._outer.take(1)):
            publisher = self._f(items[0])
            require_publisher("the result of the function", publisher)
            inlet = self._inlet_of(Tide(self._prefetch))
            self._branches.append(inlet)
            publisher.subscribe(inlet)


def merge(*others: Publisher[T], prefetch: int = 32, delay_error: bool = False) -> Operator[T, T]:
    """Publish the elements of the publisher and the others, as they come, until all have ended.

    All are subscribed to at once. They are served in turn: none is served twice while another has elements.

    Args:
        others: Any number of publishers.
        prefetch: Most elements of each that are requested and not delivered; more are requested when 75 % of them
            are.
        delay_error: Whether an error waits until all publishers have ended; several errors make an ``ExceptionGroup``.

    Raises:
        ValueError: If ``prefetch`` is not a positive integer.
    """
    flatten: Operator[Any, Any] = flat_map(_as_it_is, 1 + len(others), prefetch, delay_error=delay_error)
    require_publishers(others)
    return lambda source: flatten(from_iterable((source, *others)))


def _as_it_is(publisher: Publisher[T]) -> Publisher[T]:
    return publisher


A = TypeVar("A")
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

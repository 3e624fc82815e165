"""What operators with a queue have in common: a feed that subscribes upstream, and a drain for each subscriber."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from flow.contracts import Publisher, Subscriber
from flow.demand import Tide
from flow.drain import Drain, Outcome
from flow.executors import Executor
from flow.operators.inlet import Inlet
from flow.operators.link import Operator

__all__ = ["InletStage", "Stage", "queued", "staged"]

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class Stage(Generic[B]):
    """A feed with an upstream of its own; a subclass says which, and what there is to pull."""

    __slots__ = ("__weakref__", "_drain")

    def __init__(self) -> None:
        self._drain: Drain[B] | None = None

    def attach(self, drain: Drain[B]) -> None:
        """Note who is to be told that there is something."""
        self._drain = drain

    def open(self) -> None:
        """Subscribe upstream; once, unless the subscription has ended before. Pulls may come earlier."""
        raise NotImplementedError

    def pull(self, limit: int, /) -> Sequence[B]:
        """Give what there is."""
        raise NotImplementedError

    def outcome(self) -> Outcome | None:
        """Say whether it has ended."""
        raise NotImplementedError

    def release(self) -> None:
        """Cancel upstream and forget everything."""
        self._drain = None

    def _wake(self) -> None:
        drain = self._drain
        if drain is not None:
            drain.signal()

    def _abort(self, error: Exception) -> None:
        drain = self._drain
        if drain is not None:
            drain.fail(error)


def staged(
    make: Callable[[Publisher[A]], Stage[B]], executor: Executor | asyncio.AbstractEventLoop | None = None
) -> Operator[A, B]:
    """Make an operator of what makes a stage for each subscriber."""
    return lambda source: _Staged(source, make, executor)


class _Staged(Generic[A, B]):
    __slots__ = ("_executor", "_make", "_source")

    def __init__(
        self,
        source: Publisher[A],
        make: Callable[[Publisher[A]], Stage[B]],
        executor: Executor | asyncio.AbstractEventLoop | None,
    ) -> None:
        self._source = source
        self._make = make
        self._executor = executor

    def subscribe(self, subscriber: Subscriber[B], /) -> None:
        stage = self._make(self._source)
        drain = Drain(subscriber, stage, executor=self._executor)
        stage.attach(drain)
        drain.start()
        if not drain.ended:
            stage.open()


def queued(
    executor: Executor | asyncio.AbstractEventLoop, prefetch: int, low_tide: int | None, *, delay_error: bool
) -> Operator[T, T]:
    """Make the operator that is a queue and nothing else.

    Raises:
        ValueError: If a number is out of its bounds.
    """
    Tide(prefetch, low_tide)
    return staged(lambda source: _Queued(source, Tide(prefetch, low_tide), delay_error=delay_error), executor)


class InletStage(Stage[B], Generic[A, B]):
    """A stage with one inlet. ``_lent`` is how many elements of it the last pull took."""

    __slots__ = ("_inlet", "_lent", "_source")

    def __init__(self, source: Publisher[A], inlet: Inlet[A]) -> None:
        super().__init__()
        self._source: Publisher[A] | None = source
        self._inlet = inlet
        self._lent = 0

    def open(self) -> None:
        """Subscribe to the source."""
        source, self._source = self._source, None
        if source is not None:
            source.subscribe(self._inlet)

    def outcome(self) -> Outcome | None:
        """Ended as the inlet has."""
        self._settle()
        return self._inlet.outcome()

    def release(self) -> None:
        """Cancel upstream, and forget what waits."""
        super().release()
        self._source = None
        self._inlet.close()

    def _settle(self) -> None:
        """What was pulled last has been delivered by now."""
        lent, self._lent = self._lent, 0
        self._inlet.settle(lent)


class _Queued(InletStage[T, T]):
    __slots__ = ()

    def __init__(self, source: Publisher[T], tide: Tide, *, delay_error: bool) -> None:
        super().__init__(source, Inlet(tide, self._wake, None if delay_error else self._abort))

    def pull(self, limit: int, /) -> Sequence[T]:
        self._settle()
        items = self._inlet.take(limit)
        self._lent = len(items)
        return items

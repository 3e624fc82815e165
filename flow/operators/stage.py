"""The common part of operators with a queue: a feed that subscribes upstream, and a drain for each subscriber."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from flow.contracts import Publisher, Subscriber
from flow.demand import Tide
from flow.drain import Drain, Outcome
from flow.executors import AnyExecutor
from flow.operators.inlet import Inlet
from flow.operators.link import Lifted, Operator

__all__ = ["QueueStage", "StageQueue", "staged"]

B = TypeVar("B")
T = TypeVar("T")


class QueueStage(Generic[B]):
    """A feed with inlets of its own; a subclass defines them, and the elements to pull.

    Args:
        sources: The publishers to subscribe to.
        inlets: The subscriber to each source.
    """

    __slots__ = ("__weakref__", "_drain", "_inlets", "_sources")

    def __init__(self, sources: Sequence[Publisher[Any]], inlets: Sequence[Inlet[Any]]) -> None:
        self._drain: Drain[B] | None = None
        self._sources = sources
        self._inlets = inlets

    def serve(self, subscriber: Subscriber[B], executor: AnyExecutor | None = None) -> None:
        """Subscribe upstream on behalf of a subscriber, unless it has already cancelled. Pulls may come earlier."""
        drain = self._drain = Drain(subscriber, self, executor=executor)
        drain.start()
        if not drain.ended:
            sources, self._sources = self._sources, ()
            for source, inlet in zip(sources, self._inlets, strict=False):
                source.subscribe(inlet)

    def pull(self, limit: int, /) -> Sequence[B]:
        """Return available elements."""
        raise NotImplementedError

    def outcome(self) -> Outcome | None:
        """Return the outcome if the stage has ended."""
        raise NotImplementedError

    def release(self) -> None:
        """Cancel upstream and drop every reference."""
        self._drain = None
        inlets, self._inlets, self._sources = self._inlets, (), ()
        for inlet in inlets:
            inlet.close()

    def _wake(self) -> None:
        drain = self._drain
        if drain is not None:
            drain.signal()

    def _abort(self, error: Exception) -> None:
        drain = self._drain
        if drain is not None:
            drain.fail(error)


def staged(
    make: Callable[[Publisher[Any]], QueueStage[B]],
    executor: AnyExecutor | None = None,
) -> Operator[Any, B]:
    """Make an operator from a function that makes a stage for each subscriber."""
    return lambda source: Lifted(lambda subscriber: make(source).serve(subscriber, executor))


class StageQueue(QueueStage[B], Generic[T, B]):
    """A stage with one inlet. It passes elements on unchanged; a subclass may transform them.

    Args:
        source: The publisher to subscribe to.
        tide: Decides when to request more.
        delay_error: Whether an error of the source waits until the buffered elements are delivered.
    """

    __slots__ = ("_inlet",)

    def __init__(self, source: Publisher[T], tide: Tide, *, delay_error: bool = False) -> None:
        self._inlet = Inlet[T](tide, self._wake, None if delay_error else self._abort)
        super().__init__((source,), (self._inlet,))

    def pull(self, limit: int, /) -> Sequence[Any]:
        """Take the oldest elements."""
        self._inlet.settle()
        return self._inlet.take(limit)

    def outcome(self) -> Outcome | None:
        """Return how the inlet ended."""
        self._inlet.settle()
        return self._inlet.outcome()

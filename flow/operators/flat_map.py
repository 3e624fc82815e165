"""The operator `flat_map`."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from flow.contracts import Publisher
from flow.demand import Tide
from flow.drain import COMPLETED, Failed, Outcome
from flow.misuse import require_functions, require_publisher
from flow.operators.inlet import Inlet
from flow.operators.link import Fitting, In, Out, at_least
from flow.operators.stage import QueueStage, staged

__all__ = ["flat_map"]

B = TypeVar("B")


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
    return staged(lambda source: _FlatMap(source, f, concurrency, prefetch, delay_error=delay_error))


class _FlatMap(QueueStage[B]):
    """Subscribes to what ``f`` makes of each element of the source, and takes from all of them in turn.

    Everything but the signals of the publishers happens in the drain's turns: also the subscribing, and the requests
    that an ended publisher makes room for; so no terminal signal calls upstream (rule 2.3), and nothing recurses. The
    elements of the source wait for a branch, so at most ``concurrency`` are requested and not done with.
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
        """Take from each branch in turn; who came last comes first the next time."""
        self._tend()
        items: list[B] = []
        for _ in range(len(self._branches)):
            items += self._branches[0].take(limit - len(items))
            self._branches.rotate(-1)
            if len(items) == limit:
                break
        return items

    def outcome(self) -> Outcome | None:
        """Ended is who has no branch any more, and gets no other."""
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
        """Cancel all of them."""
        super().release()
        while self._branches:
            self._branches.pop().close()
        self._errors = []

    def _inlet_of(self, tide: Tide) -> Inlet[Any]:
        return Inlet(tide, self._wake, None if self._delay_error else self._abort)

    def _tend(self) -> None:
        """Ask for more where elements were delivered, remove branches that ended, and begin others."""
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
            require_publisher("what the function made", publisher)
            inlet = self._inlet_of(Tide(self._prefetch))
            self._branches.append(inlet)
            publisher.subscribe(inlet)

"""The engine of operators that have several publishers at once: a few inlets, and a turn for each."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from flow.contracts import Publisher
from flow.demand import Tide
from flow.drain import COMPLETED, Failed, Outcome
from flow.misuse import require_publisher
from flow.operators.inlet import Inlet
from flow.operators.stage import Stage

__all__ = ["Merging"]

A = TypeVar("A")
B = TypeVar("B")


class _Branch(Generic[B]):
    """One inner publisher, and how many of its elements are being delivered."""

    __slots__ = ("inlet", "lent")

    def __init__(self, inlet: Inlet[B]) -> None:
        self.inlet = inlet
        self.lent = 0


class Merging(Stage[B], Generic[A, B]):
    """Subscribes to what ``f`` makes of each element of the source, and takes from all of them in turn.

    Everything but the signals of the publishers happens in the drain's turns: also the subscribing, and the requests
    that an ended publisher makes room for; so no terminal signal calls upstream (rule 2.3), and nothing recurses.

    Args:
        source: Its elements wait for a branch, so at most ``concurrency`` are requested and not done with.
        f: Called in the drain's turns; it should not block.
        concurrency: Most publishers at once.
        prefetch: Most elements of each that are requested and not delivered.
        delay_error: Whether an error waits for the end of all other publishers.
    """

    __slots__ = (
        "_branches",
        "_concurrency",
        "_delay_error",
        "_errors",
        "_f",
        "_outer",
        "_prefetch",
        "_source",
    )

    def __init__(
        self,
        source: Publisher[A],
        f: Callable[[A], Publisher[B]],
        *,
        concurrency: int,
        prefetch: int,
        delay_error: bool,
    ) -> None:
        super().__init__()
        self._outer = Inlet[A](Tide(concurrency, 1), self._wake, None if delay_error else self._abort)
        self._source: Publisher[A] | None = source
        self._f: Callable[[A], Publisher[B]] = f
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._delay_error = delay_error
        self._branches: deque[_Branch[B]] = deque()
        self._errors: list[Exception] = []

    def open(self) -> None:
        """Subscribe to the source."""
        source, self._source = self._source, None
        if source is not None:
            source.subscribe(self._outer)

    def pull(self, limit: int, /) -> Sequence[B]:
        """Take from each branch in turn; who came last comes first the next time."""
        self._tend()
        items: list[B] = []
        for _ in range(len(self._branches)):
            branch = self._branches[0]
            self._branches.rotate(-1)
            taken = branch.inlet.take(limit - len(items))
            branch.lent = len(taken)
            items += taken
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
        self._source = None
        self._outer.close()
        while self._branches:
            self._branches.pop().inlet.close()
        self._errors = []

    def _tend(self) -> None:
        """Ask for more where elements were delivered, remove branches that ended, and begin others."""
        ended = 0
        for branch in tuple(self._branches):
            lent, branch.lent = branch.lent, 0
            branch.inlet.settle(lent)
            outcome = branch.inlet.outcome()
            if outcome is not None:
                self._branches.remove(branch)
                branch.inlet.close()
                ended += 1
                if isinstance(outcome, Failed):
                    self._errors.append(outcome.error)
        self._outer.settle(ended)
        while len(self._branches) < self._concurrency:
            items = self._outer.take(1)
            if not items:
                return
            publisher = self._f(items[0])
            require_publisher("what the function made", publisher)
            inlet = Inlet[B](Tide(self._prefetch), self._wake, None if self._delay_error else self._abort)
            self._branches.append(_Branch(inlet))
            publisher.subscribe(inlet)

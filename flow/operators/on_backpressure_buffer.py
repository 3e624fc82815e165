"""The operator `on_backpressure_buffer`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from flow.contracts import UNBOUNDED, Publisher
from flow.demand import Tide
from flow.drain import Outcome
from flow.errors import Overflowed
from flow.misuse import require_functions
from flow.operators.inlet import Inlet
from flow.operators.link import Fitting, In, present
from flow.operators.stage import QueueStage, staged
from flow.overflow import KEPT, Backlog, Meter, Overflow

__all__ = ["Bounded", "on_backpressure_buffer"]

T = TypeVar("T")


def on_backpressure_buffer(
    capacity: int,
    overflow: Overflow = Overflow.ERROR,
    on_drop: Callable[[In], object] | None = None,
    *,
    meter: Meter | None = None,
) -> Fitting[In, In]:
    """Request everything of upstream, and queue elements beyond the demand.

    An error overtakes queued elements, completion does not.

    Args:
        capacity: Most elements that wait; there is no default. Without effect for LATEST and BUFFER.
        overflow: Which element is discarded when there is one too many; ERROR ends the stream with `Overflowed`.
        on_drop: Called with each discarded element, on upstream's thread; if it raises, the stream ends with that error.
        meter: Counts arriving, waiting and discarded elements, for all subscribers.

    Raises:
        ValueError: If ``capacity`` is not a positive integer, or ``overflow`` is not a policy.
    """
    backlog = partial(Backlog[In], overflow, capacity, meter)
    backlog()  # checks the arguments now, not at the first subscriber
    require_functions(on_drop=on_drop, optional=True)
    return staged(lambda source: Bounded(source, backlog(), on_drop))


class Bounded(QueueStage[T]):
    """A queue that requests everything, so there is nothing to settle."""

    __slots__ = ("_inlet",)

    def __init__(
        self, source: Publisher[T], backlog: Backlog[T], on_drop: Callable[[T], object] | None
    ) -> None:
        self._inlet = _BoundedInlet(backlog, on_drop, Tide(UNBOUNDED), self._wake, self._abort)
        super().__init__((source,), (self._inlet,))

    def pull(self, limit: int, /) -> Sequence[T]:
        """Take the oldest elements."""
        return self._inlet.take(limit)

    def outcome(self) -> Outcome | None:
        """Return how the inlet ended."""
        return self._inlet.outcome()


class _BoundedInlet(Inlet[T]):
    """Discards elements for which there is no room."""

    __slots__ = ("_on_drop",)

    def __init__(self, backlog: Backlog[T], on_drop: Callable[[T], object] | None, *inlet: Any) -> None:
        super().__init__(*inlet)
        self._buffer = backlog
        self._on_drop = on_drop

    def on_next(self, item: T, /) -> None:
        """Queue the element, and discard one if there is no room."""
        present(item, "the element")
        with self._lock:
            if self._subscription is None:
                return
            evicted = self._buffer.put(item)
        if evicted is not KEPT:
            self._let_go(evicted)
        self._wake()

    def on_next_batch(self, items: Sequence[T], /) -> None:
        """Queue the elements one by one: the subscriber may take some in between."""
        for item in items:
            self.on_next(item)

    def take(self, limit: int) -> list[T]:
        """Remove and return the oldest elements, at most ``limit``."""
        with self._lock:
            taken: list[T] = self._buffer.take(limit)
            return taken

    def close(self) -> None:
        """Drop the callback too."""
        super().close()
        self._on_drop = None

    def _let_go(self, item: T) -> None:
        on_drop = self._on_drop
        if self._buffer.overflow is Overflow.ERROR:
            waiting = self._buffer.capacity
            self._fail(Overflowed(waiting + 1, waiting))
        elif on_drop is not None:
            try:
                on_drop(item)
            except Exception as error:  # noqa: BLE001 - a callback that fails must not go unnoticed
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End the stream before upstream does, and cancel upstream without waiting for the subscriber, which may be busy."""
        fail = self._on_failure
        if fail is not None:
            fail(error)
        self.close()

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
    """Request everything of upstream, and let wait what nobody has asked for.

    An error overtakes what waits, completion does not.

    Args:
        capacity: Most elements that wait; there is no default. Without effect for LATEST and BUFFER.
        overflow: Which element goes when there is one too many; ERROR ends the stream with `Overflowed`.
        on_drop: Called with each element that went, on upstream's thread; if it raises, the stream ends with that.
        meter: Counts what comes, waits and goes, for all subscribers.

    Raises:
        ValueError: If the capacity is no positive integer, or the policy none.
    """
    backlog = partial(Backlog[In], overflow, capacity, meter)
    backlog()  # refused now, and not at the first subscriber
    require_functions(on_drop=on_drop, optional=True)
    return staged(lambda source: Bounded(source, backlog(), on_drop))


class Bounded(QueueStage[T]):
    """A queue that requests everything, so nothing is to be settled."""

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
        """Ended as the inlet has."""
        return self._inlet.outcome()


class _BoundedInlet(Inlet[T]):
    """Lets elements go that find no room."""

    __slots__ = ("_on_drop",)

    def __init__(self, backlog: Backlog[T], on_drop: Callable[[T], object] | None, *inlet: Any) -> None:
        super().__init__(*inlet)
        self._buffer = backlog
        self._on_drop = on_drop

    def on_next(self, item: T, /) -> None:
        """Let it wait, or let one go."""
        present(item, "the element")
        with self._lock:
            if self._subscription is None:
                return
            evicted = self._buffer.put(item)
        if evicted is not KEPT:
            self._let_go(evicted)
        self._wake()

    def on_next_batch(self, items: Sequence[T], /) -> None:
        """Take in one after the other: between them the subscriber may take some."""
        for item in items:
            self.on_next(item)

    def take(self, limit: int) -> list[T]:
        """Remove and return the oldest, at most ``limit``."""
        with self._lock:
            taken: list[T] = self._buffer.take(limit)
            return taken

    def close(self) -> None:
        """Forget what is called, too."""
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
            except Exception as error:  # noqa: BLE001 - what drops unheard must not go on
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End although upstream does not; it is cancelled without waiting for the subscriber, who may be busy."""
        fail = self._on_failure
        if fail is not None:
            fail(error)
        self.close()

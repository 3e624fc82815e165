"""The common part of operators with a queue: an inlet that buffers the signals of upstream, and a drain for each subscriber."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from flow.contracts import Publisher, Subscriber, Subscription
from flow.demand import Tide
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.drain.feed import GONE
from flow.executors import AnyExecutor
from flow.operators.link import Lifted, Operator, present, present_all

__all__ = ["Inlet", "QueueStage", "StageQueue", "staged"]


T = TypeVar("T")


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Inlet(Generic[T]):
    """Receives one upstream, on any thread, into a buffer from which the holder of a drain's flag takes.

    At most ``tide.prefetch`` elements are requested, buffered, or taken and not settled: the inlet requests more only
    when `settle` reports finished elements.

    Args:
        tide: Decides when to request more.
        wake: Called outside the lock after every signal; wakes the drain.
        on_failure: Called instead of ``wake`` with the error of upstream; ``None`` if the error waits for buffered elements.
    """

    _tide: Tide  # the holder's own
    _wake: Callable[[], object]
    _on_failure: Callable[[Exception], object] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _buffer: Any = field(default_factory=deque)  # a subclass may use another kind of buffer
    _outcome: Outcome | None = None
    _subscription: Subscription | None = GONE
    _greeted: bool = False
    _lent: int = 0  # taken and not settled; the holder's own

    # Called by upstream.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Accept the first subscription and request as many elements as may be buffered; cancel any other (rule 2.5)."""
        present(subscription, "the subscription")
        with self._lock:
            refused = self._greeted or self._subscription is None
            if not refused:
                self._greeted = True
                self._subscription = subscription
        if refused:
            subscription.cancel()
        else:
            subscription.request(self._tide.prefetch)

    def on_next(self, item: T, /) -> None:
        """Buffer one element."""
        present(item, "the element")
        with self._lock:
            if self._subscription is None:
                return
            self._buffer.append(item)
        self._wake()

    def on_next_batch(self, items: Sequence[T], /) -> None:
        """Buffer several elements; there is room for them, since they were requested."""
        present_all(items)
        with self._lock:
            if self._subscription is None:
                return
            self._buffer.extend(items)
        self._wake()

    def on_error(self, error: Exception, /) -> None:
        """End before the buffered elements, or after them."""
        present(error, "the error")
        on_failure = self._on_failure
        if not self._end(Failed(error)):
            return
        if on_failure is not None:
            on_failure(error)
        else:
            self._wake()

    def on_complete(self) -> None:
        """End after the buffered elements."""
        if self._end(COMPLETED):
            self._wake()

    def _end(self, outcome: Outcome) -> bool:
        with self._lock:
            if self._subscription is None:
                return False
            self._subscription = None
            self._outcome = outcome
            return True

    # Called by the feed, as holder of the drain's flag.

    def __len__(self) -> int:
        """Return the number of buffered elements."""
        return len(self._buffer)

    @property
    def ended(self) -> bool:
        """Whether upstream has ended."""
        return self._outcome is not None

    def take(self, limit: int) -> list[T]:
        """Remove and return the oldest elements, at most ``limit``; they must be settled later."""
        with self._lock:
            buffer = self._buffer
            if limit < len(buffer):
                items = [buffer.popleft() for _ in range(limit)]
            else:
                items = list(buffer)
                buffer.clear()
        self._lent += len(items)
        return items

    def settle(self, left: int = 0) -> None:
        """Report that all taken elements but ``left`` are finished, so that more may come."""
        done = self._lent - left
        if not done:
            return
        self._lent = left
        due = self._tide.consume(done)
        if due:
            with self._lock:
                subscription = self._subscription
            if subscription is not None:
                subscription.request(due)

    def outcome(self) -> Outcome | None:
        """Return how upstream ended, once every element is taken."""
        with self._lock:
            return None if self._buffer else self._outcome

    def close(self) -> None:
        """Cancel upstream unless it has ended, and drop every reference."""
        with self._lock:
            subscription, self._subscription = self._subscription, None
            self._buffer.clear()
            self._wake = _asleep
            self._on_failure = None
        if subscription is not None:
            subscription.cancel()


def _asleep() -> None: ...


B = TypeVar("B")


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

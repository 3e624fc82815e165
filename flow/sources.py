"""Basic publishers. All are cold: each subscriber receives the whole stream from its start (rule 1.11)."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Final, Generic, Never, Protocol, TypeVar, runtime_checkable

from flow.contracts import Publisher, Subscriber
from flow.drain import COMPLETED, Drain, Failed, Feed, Outcome
from flow.executors import AnyExecutor
from flow.misuse import require_functions, require_iterable

__all__ = ["Served", "Source", "empty", "error", "from_iterable", "generate", "never"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Publisher[T_co], Protocol[T_co]):
    """A publisher whose subscribers may name the executor of their signals."""

    def subscribe(self, subscriber: Subscriber[T_co], /, *, executor: AnyExecutor | None = None) -> None:
        """Begin a subscription, with signals on ``executor``, or on the requesting thread if it is ``None``.

        Raises:
            TypeError: If the subscriber is ``None``, or the executor is invalid.
        """
        ...


def from_iterable(iterable: Iterable[T], *, lookahead: bool = True) -> Source[T]:
    """Publish the elements of an iterable; each subscriber iterates anew.

    An iterator can be iterated only once, so its subscribers share its elements; see `generate`. An iterable with a length
    is read in runs of up to 256, any other one element by element. An iterable that raises ends in
    ``on_error``, after the elements before; one that yields ``None`` ends in ``on_error(TypeError)``.

    Args:
        iterable: Iterated on the executor of the subscriber; it should not block.
        lookahead: Whether to read one element more than requested, in order to signal the end without a further request
            (rule 2.9); otherwise only requested elements are read.
    """
    require_iterable("iterable", iterable)
    return _cold(
        lambda: _IterableFeed(lambda: iterable, lookahead=lookahead, shared=isinstance(iterable, Iterator))
    )


def generate(make: Callable[[], Iterable[T]], *, lookahead: bool = True) -> Source[T]:
    """Publish the elements of ``make()``, for example of a generator function; it is called once for each subscriber.

    Its result is closed when the subscription ends, if it has a ``close``.

    Args:
        make: Called, and its result iterated, on the executor of the subscriber.
        lookahead: As in `from_iterable`.
    """
    require_functions(make=make)
    return _cold(lambda: _IterableFeed(make, lookahead=lookahead, shared=False))


def empty() -> Source[Never]:
    """Complete at once, without any request."""
    return _cold(lambda: _Settled(COMPLETED))


def never() -> Source[Never]:
    """Call ``on_subscribe`` and then nothing."""
    return _cold(lambda: _Settled(None))


def error(error: Exception) -> Source[Never]:
    """Fail at once, without any request; every subscriber receives this very object.

    Raises:
        TypeError: If it is not an ``Exception``.
    """
    if not isinstance(error, Exception):
        raise TypeError(f"error: {error!r}; an instance of Exception is expected")
    return _cold(lambda: _Settled(Failed(error)))


class Served(Generic[T]):
    """A source made from a function that serves one subscriber on one executor."""

    __slots__ = ("_serve",)

    def __init__(self, serve: "Callable[[Subscriber[T], AnyExecutor | None], object]") -> None:
        self._serve = serve

    def subscribe(self, subscriber: Subscriber[T], /, *, executor: AnyExecutor | None = None) -> None:
        """Serve the subscriber with the function."""
        self._serve(subscriber, executor)


def _cold(make_feed: Callable[[], Feed[T]]) -> Served[T]:
    return Served(lambda subscriber, executor: Drain(subscriber, make_feed(), executor=executor).start())


class _Settled:
    """A feed without elements and with a fixed outcome."""

    __slots__ = ("_outcome",)

    def __init__(self, outcome: Outcome | None) -> None:
        self._outcome = outcome

    def pull(self, limit: int, /) -> Sequence[Never]:
        return ()

    def outcome(self) -> Outcome | None:
        return self._outcome

    def release(self) -> None:
        self._outcome = None


@runtime_checkable
class _Closeable(Protocol):
    def close(self) -> object: ...


_NOTHING: Final[Iterator[Never]] = iter(())


class _IterableFeed(Generic[T]):
    """Feeds from an iterator; an error is kept until the elements before it are delivered."""

    __slots__ = ("_ahead", "_iterator", "_lookahead", "_make", "_outcome", "_run", "_shared")

    def __init__(self, make: Callable[[], Iterable[T]], *, lookahead: bool, shared: bool) -> None:
        self._make: Callable[[], Iterable[T]] | None = make
        self._iterator: Iterator[T] = _NOTHING
        self._lookahead = lookahead
        self._shared = shared
        self._run = 1
        self._ahead: list[T] = []
        self._outcome: Outcome | None = None

    def pull(self, limit: int, /) -> Sequence[T]:
        items, self._ahead = self._ahead, []
        if not items and self._outcome is None:
            self._take(min(limit, self._run), items)
        return items

    def outcome(self) -> Outcome | None:
        if self._lookahead and self._outcome is None and not self._ahead:
            self._take(1, self._ahead)
        return None if self._ahead else self._outcome

    def release(self) -> None:
        iterator, self._iterator = self._iterator, _NOTHING
        self._make = None
        self._ahead = []
        if not self._shared and isinstance(iterator, _Closeable):
            iterator.close()

    def _take(self, count: int, into: list[T]) -> None:
        """Append at most ``count`` elements; if the iterator raises, the elements before the error stay."""
        try:
            if self._make is not None:
                make, self._make = self._make, None
                iterable = make()
                self._iterator = iter(iterable)
                self._run = 256 if isinstance(iterable, Sized) else 1
            before = len(into)
            # On an exception, extend() keeps what it has appended by then.
            into.extend(islice(self._iterator, count))
            if len(into) - before < count:
                self._outcome = COMPLETED
        except Exception as failure:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
            self._outcome = Failed(failure)

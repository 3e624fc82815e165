"""Publishers as ordinary, blocking iterators."""

import threading
from typing import Generic, Self, TypeVar

from flow.bridges.inbox import EMPTY, Inbox, OnLag, abandon
from flow.contracts import Publisher
from flow.demand import Tide
from flow.executors import require_no_loop
from flow.misuse import require_publisher

__all__ = ["BlockingItems", "iter_blocking"]

T = TypeVar("T")


def iter_blocking(
    publisher: Publisher[T], prefetch: int = 32, low_tide: int | None = None, on_lag: OnLag = "fail"
) -> "BlockingItems[T]":
    """Iterate over a publisher in a thread that may block.

    ::

        with flow.iter_blocking(publisher) as items:
            for item in items:
                ...

    Entering, or else beginning the iteration, subscribes to the publisher. Leaving cancels the subscription, and so
    does ``KeyboardInterrupt`` while waiting. Without ``with``, `BlockingItems.close` cancels it, or the collection of the
    iterator: that happens at the end of a loop that holds its only reference. Signals may come from any thread. The iteration
    raises the error of a stream that fails.

    Where an event loop runs, as in a coroutine or a notebook, subscribing raises ``RuntimeError``: blocking its thread would stop
    the signals for which the iteration waits. There use `flow.aiter`.

    Args:
        publisher: The publisher to iterate over.
        prefetch: First request, and the most elements that are buffered.
        low_tide: How many must be consumed before as many more are requested; ``None`` is 75 % of ``prefetch``, 0
            requests only when all were consumed.
        on_lag: What to do if a lossy publisher has overtaken the iterator: "fail" raises `flow.Lagged`, after which the
            iteration can continue; "skip"; or a callable, called with the number of missed elements.

    Raises:
        ValueError: If a parameter is out of its bounds.
    """
    require_publisher("publisher", publisher)
    awake = threading.Event()
    return BlockingItems(publisher, Inbox(Tide(prefetch, low_tide), awake.set, on_lag), awake)


class BlockingItems(Generic[T]):
    """An iterator that is a context manager; single use, for one thread at a time. See `iter_blocking`."""

    __slots__ = ("_awake", "_entered", "_inbox", "_publisher")

    def __init__(self, publisher: Publisher[T], inbox: Inbox[T], awake: threading.Event) -> None:
        self._inbox = inbox
        self._publisher: Publisher[T] | None = publisher
        self._awake = awake
        self._entered = False

    def __enter__(self) -> Self:
        if self._entered:
            raise RuntimeError("an iterator can be entered only once; call flow.iter_blocking again")
        self._entered = True
        self._subscribe()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        self._subscribe()
        return self

    def __next__(self) -> T:
        self._subscribe()
        try:
            while True:
                item = self._inbox.take()
                if item is not EMPTY:
                    return item  # type: ignore[return-value]  # mypy does not narrow by identity
                if self._inbox.finished:
                    raise StopIteration
                # Set once after each EMPTY, so clearing it here cannot lose a wake-up.
                self._awake.wait()
                self._awake.clear()
        except (KeyboardInterrupt, SystemExit):
            self.close()
            raise

    def __del__(self) -> None:
        abandon(self, self._inbox.close)

    def close(self) -> None:
        """Cancel the subscription; a thread that waits for the next element sees the end. Idempotent."""
        self._publisher = None
        self._inbox.close()

    def _subscribe(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            require_no_loop("flow.iter_blocking", "async with flow.aiter(publisher) as items")
            publisher.subscribe(self._inbox)

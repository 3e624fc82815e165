"""Publishers as ordinary, blocking iterators."""

import _thread
import contextlib
import gc
import sys
import threading
from typing import Generic, Self, TypeVar

from flow.bridges.inbox import EMPTY, Inbox, OnLag
from flow.contracts import Publisher
from flow.demand import Tide
from flow.misuse import require_publisher

__all__ = ["BlockingItems", "iter_blocking"]

T = TypeVar("T")


def iter_blocking(
    publisher: Publisher[T], prefetch: int = 32, low_tide: int | None = None, on_lag: OnLag = "raise"
) -> "BlockingItems[T]":
    """Iterate over a publisher in a thread that may wait.

    ::

        with flow.iter_blocking(publisher) as items:
            for item in items:
                ...

    The publisher is subscribed to on entering, or when the iteration begins. Leaving cancels the subscription, and so
    does ``KeyboardInterrupt`` while waiting. Without ``with`` it is cancelled by `BlockingItems.close`, or when the
    iterator is collected: as soon as a loop is left that alone refers to it. Signals may come from any thread. A stream
    that fails raises its error from the iteration.

    Args:
        publisher: What to iterate over.
        prefetch: Requested at first, and the most that is buffered.
        low_tide: How many must be consumed before as many more are requested; ``None`` is 75 % of ``prefetch``, 0
            requests only when all were consumed.
        on_lag: What happens where a lossy publisher overtook the iterator: "raise" `flow.Lagged`, after which the
            iteration can go on; "skip"; or a callable, called with the number of missed elements.

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
                # Set once for each EMPTY, so there is nothing that clearing could lose.
                self._awake.wait()
                self._awake.clear()
        except (KeyboardInterrupt, SystemExit):
            self.close()
            raise

    def __del__(self) -> None:
        if sys.is_finalizing():
            return  # threads stand still, perhaps with a lock, and every subscription ends here
        # The garbage collector marks an object before it calls this; where a last reference was dropped, that comes after.
        if not gc.is_finalized(self):
            self._inbox.close()  # who drops the iterator holds no lock of ours
            return
        # The collector runs in the middle of anything, also where this thread holds a lock that closing needs. Threads
        # of `threading` need a lock to start as well.
        with contextlib.suppress(RuntimeError):  # no thread can be started any more: the interpreter ends
            _thread.start_new_thread(self._inbox.close, ())

    def close(self) -> None:
        """Cancel the subscription; a thread that waits for the next element finds the end. Idempotent."""
        self._publisher = None
        self._inbox.close()

    def _subscribe(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.subscribe(self._inbox)

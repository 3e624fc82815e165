"""Publishers as iterators: blocking ones, asynchronous ones, and the base of publishers that ``for`` and ``async for`` accept."""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, Self, TypeVar

from flow.bridges.inbox import EMPTY, Inbox, OnLag, abandon
from flow.bridges.loop_tasks import when_closed
from flow.contracts import Publisher, Subscriber
from flow.demand import Tide
from flow.executors import LoopExecutor, loop_executor, require_loop, require_no_loop
from flow.misuse import require_publisher

__all__ = ["AsyncItems", "BlockingItems", "IterablePublisher", "aiter", "iter_blocking"]


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


_BREATH: Final = 256
"""Elements after which an iterator that never had to wait yields to the loop."""


def aiter(  # noqa: A001 - the name users type is flow.aiter
    publisher: Publisher[T], prefetch: int = 32, low_tide: int | None = None, on_lag: OnLag = "fail"
) -> "AsyncItems[T]":
    """Iterate over a publisher in a coroutine.

    ::

        async with flow.aiter(publisher) as items:
            async for item in items:
                ...

    Entering, or else beginning the iteration, subscribes to the publisher. Leaving cancels the subscription, however it
    happens, cancellation of the task included; closing the loop first does so too. Without ``async with``,
    `AsyncItems.aclose` cancels it, or the collection of the iterator: that happens at the end of a loop that holds its only
    reference. Signals may come from any thread. The iteration raises the error of a stream that fails.

    A wait for the next element that is cancelled, as by ``asyncio.wait_for(anext(items), 1)``, loses no element and ends
    nothing: the next wait goes on.

    Args:
        publisher: The publisher to iterate over.
        prefetch: First request, and the most elements that are buffered.
        low_tide: How many must be consumed before as many more are requested; ``None`` is 75 % of ``prefetch``, 0
            requests only when all were consumed.
        on_lag: What to do if a lossy publisher has overtaken the iterator: "fail" raises `flow.Lagged`, after which the
            iteration can continue; "skip"; or a callable, called in the coroutine with the number of missed elements.

    Raises:
        ValueError: If a parameter is out of its bounds.
    """
    require_publisher("publisher", publisher)
    waker = _Waker()
    return AsyncItems(publisher, Inbox(Tide(prefetch, low_tide), waker.wake, on_lag), waker)


class AsyncItems(Generic[T]):
    """An asynchronous iterator that is an asynchronous context manager; single use. See `aiter`."""

    __slots__ = ("_breath", "_entered", "_forget", "_inbox", "_publisher", "_waker")

    def __init__(self, publisher: Publisher[T], inbox: Inbox[T], waker: "_Waker") -> None:
        self._publisher: Publisher[T] | None = publisher
        self._waker = waker
        self._inbox = inbox
        self._forget: Callable[[], None] = _nothing
        self._entered = False
        self._breath = _BREATH

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("an iterator can be entered only once; call flow.aiter again")
        self._entered = True
        self._subscribe()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def __aiter__(self) -> Self:
        return self

    def __del__(self) -> None:
        abandon(self, self._close)

    async def aclose(self) -> None:
        """Cancel the subscription; a task that waits for the next element sees the end. Idempotent."""
        self._close()

    def _subscribe(self) -> None:
        publisher = self._publisher
        if publisher is not None:
            self._waker.attach(
                require_loop("flow.aiter", "on a thread that may block: flow.iter_blocking; else ")
            )
            self._publisher = None
            publisher.subscribe(self._inbox)
            # Not a method of the iterator, which the loop would keep alive.
            self._forget = when_closed(partial(_lost, self._inbox))

    def _close(self) -> None:
        self._publisher = None
        self._forget()
        self._inbox.close()

    async def __anext__(self) -> T:
        try:
            self._subscribe()
            self._breath -= 1
            if not self._breath:
                self._breath = _BREATH
                await asyncio.sleep(0)
            while True:
                # Taken and returned without a suspension in between: cancellation never loses an element.
                item = self._inbox.take()
                if item is not EMPTY:
                    return item  # type: ignore[return-value]  # mypy does not narrow by identity
                if self._inbox.finished:
                    raise StopAsyncIteration
                await self._waker.wait()
                self._breath = _BREATH
        except BaseException:
            # Else the traceback of a cancelled task would keep the iterator of its loop alive, and so the subscription.
            del self
            raise


class _Waker:
    """Wakes a single waiting coroutine from any thread, while its loop is open."""

    __slots__ = ("_executor", "_future", "_set", "_thread")

    def __init__(self) -> None:
        self._executor: LoopExecutor | None = None
        self._future: asyncio.Future[None] | None = None
        self._set = False
        self._thread = 0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop; called on its thread."""
        self._executor = loop_executor(loop)
        self._thread = threading.get_ident()

    def wake(self) -> None:
        """Make the current or the next `wait` return."""
        executor = self._executor
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the inbox
            if executor is None or threading.get_ident() == self._thread:
                self._release()
            else:
                executor.submit(self._release)

    async def wait(self) -> None:
        """Suspend until `wake`; return at once if that was called since the last wait."""
        if self._future is not None:
            raise RuntimeError("another task already waits for the next element")
        if not self._set:
            self._future = asyncio.get_running_loop().create_future()
            try:
                await self._future
            finally:
                self._future = None
        self._set = False

    def _release(self) -> None:
        self._set = True
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)


def _lost(inbox: Inbox[T]) -> None:
    inbox.fail(RuntimeError("the event loop closed before the iteration ended"))


def _nothing() -> None: ...


T_co = TypeVar("T_co", covariant=True)


class IterablePublisher(ABC, Generic[T_co]):
    """The base of publishers that can be iterated over; each loop is a subscription of its own.

    ::

        for item in publisher:
            ...

        async for item in publisher:
            ...

    A loop uses `flow.iter_blocking` or `flow.aiter` with their default prefetch: at most 32 elements are
    requested ahead of it. However the loop is left, its subscription is cancelled at once. If the iterator outlives the loop,
    close it with a context::

        with contextlib.closing(iter(publisher)) as items:
            ...

        async with contextlib.aclosing(aiter(publisher)) as items:
            ...

    A ``for`` loop blocks its thread. In a thread with a running event loop it raises ``RuntimeError``, because it would block
    that loop for ever, on which the signals run. Use ``async for`` there.
    """

    __slots__ = ()

    @abstractmethod
    def subscribe(self, subscriber: Subscriber[T_co], /) -> None:
        """Begin a subscription; see `flow.Publisher`."""

    def __iter__(self) -> BlockingItems[T_co]:
        require_no_loop("a for loop", "async for item in publisher")
        return iter(iter_blocking(self))

    def __aiter__(self) -> AsyncItems[T_co]:
        return aiter(self)

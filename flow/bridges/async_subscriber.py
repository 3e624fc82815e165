"""Subscribers with coroutines as methods."""

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar, runtime_checkable

from flow.bridges.inbox import OnLag
from flow.bridges.iterators import AsyncItems, aiter  # noqa: A004 - the name users type is flow.aiter
from flow.bridges.loop_tasks import begin, begin_on, end, when_closed
from flow.contracts import Publisher
from flow.executors import require_loop, running_loop
from flow.misuse import require_functions
from flow.operators.link import at_least

__all__ = ["AsyncSubscriber", "subscribe_async"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


@runtime_checkable
class AsyncSubscriber(Protocol[T_contra]):
    """A subscriber whose methods are coroutines; the next element comes when ``on_next`` has returned.

    `subscribe_async` requests on its behalf. It may also have a coroutine ``on_lagged(missed)``.
    """

    async def on_next(self, item: T_contra, /) -> None:
        """Receive one element."""
        ...

    async def on_error(self, error: Exception, /) -> None:
        """Receive the failure of the stream: the last signal."""
        ...

    async def on_complete(self) -> None:
        """Receive the end of the stream: the last signal."""
        ...


def subscribe_async(
    publisher: Publisher[T],
    receiver: Callable[[T], Awaitable[object]] | AsyncSubscriber[T],
    *,
    prefetch: int = 32,
    low_tide: int | None = None,
    concurrency: int = 1,
    loop: asyncio.AbstractEventLoop | None = None,
) -> "asyncio.Task[None] | concurrent.futures.Future[None]":
    """Await a coroutine for each element.

    An error of the receiver ends the subscription, and the task with that error. A failure of the stream goes to ``on_error``
    of an `AsyncSubscriber`; with a function, the task raises it. So does it raise `flow.Lagged` where elements are missing.

    Args:
        publisher: Subscribed to when the task begins.
        receiver: A coroutine function, or an `AsyncSubscriber`.
        prefetch: First request, and the most elements that are buffered.
        low_tide: How many elements must be begun before as many more are requested; ``None`` is 75 % of ``prefetch``, 0
            requests only when all were.
        concurrency: Most elements that are processed at a time. With more than 1, they may finish in any order; all
            finish before the end is signalled.
        loop: Runs the coroutines; ``None`` is the running loop.

    Returns:
        A task or future that is done after the last signal; cancelling it cancels the subscription. It is a future of
        ``concurrent.futures`` if ``loop`` does not run on this thread. If the loop closes first, it is cancelled, with the
        subscription and the coroutines in progress, on the thread that closes the loop.

    Raises:
        ValueError: If a number is out of its bounds.
        RuntimeError: If there is no loop, or it is closed.
    """
    at_least("concurrency", concurrency)
    if not isinstance(receiver, AsyncSubscriber):
        require_functions(receiver=receiver)
    if loop is not None and loop.is_closed():
        raise RuntimeError("loop: it is closed; one that runs is expected")
    serving = _Serving(receiver, concurrency)
    items = aiter(publisher, prefetch, low_tide, on_lag=serving.on_lag)
    here = running_loop()
    loop = loop or require_loop("flow.subscribe_async", "name one that runs elsewhere with loop=, or ")
    if loop is here:
        return begin(serving.run(items))
    return begin_on(loop, lambda: serving.run(items))


class _Serving(Generic[T]):
    """One subscription of a receiver."""

    __slots__ = ("_call", "_concurrency", "_missed", "_subscriber", "on_lag")

    def __init__(
        self, receiver: Callable[[T], Awaitable[object]] | AsyncSubscriber[T], concurrency: int
    ) -> None:
        self._subscriber: AsyncSubscriber[T] | None = None
        self._concurrency = concurrency
        self._missed = 0
        self.on_lag: OnLag
        if isinstance(receiver, AsyncSubscriber):
            self._subscriber = receiver
            self._call: Callable[[T], Awaitable[object]] = receiver.on_next
            self.on_lag = self._lagged
        else:
            self._call = receiver
            self.on_lag = "fail"

    async def run(self, items: AsyncItems[T]) -> None:
        """Serve the receiver until the end of the stream."""
        failure: Exception | None = None
        async with items, _Workers(self._concurrency) as workers:
            while True:
                await workers.free()
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    break
                except Exception as error:  # noqa: BLE001 - an error of the stream, signalled below
                    failure = error
                    break
                if self._missed:
                    await self._report_lag()
                await workers.work(self._call, item)
        if self._subscriber is None:
            if failure is not None:
                raise failure
        elif failure is None:
            if self._missed:
                await self._report_lag()
            await self._subscriber.on_complete()
        else:
            await self._subscriber.on_error(failure)

    def _lagged(self, missed: int) -> None:
        self._missed += missed

    async def _report_lag(self) -> None:
        missed, self._missed = self._missed, 0
        handler = getattr(self._subscriber, "on_lagged", None)
        if callable(handler):
            await handler(missed)


class _Workers:
    """A bounded number of concurrent coroutines; the first error cancels the rest, and is raised unwrapped."""

    __slots__ = ("_forget", "_group", "_room", "_tasks")

    def __init__(self, concurrency: int) -> None:
        self._group = asyncio.TaskGroup() if concurrency > 1 else None
        self._room = asyncio.Semaphore(concurrency)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        if self._group is not None:
            await self._group.__aenter__()
            self._forget = when_closed(self._end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._group is None or kind is GeneratorExit:
            return  # the coroutine was closed from outside: it cannot await
        try:
            await self._group.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._forget()

    async def free(self) -> None:
        """Wait until another coroutine may begin."""
        if self._group is not None:
            await self._room.acquire()

    async def work(self, call: Callable[[T], Awaitable[object]], item: T) -> None:
        """Await the coroutine, or start it as a task."""
        if self._group is None:
            await call(item)
        else:
            # The task calls the receiver: a coroutine made here would never be awaited if the task were cancelled first.
            task = self._group.create_task(_called(call, item))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._room.release()

    def _end(self) -> None:
        for task in self._tasks:
            end(task)


async def _called(call: Callable[[T], Awaitable[object]], item: T) -> None:
    await call(item)

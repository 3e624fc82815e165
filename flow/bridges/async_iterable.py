"""Asynchronous iterables as publishers."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar

from flow import hooks
from flow.bridges.loop_tasks import begin
from flow.contracts import Subscriber
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.executors import AnyExecutor, LoopExecutor, loop_executor, require_loop
from flow.sources import Served, Source, error

__all__ = ["from_async_iterable"]

T = TypeVar("T")

_BREATH: Final = 256
"""Elements after which an iterator that never had to wait yields to the loop."""


def from_async_iterable(
    source: AsyncIterable[T] | Callable[[], AsyncIterable[T]],
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    lookahead: bool = False,
) -> Source[T]:
    """Publish the elements of an asynchronous iterable; each subscriber iterates anew, at the pace of its demand.

    ::

        async def ticks():
            ...
            yield tick

        flow.from_async_iterable(ticks).subscribe(subscriber)

    A task of its own iterates for each subscriber, in a copy of the context of ``subscribe``; it begins with the first
    request. Only requested elements are fetched, and at most 256 elements wait for a subscriber whose executor is
    slower than the iteration. An error of the iterator is signalled after the elements before it. When the subscription
    ends, however it does, the task is cancelled and the iterator is closed by its ``aclose``, if it has one; an error of
    ``aclose`` goes to `flow.hooks.on_dropped_error`. If the loop closes first, the task is cancelled too, and the subscriber
    receives a RuntimeError.

    Signals run on the loop of the iterator, unless ``subscribe`` names another executor; with `flow.INLINE` they run on the
    loop or on the requesting thread.

    Args:
        source: A function that makes an asynchronous iterable, such as an asynchronous generator function, or the
            iterable itself. An asynchronous *iterator* serves one subscriber; later subscribers receive an error.
        loop: The loop of the iterator; ``None`` is the one that runs where ``subscribe`` is called.
        lookahead: Whether to fetch one element more than requested, from the very beginning, in order to signal the end
            without a further request (rule 2.9).

    Raises:
        TypeError: If ``source`` is neither of these, or ``loop`` is not an event loop.
    """
    if loop is not None and not isinstance(loop, asyncio.AbstractEventLoop):
        raise TypeError(f"loop: {loop!r}; an event loop or None is expected")
    make: Any = source
    if isinstance(source, AsyncIterable):
        make = _once(source) if isinstance(source, AsyncIterator) else lambda: source
    if callable(make):
        return Served(partial(_serve, make, loop, lookahead))
    raise TypeError(
        f"source: {type(source).__name__}; an asynchronous iterable or a function that makes one is expected;"
        " for what is iterated over with a plain for there is flow.from_iterable"
    )


def _once(iterator: AsyncIterator[T]) -> Callable[[], AsyncIterable[T]]:
    """Return a function that returns the iterator at its first call, and raises at later ones."""
    left = [iterator]

    def make() -> AsyncIterable[T]:
        try:
            return left.pop()
        except IndexError:
            raise RuntimeError(
                "rule 1.10: an asynchronous iterator serves one subscriber, and had one already;"
                " give from_async_iterable a function that makes an iterator for each"
            ) from None

    return make


def _serve(
    make: Callable[[], AsyncIterable[T]],
    loop: asyncio.AbstractEventLoop | None,
    lookahead: bool,
    subscriber: Subscriber[T],
    executor: AnyExecutor | None,
) -> None:
    try:
        loop = loop or require_loop(
            "flow.from_async_iterable", "name one that runs elsewhere with loop=, or "
        )
    except RuntimeError as missing:
        error(missing).subscribe(subscriber, executor=executor)
        return
    feed = _AsyncFeed(make, loop_executor(loop), lookahead)
    drain = Drain(subscriber, feed, executor=loop if executor is None else executor)
    feed.attach(drain)
    drain.start()


@dataclass(slots=True, eq=False, repr=False)
class _AsyncFeed(Generic[T]):
    """Elements on their way from a task on a loop to a drain on any thread.

    Waiting and wanted elements together never exceed the limit of the last pull, or 1 with look-ahead.
    """

    _make: Callable[[], AsyncIterable[T]] | None
    _loop: LoopExecutor
    _lookahead: bool
    _context: contextvars.Context | None = field(default_factory=contextvars.copy_context)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _drain: Drain[T] | None = None
    _arrived: deque[T] = field(default_factory=deque)
    _wanted: int = 0
    _idle: bool = True  # the task waits to be roused, or has not begun
    _released: bool = False
    _outcome: Outcome | None = None
    # Used on the loop only:
    _task: asyncio.Task[None] | None = None
    _awake: asyncio.Event = field(default_factory=asyncio.Event)

    def attach(self, drain: Drain[T]) -> None:
        """Set the drain to signal."""
        self._drain = drain

    # Called by the drain, on any thread.

    def pull(self, limit: int, /) -> Sequence[T]:
        with self._lock:
            arrived = self._arrived
            if arrived or self._outcome is not None:
                return [arrived.popleft() for _ in range(min(limit, len(arrived)))]
            rouse = self._want(limit)
        if rouse:
            self._rouse()
        return ()

    def outcome(self) -> Outcome | None:
        with self._lock:
            if self._arrived:
                return None
            if self._outcome is not None or not self._lookahead or self._wanted:
                return self._outcome
            rouse = self._want(1)
        if rouse:
            self._rouse()
        return None

    def release(self) -> None:
        with self._lock:
            self._released = True
            self._arrived.clear()
            self._drain = None
            self._make = self._context = None
        try:
            self._loop.submit(self._stop)
        except RuntimeError:
            return  # the loop is closed, and has cancelled the task

    def _want(self, count: int) -> bool:
        """Make the task fetch ``count`` elements; the caller holds the lock. Returns whether the task must be roused."""
        self._wanted = count
        rouse, self._idle = self._idle, False
        return rouse

    def _rouse(self) -> None:
        with self._lock:
            context, self._context = self._context, None
        if context is None:
            self._loop.submit(self._awake.set)
        else:
            self._loop.hand_over(self._begin, self._lost, context)

    def _lost(self) -> None:
        self._end(Failed(RuntimeError("the event loop closed before the iteration began")))

    # On the loop.

    def _begin(self) -> None:
        with self._lock:
            make, self._make = self._make, None
        if make is not None:
            self._task = begin(self._iterate(make), self._done)

    def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if task.cancelled():
            # If `release` did not cancel it, the loop did at its end; a subscriber elsewhere would wait for ever.
            self._end(Failed(RuntimeError("the task that iterated was cancelled; has its event loop ended?")))

    async def _iterate(self, make: Callable[[], AsyncIterable[T]]) -> None:
        iterator: AsyncIterator[T] | None = None
        try:
            iterator = _iterator_of(make())
            await self._fetch(iterator)
        except Exception as failure:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
            self._end(Failed(failure))
        else:
            self._end(COMPLETED)
        finally:
            self._task = None  # closing must not be cancelled by `release`
            await self._close(iterator)

    async def _fetch(self, iterator: AsyncIterator[T]) -> None:
        """Fetch wanted elements, until the iterator or the subscription ends."""
        breath = _BREATH
        while True:
            with self._lock:
                self._idle = idle = not self._wanted
                if idle:
                    self._awake.clear()
            breath -= 1
            if idle:
                await self._awake.wait()
            elif not breath:
                await asyncio.sleep(0)
            if idle or not breath:
                breath = _BREATH
            try:
                item = await anext(iterator)
            except StopAsyncIteration:
                return
            with self._lock:
                drain = self._drain
                if self._released or drain is None:
                    return
                self._wanted -= 1
                self._arrived.append(item)
            drain.signal()
            del item, drain

    def _end(self, outcome: Outcome) -> None:
        with self._lock:
            if self._outcome is None:
                self._outcome = outcome
            drain = self._drain
        if drain is not None:
            drain.signal()

    async def _close(self, iterator: object) -> None:
        close: Callable[[], Awaitable[object]] | None = getattr(iterator, "aclose", None)
        if close is None:
            return
        try:
            await close()
        except Exception as failure:  # noqa: BLE001 - the stream has ended, so the subscriber cannot receive it
            hooks.report(failure, self)


def _iterator_of(iterable: object) -> AsyncIterator[Any]:
    if not isinstance(iterable, AsyncIterable):
        if isinstance(iterable, Coroutine):
            iterable.close()
        raise TypeError(
            f"the function of from_async_iterable made {type(iterable).__name__};"
            " an asynchronous iterable is expected, as an asynchronous generator function makes it"
        )
    return aiter(iterable)

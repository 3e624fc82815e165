"""Tasks that end with their event loop, however it ends.

Closing a loop does not cancel its tasks: that is left to `asyncio.run`, or to the program that closes the loop. Nor is there
a hook for the end of a loop. But ``loop.close()`` discards all pending callbacks, timers included, and with them every object
that only a timer references.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import logging
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from flow import forks, hooks
from flow.executors import loop_executor

__all__ = ["begin", "begin_on", "end", "when_closed"]

_log = logging.getLogger("flow")

T = TypeVar("T")

_DAY: Final = 86_400.0
"""Seconds between two calls of the timer. The calls do nothing; but some loops count milliseconds in 32 bits."""


class _LoopEnd:
    """The callbacks for the closing of one loop.

    Only a timer of that loop references this object, so that ``loop.close()`` finalizes it. Until then it references the tasks,
    which a loop itself references weakly.
    """

    __slots__ = ("__weakref__", "_inherited", "calls")

    def __init__(self) -> None:
        self.calls: dict[Callable[[], object], None] = {}
        self._inherited: tuple[object, ...] = ()
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`: the parent's callbacks are not called in the child; its tasks are kept alive untouched."""
        self._inherited, self.calls = (*self._inherited, self.calls), {}

    def __call__(self) -> None:
        """Rearm the timer for another day."""
        self.wait(asyncio.get_running_loop())

    def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        # An empty context: else the timer would keep the context of the first caller.
        loop.call_later(_DAY, self, context=contextvars.Context())

    def __del__(self) -> None:
        while self.calls:
            try:
                call, _ = self.calls.popitem()  # the last first: work begun inside other work ends before it
            except KeyError:
                return  # another thread has just unregistered the only one
            try:
                call()
            except Exception as error:  # noqa: BLE001 - a failing callback must not keep the rest from running
                hooks.report(error, call)
            except BaseException as error:  # noqa: BLE001 - nor may an interrupt, which a finalizer cannot raise
                _log.error("dropped at the end of an event loop", exc_info=error)


_ends: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_LoopEnd]] = (
    weakref.WeakKeyDictionary()
)
"""No lock, which a child of ``fork`` might inherit locked: only the thread of a loop changes the entry of that loop."""


def when_closed(call: Callable[[], object]) -> Callable[[], None]:
    """Register a callback for the closing of the running loop: called once, on the closing thread, the last registered first.

    Returns:
        A function that unregisters it.
    """
    loop = asyncio.get_running_loop()
    known = _ends.get(loop)
    loop_end = None if known is None else known()
    if loop_end is None:
        loop_end = _LoopEnd()
        loop_end.wait(loop)
        _ends[loop] = weakref.ref(loop_end)
    loop_end.calls[call] = None
    return partial(_forget, weakref.ref(loop_end), call)


def _forget(reference: weakref.ref[_LoopEnd], call: Callable[[], object]) -> None:
    loop_end = reference()
    if loop_end is not None:
        loop_end.calls.pop(call, None)


def begin(
    work: Coroutine[Any, Any, T], done: Callable[["asyncio.Task[T]"], object] | None = None
) -> "asyncio.Task[T]":
    """Begin a task on the running loop, and cancel it if the loop closes before it is done.

    Args:
        work: The coroutine of the task.
        done: Called once with the finished or cancelled task: on the loop, or on the thread that closes it.
    """

    def lost() -> None:
        try:
            end(task)
        finally:
            if done is not None:
                done(task)

    def finished(task: "asyncio.Task[T]") -> None:
        forget()
        if done is not None:
            done(task)

    # Registered first: an eager task begins further work while it is created, which must end before it.
    forget = when_closed(lost)
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(finished)
    return task


def end(task: "asyncio.Task[Any]") -> None:
    """Cancel a task whose loop has closed, at once, because it never gets another turn.

    Its coroutine receives the CancelledError that it would have received on the loop; if it then awaits, it is closed.
    An error that it raises goes to `flow.hooks.on_dropped_error`.
    """
    if task.done():
        return
    coroutine = task.get_coro()
    try:
        coroutine.throw(asyncio.CancelledError())
        coroutine.close()
    except (StopIteration, asyncio.CancelledError):
        pass
    except Exception as error:  # noqa: BLE001 - raised by the coroutine; its task is cancelled
        hooks.report(error, task)
    finally:
        # Task.cancel would need a step on the loop. Future.cancel takes effect at once; only then, when it schedules the
        # callbacks, it notices that the loop is closed.
        with contextlib.suppress(RuntimeError):
            asyncio.Future.cancel(task)


def begin_on(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]]
) -> "concurrent.futures.Future[None]":
    """Begin a task on the loop of another thread, as `asyncio.run_coroutine_threadsafe` does, and cancel it with the loop.

    The coroutine is made on the loop. If the loop closes first, it is never made, and the future is cancelled.

    Raises:
        RuntimeError: If the loop is closed.
    """
    future: concurrent.futures.Future[None] = concurrent.futures.Future()

    def cancelled() -> None:
        future.cancel()
        future.set_running_or_notify_cancel()

    def start() -> None:
        if future.cancelled():
            cancelled()
        else:
            task = begin(work(), settle)
            future.add_done_callback(lambda _: stop(task))

    def stop(task: "asyncio.Task[None]") -> None:
        if future.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop has closed, and with it the task
                loop.call_soon_threadsafe(task.cancel)

    def settle(task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            cancelled()
        elif future.set_running_or_notify_cancel():
            error = task.exception()
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    loop_executor(loop).hand_over(start, cancelled)
    return future

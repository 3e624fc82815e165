"""Tasks that end with their event loop, however it ends.

A loop that is closed cancels nothing: that is left to `asyncio.run`, or to the program that closes the loop. Nor has a loop a
hook for its end. But ``loop.close()`` discards all pending callbacks, timers included, and so drops what only a timer holds.
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
"""Seconds between two calls of the timer. It has nothing to do; but some loops count milliseconds in 32 bits."""


class _LoopEnd:
    """What is called when one loop closes.

    Only a timer of that loop holds this object, so that it is finalized in ``loop.close()``. Until then it holds the tasks, to
    which a loop refers weakly.
    """

    __slots__ = ("__weakref__", "_inherited", "calls")

    def __init__(self) -> None:
        self.calls: dict[Callable[[], object], None] = {}
        self._inherited: tuple[object, ...] = ()
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`: what the parent noted is not called in the child, and its tasks are kept as they are."""
        self._inherited, self.calls = (*self._inherited, self.calls), {}

    def __call__(self) -> None:
        """Wait for another day."""
        self.wait(asyncio.get_running_loop())

    def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        # In an empty context: else the timer would keep that of the first caller.
        loop.call_later(_DAY, self, context=contextvars.Context())

    def __del__(self) -> None:
        while self.calls:
            call, _ = self.calls.popitem()  # the last first: what was begun inside something ends before it
            try:
                call()
            except Exception as error:  # noqa: BLE001 - one that fails must not strand the others
                hooks.report(error, call)
            except BaseException as error:  # noqa: BLE001 - nor may an interrupt; a finalizer cannot raise it
                _log.error("dropped at the end of an event loop", exc_info=error)


_ends: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_LoopEnd]] = (
    weakref.WeakKeyDictionary()
)
"""Without a lock, which a child of ``fork`` might inherit locked: only the thread of a loop notes anything for that loop."""


def when_closed(call: Callable[[], object]) -> Callable[[], None]:
    """Have something called when the running loop closes: once, on the thread that closes it, the last noted first.

    Returns:
        What is called to forget it again.
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
    """Begin a task on the running loop, and cancel it when the loop closes before it is done.

    Args:
        work: What the task does.
        done: Called once with the task that is done or cancelled: on the loop, or where that is closed.
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

    # Noted first: an eager task notes what it begins while it is made, and that is to end before it.
    forget = when_closed(lost)
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(finished)
    return task


def end(task: "asyncio.Task[Any]") -> None:
    """Cancel a task whose loop has closed, here and now, since it never gets a turn again.

    Its coroutine gets the CancelledError that it would have got on the loop; if it waits for something then, it is closed. What
    it raises goes to `flow.hooks.on_dropped_error`.
    """
    if task.done():
        return
    coroutine = task.get_coro()
    try:
        coroutine.throw(asyncio.CancelledError())
        coroutine.close()
    except (StopIteration, asyncio.CancelledError):
        pass
    except Exception as error:  # noqa: BLE001 - the coroutine's own, and its task is cancelled
        hooks.report(error, task)
    finally:
        # Task.cancel would wait for a step on the loop. Future.cancel decides now; that the loop is closed is noticed after it,
        # when callbacks are to be scheduled.
        with contextlib.suppress(RuntimeError):
            asyncio.Future.cancel(task)


def begin_on(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]]
) -> "concurrent.futures.Future[None]":
    """Begin a task on a loop of another thread, as `asyncio.run_coroutine_threadsafe` does, and cancel it with the loop.

    The coroutine is made on the loop. If the loop closes before, there is none, and the future is cancelled.

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

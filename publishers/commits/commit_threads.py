"""Threads on which a log commits for coroutines."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

from flow import forks
from flow.executors import loop_executor, require_loop

__all__ = ["CommitThreads"]

_T = TypeVar("_T")
_MOST: Final = 32
"""Most threads, and so most commits of coroutines that share a write: as many as the default pool of a loop has at most."""


class CommitThreads:
    """Runs commits for coroutines, on threads on which nothing else runs.

    Calls of the application that block may occupy the default pool of an event loop, even for ever, so no commit may wait for
    a thread of it. Here it waits for the disk, for room in the queue, and for INLINE subscribers only.

    Threads start on demand and end with `close`.

    Args:
        name: Prefix of the thread names.
    """

    def __init__(self, name: str) -> None:
        self._name = f"{name}-commits"
        self._pool = ThreadPoolExecutor(_MOST, self._name)
        self._closed = False
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`: the threads exist in the parent only."""
        if not self._closed:
            self._pool = ThreadPoolExecutor(_MOST, self._name)

    async def run(self, commit: Callable[[], _T]) -> _T:
        """Runs a commit in the context of the caller; cancelling the wait does not undo it.

        Args:
            commit: The commit. Once the threads are closed, it runs on the event loop: it must raise at once then.
        """
        loop = require_loop("commit_async", "on a thread that may block: commit; else ")
        answer: asyncio.Future[_T] = loop.create_future()

        def tell(done: Future[_T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop_executor(loop).submit(partial(_settle, answer, done))

        try:
            self._pool.submit(copy_context().run, commit).add_done_callback(tell)
        except RuntimeError:
            if not self._closed:
                raise
        else:
            return await answer
        return commit()

    def close(self) -> None:
        """Ends the threads after their last commit. It waits for none of them, because an INLINE subscriber may close the log."""
        self._closed = True
        self._pool.shutdown(wait=False)


def _settle(answer: "asyncio.Future[_T]", done: Future[_T]) -> None:
    if answer.done():  # the wait was cancelled
        return
    error = done.exception()
    if error is None:
        answer.set_result(done.result())
    else:
        answer.set_exception(error)

"""The appends of one connection on their way to their logs: read and submitted on a thread, in order, many at a time."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

from flow.executors import loop_executor
from publishers.commits.group_commit import Commit
from publishers.commits.submission import Submission, Wait
from publishers.errors import PredecessorFailed
from transports.errors import GoingAway
from transports.quotas.pool import Pool, Turn
from transports.server.outcomes import raising

__all__ = ["AppendLane"]

Told = Callable[[Callable[[], Commit]], None]
"""Is given what answers with what became of a transaction, or raises why nothing did."""


@dataclass(slots=True, eq=False)
class _Append:
    run: int
    submit: Callable[[Submission | None], Submission]
    wait: Wait
    told: Told
    alone: bool


class AppendLane:
    """Submits what one connection appends, on the event loop of the connection.

    One thread at a time is busy for it, with all that has come meanwhile; what it submits shares the group commits of its log
    with what others commit. In a run, what comes behind something that was refused is refused.

    Args:
        loop: The event loop.
        pool: Its threads.
        client: Whose share of them it takes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Pool, client: Hashable) -> None:
        self._loop = loop
        self._executor = loop_executor(loop)
        self._pool = pool
        self._client = client
        self._waiting: deque[_Append] = deque()
        self._turn: Turn[Any] | None = None
        self._closed = False
        # Of the thread that is busy for it.
        self._run = -1
        self._last: Submission | None = None
        self._refused = False

    def put(
        self,
        run: int,
        wait: Wait,
        submit: Callable[[Submission | None], Submission],
        told: Told,
        *,
        alone: bool = False,
    ) -> None:
        """Has something submitted.

        Args:
            run: The run that it belongs to.
            wait: How far it is to be when it is told of.
            submit: Submits it, behind what it is given; on a thread.
            told: Called once on the loop, if the loop lives, whatever becomes of it, and of the connection. It must not raise.
            alone: Whether that takes long, so that what was submitted before is told of first.
        """
        self._waiting.append(_Append(run, submit, wait, told, alone))
        self._start()

    def close(self) -> None:
        """Drops what was not begun."""
        self._closed = True
        if self._turn is not None:
            self._turn.cancel()
        self._drop()

    def _drop(self) -> None:
        while self._waiting:
            self._waiting.popleft().told(raising(GoingAway()))

    def _start(self) -> None:
        while self._turn is None and self._waiting:
            appends = self._taken()
            found: list[tuple[_Append, Submission | Exception]] = []
            try:
                self._turn = self._pool.submit(self._client, partial(self._work, appends, found))
            except Exception as error:  # noqa: BLE001 - the pool is closed, or too much waits
                self._refused = True
                while appends:  # not to be submitted by a turn that was queued all the same
                    appends.popleft().told(raising(error))
                continue  # with what is behind them, which else nothing would start
            done = asyncio.wrap_future(self._turn.result, loop=self._loop)
            done.add_done_callback(partial(self._done, appends, found))

    def _taken(self) -> deque[_Append]:
        """What one thread is to submit: everything up to the first that is to be alone, or that one."""
        taken = deque([self._waiting.popleft()])
        while self._waiting and not (taken[-1].alone or self._waiting[0].alone):
            taken.append(self._waiting.popleft())
        return taken

    def _work(
        self,
        appends: deque[_Append],
        found: list[tuple[_Append, Submission | Exception]],
        turn: Turn[Any],
    ) -> None:
        """On a thread: takes appends one by one, so that what is left was not begun."""
        while appends:
            turn.check()
            append = appends.popleft()
            if append.run != self._run:
                self._run, self._last, self._refused = append.run, None, False
            try:
                if self._refused:
                    raise PredecessorFailed
                submission = self._last = append.submit(self._last)
            except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this run only
                self._refused = True
                found.append((append, error))
            else:
                found.append((append, submission))

    def _done(
        self,
        appends: deque[_Append],
        found: list[tuple[_Append, Submission | Exception]],
        done: "asyncio.Future[None]",
    ) -> None:
        self._turn = None
        if not done.cancelled():
            done.exception()  # looked at: what was not begun is told of below
        for append, result in found:
            if isinstance(result, Submission):
                result.future(append.wait).add_done_callback(partial(self._arrived, append))
            else:
                append.told(raising(result))
        for append in appends:
            append.told(raising(GoingAway()))
        if self._closed:
            self._drop()
        self._start()

    def _arrived(self, append: _Append, future: Any) -> None:
        """On a thread of the log."""
        try:
            self._executor.submit(partial(append.told, future.result))
        except RuntimeError:
            return  # the loop is closed, and with it everything that could be told

"""The appends of one connection on their way to their logs: read and submitted on a thread, in order, in batches."""

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

Answered = Callable[[Callable[[], Commit]], None]
"""Called with a function that returns the commit, or raises the reason why the transaction failed."""


@dataclass(slots=True, eq=False)
class _Append:
    payer: Hashable
    run: int
    submit: Callable[[Submission | None], Submission]
    wait: Wait
    answered: Answered
    alone: bool


class AppendLane:
    """Submits the appends of one connection; its methods run on the event loop of the connection.

    At most one thread at a time works for the lane, on every append that is waiting. The submissions share group commits
    with the other writers of their log. Within a run, an append behind a refused append is refused as well.

    Args:
        loop: The event loop.
        pool: The threads that submit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Pool) -> None:
        self._loop = loop
        self._executor = loop_executor(loop)
        self._pool = pool
        self._waiting: deque[_Append] = deque()
        self._turn: Turn[Any] | None = None
        self._closed = False
        # State of the thread that works for the lane.
        self._run = -1
        self._last: Submission | None = None
        self._refused = False

    def put(
        self,
        payer: Hashable,
        run: int,
        wait: Wait,
        submit: Callable[[Submission | None], Submission],
        answered: Answered,
        *,
        alone: bool = False,
    ) -> None:
        """Queues an append.

        Args:
            payer: Who is charged for the thread.
            run: The run that the append belongs to.
            wait: How far the append must have progressed before it is answered.
            submit: Submits the append behind the submission that it receives; runs on a thread.
            answered: Called exactly once on the loop, unless the loop is closed, whatever happens to the append or the
                connection. It must not raise.
            alone: Whether the append takes long, so that a thread handles it separately and earlier appends are answered
                first.
        """
        self._waiting.append(_Append(payer, run, submit, wait, answered, alone))
        self._start()

    def close(self) -> None:
        """Drops the appends that no thread has begun."""
        self._closed = True
        if self._turn is not None:
            self._turn.cancel()
        self._drop()

    def _drop(self) -> None:
        while self._waiting:
            self._waiting.popleft().answered(raising(GoingAway()))

    def _start(self) -> None:
        while self._turn is None and self._waiting:
            appends = self._taken()
            found: list[tuple[_Append, Submission | Exception]] = []
            try:
                payer = appends[0].payer
                self._turn = self._pool.submit(payer, partial(self._work, appends, found), payer=payer)
            except Exception as error:  # noqa: BLE001 - the pool is closed, or too much waits
                self._refused = True
                while appends:  # a turn that was queued in spite of the error must find nothing to submit
                    appends.popleft().answered(raising(error))
                continue  # appends that arrived behind these would never start otherwise
            done = asyncio.wrap_future(self._turn.result, loop=self._loop)
            done.add_done_callback(partial(self._done, appends, found))

    def _taken(self) -> deque[_Append]:
        """Returns the appends for one thread: everything up to the first ``alone`` append, or that append."""
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
        """Runs on a thread; removes each append before it submits it, so that what remains was not begun."""
        while appends:
            turn.check()
            append = appends.popleft()
            if append.run != self._run:
                self._run, self._last, self._refused = append.run, None, False
            try:
                if self._refused:
                    raise PredecessorFailed
                submission = self._last = append.submit(self._last)
            except Exception as error:  # noqa: BLE001 - any error concerns only this run
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
            done.exception()  # retrieved for asyncio; appends that were not begun are answered below
        for append, result in found:
            if isinstance(result, Submission):
                result.future(append.wait).add_done_callback(partial(self._arrived, append))
            else:
                append.answered(raising(result))
        for append in appends:
            append.answered(raising(GoingAway()))
        if self._closed:
            self._drop()
        self._start()

    def _arrived(self, append: _Append, future: Any) -> None:
        """Runs on a thread of the log."""
        try:
            self._executor.submit(partial(append.answered, future.result))
        except RuntimeError:
            return  # the loop is closed, so no connection is left to answer

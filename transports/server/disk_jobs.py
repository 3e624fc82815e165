"""Work that reads the disk, away from the event loop: one job at a time per connection, in order."""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from publishers.errors import PenstockError
from transports.protocol.connection import WireEntry
from transports.quotas.pool import Pool, Turn

__all__ = ["DiskJobs"]

Then = Callable[[Callable[[], Any]], None]
"""Called with a function that returns the result of the work, or raises its error."""


@dataclass(slots=True, eq=False)
class _Job:
    pool: Pool
    work: Callable[[], Any]
    then: Then
    wanted: bool = True
    turn: Turn[Any] | None = None

    def forget(self) -> None:
        """Discards the result. A job that has begun occupies the connection's one thread until it is done."""
        self.wanted = False
        if self.turn is not None:
            self.turn.cancel()


class DiskJobs:
    """The jobs of one connection, on its event loop. A connection occupies at most one thread, whatever it asks for.

    Each job belongs to an entry of the connection and is discarded with it. The number of waiting jobs is thus at most the
    number of entries, which ``Limits.subscriptions`` bounds, and no job starts for an operation that has ended.

    Args:
        loop: The event loop.
        client: The client to which the pools charge the threads.
        payer: Returns who pays for their processor time at the moment.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, client: Hashable, payer: Callable[[], Hashable]
    ) -> None:
        self._loop = loop
        self._client = client
        self._payer = payer
        self._waiting: dict[WireEntry, _Job] = {}  # in order of arrival
        self._running: tuple[WireEntry, _Job] | None = None
        self._closed = False

    def send(self, pool: Pool, entry: WireEntry, work: Callable[[], Any], then: Then) -> bool:
        """Queues work for a thread. Returns whether it will run; after ``close`` nothing runs.

        Args:
            pool: The pool that supplies the thread.
            entry: The entry that needs the work; an entry has at most one job.
            work: The work; runs on the thread.
            then: Called on the loop with the result, but not after ``forget`` or ``close``. It must not raise.
        """
        if not self._closed:
            self._waiting[entry] = _Job(pool, work, then)
            self._next()
        return not self._closed

    def forget(self, entry: WireEntry) -> None:
        """Drops the job of an entry if it has not begun; otherwise discards its result."""
        self._waiting.pop(entry, None)
        if self._running is not None and self._running[0] is entry:
            self._running[1].forget()

    def close(self) -> None:
        """Discards every job and accepts no more."""
        self._closed = True
        self._waiting.clear()
        if self._running is not None:
            self._running[1].forget()

    def _next(self) -> None:
        if self._running is not None or not self._waiting:
            return
        entry = next(iter(self._waiting))
        job = self._waiting.pop(entry)
        self._running = entry, job
        try:
            job.turn = job.pool.submit(self._client, lambda _: job.work(), payer=self._payer())
            result = job.turn.result
        except PenstockError as error:
            result = Future()
            result.set_exception(error)
        asyncio.wrap_future(result, loop=self._loop).add_done_callback(partial(self._done, job))

    def _done(self, job: _Job, done: "asyncio.Future[Any]") -> None:
        self._running = None
        if not done.cancelled():
            done.exception()  # retrieved, so that asyncio does not report it as never retrieved
        if job.wanted:
            job.then(done.result)
        self._next()

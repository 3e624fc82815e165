"""Work that reads the disk, away from the event loop: one piece at a time for a connection, in order."""

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
"""Is given what answers with what the work returned, or raises what it raised."""


@dataclass(slots=True, eq=False)
class _Job:
    pool: Pool
    work: Callable[[], Any]
    then: Then
    wanted: bool = True
    turn: Turn[Any] | None = None

    def forget(self) -> None:
        """The result is not wanted any more. What has begun keeps the connection's one thread until it is done."""
        self.wanted = False
        if self.turn is not None:
            self.turn.cancel()


class DiskJobs:
    """The jobs of one connection, on its event loop; one connection keeps one thread busy, whatever it asks for.

    Each job belongs to an entry of the connection and is forgotten with it. So no more jobs wait than the
    connection has entries, which ``Limits.subscriptions`` bounds, and none runs for an operation that ended before.

    Args:
        loop: The event loop.
        client: Whose share of the threads they take.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, client: Hashable) -> None:
        self._loop = loop
        self._client = client
        self._waiting: dict[WireEntry, _Job] = {}  # in the order in which they came
        self._running: tuple[WireEntry, _Job] | None = None
        self._closed = False

    def send(self, pool: Pool, entry: WireEntry, work: Callable[[], Any], then: Then) -> bool:
        """Has something done on a thread; answers whether it will be, as nothing is after ``close``.

        Args:
            pool: Whose thread.
            entry: What it is for; an entry has one job.
            work: What is to be done there.
            then: Called on the loop with the result; not after ``forget`` or ``close``. It must not raise.
        """
        if not self._closed:
            self._waiting[entry] = _Job(pool, work, then)
            self._next()
        return not self._closed

    def forget(self, entry: WireEntry) -> None:
        """Drops the job of an entry if it has not begun, and tells nothing of it if it has."""
        self._waiting.pop(entry, None)
        if self._running is not None and self._running[0] is entry:
            self._running[1].forget()

    def close(self) -> None:
        """Forgets every job, and takes no more."""
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
            job.turn = job.pool.submit(self._client, lambda _: job.work())
            result = job.turn.result
        except PenstockError as error:
            result = Future()
            result.set_exception(error)
        asyncio.wrap_future(result, loop=self._loop).add_done_callback(partial(self._done, job))

    def _done(self, job: _Job, done: "asyncio.Future[Any]") -> None:
        self._running = None
        if not done.cancelled():
            done.exception()  # looked at, so that it is not reported as forgotten
        if job.wanted:
            job.then(done.result)
        self._next()

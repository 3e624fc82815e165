"""Work that reads the disk, away from the event loop: one piece at a time for a connection, in order."""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from publishers.errors import PenstockError
from transports.protocol.connection import Entry
from transports.quotas.pool import Pool, Turn

__all__ = ["DiskJobs"]


@dataclass(slots=True, eq=False)
class _Errand:
    pool: Pool
    work: Callable[[], Any]
    then: Callable[[Any, BaseException | None], None]
    wanted: bool = True
    turn: Turn[Any] | None = None

    def forget(self) -> None:
        """Nobody wants it any more. What has begun keeps the connection's one thread until it is done."""
        self.wanted = False
        if self.turn is not None:
            self.turn.cancel()


class DiskJobs:
    """The errands of one connection, on its event loop; one connection keeps one thread busy, whatever it asks for.

    Each errand belongs to an entry of the connection and is forgotten with it. So no more errands wait than the
    connection has entries, which ``Limits.subscriptions`` bounds, and none runs for an operation that ended before.

    Args:
        loop: The event loop.
        client: Whose share of the threads they take.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, client: Hashable) -> None:
        self._loop = loop
        self._client = client
        self._waiting: dict[Entry, _Errand] = {}  # in the order in which they came
        self._running: tuple[Entry, _Errand] | None = None
        self._closed = False

    def send(
        self,
        pool: Pool,
        entry: Entry,
        work: Callable[[], Any],
        then: Callable[[Any, BaseException | None], None],
    ) -> None:
        """Has something done on a thread.

        Args:
            pool: Whose thread.
            entry: Whom it is for; an entry has one errand.
            work: What is to be done there.
            then: Told on the loop what it returned, or raised; not after ``forget`` or ``close``. It must not raise.
        """
        if not self._closed:
            self._waiting[entry] = _Errand(pool, work, then)
            self._next()

    def forget(self, entry: Entry) -> None:
        """Drops the errand of an entry if it has not begun, and tells nothing of it if it has."""
        self._waiting.pop(entry, None)
        if self._running is not None and self._running[0] is entry:
            self._running[1].forget()

    def close(self) -> None:
        """Forgets every errand, and takes no more."""
        self._closed = True
        self._waiting.clear()
        if self._running is not None:
            self._running[1].forget()

    def _next(self) -> None:
        if self._running is not None or not self._waiting:
            return
        entry = next(iter(self._waiting))
        errand = self._waiting.pop(entry)
        self._running = entry, errand
        try:
            errand.turn = errand.pool.submit(self._client, lambda _: errand.work())
        except PenstockError as error:
            self._running = None
            self._loop.call_soon(self._refused, errand, error)
            return
        running = asyncio.wrap_future(errand.turn.result, loop=self._loop)
        running.add_done_callback(lambda done: self._done(done, errand))

    def _refused(self, errand: _Errand, error: PenstockError) -> None:
        if errand.wanted and not self._closed:
            errand.then(None, error)
        self._next()

    def _done(self, done: "asyncio.Future[Any]", errand: _Errand) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        self._running = None
        if errand.wanted:
            errand.then(None if error else done.result(), error)
        self._next()

"""Threads for work that clients cause: bounded, and shared out fairly among the clients.

A client that asks for much waits for itself. Its share ends also where threads are free, so one more client always finds
one; and a client that leaves takes what it waited for with it, and ends what is running at its next step.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from publishers.errors import TooCostly
from transports.errors import GoingAway
from transports.limits import Limits

__all__ = ["Pool", "Pools", "Turn"]

_T = TypeVar("_T")
_CHEAPER: Final = "to ask again when others have been answered"


@dataclass(slots=True, eq=False, repr=False)
class Turn(Generic[_T]):
    """One piece of work of a client.

    Attributes:
        result: What the work returned or raised; ``GoingAway`` if it was cancelled before it began.
        client: Whose share it takes.
        held: Whether the share is kept beyond the work.
        released: Whether the share has ended; under the lock of the pool.
    """

    _pool: "Pool"
    client: Hashable
    _work: "Callable[[Turn[_T]], _T]"
    held: bool
    result: Future[_T] = field(default_factory=Future)
    released: bool = False
    _cancelled: bool = False

    def check(self) -> None:
        """For the work, between its steps.

        Raises:
            GoingAway: If it was cancelled: its client has left, or the server stops.
        """
        if self._cancelled:
            raise GoingAway

    def cancel(self) -> None:
        """Nobody wants the result any more; from any thread."""
        self._cancelled = True
        # It may be cancelled already by whoever waits for it.
        if self._pool.withdraw(self) and self.result.set_running_or_notify_cancel():
            self.result.set_exception(GoingAway())

    def release(self) -> None:
        """Ends the share of a turn that was held beyond its work; it may be called again, and from any thread."""
        self.held = False
        if self.result.done():
            self._pool.end_share(self)

    def run(self) -> None:
        """Does the work, on a thread of the pool."""
        if not self.result.set_running_or_notify_cancel():
            return
        try:
            self.check()
            found = self._work(self)
        except BaseException as error:  # noqa: BLE001 - it is told to whoever waits, and the thread goes on
            self.result.set_exception(error)
        else:
            self.result.set_result(found)


class Pools:
    """The threads of one server for what its clients ask.

    Attributes:
        preparing: Reads and checks large GraphQL requests and heavy criteria, and compiles these.
        scanning: Answers what may read the disk.
        appending: Reads, checks and encodes what is appended.
        telling: Gathers statistics.
        judging: Finds out who clients are, where that may block.

    Args:
        limits: Bounds of the server.
    """

    def __init__(self, limits: Limits) -> None:
        # To prepare takes the processor only, so one client never gets two threads for it.
        self.preparing = Pool("prepare", limits.prepare_threads, 1, limits.scans_waiting)
        self.scanning = Pool("scan", limits.scan_threads, limits.scan_share, limits.scans_waiting)
        # One that waits for room in the queue of a log keeps no thread from those who read, and no client keeps them all.
        self.appending = Pool(
            "append", limits.append_threads, -(-limits.append_threads // 2), limits.scans_waiting
        )
        self.telling = Pool("tell", 1, 1, limits.scans_waiting)
        most = limits.authenticate_threads
        self.judging = Pool("judge", most, -(-most // 2), limits.scans_waiting)

    def close(self) -> None:
        """Ends what runs at its next step, and takes nothing more."""
        self.telling.close()
        self.appending.close()
        self.judging.close()
        self.preparing.close()
        self.scanning.close()

    def statistics(self) -> dict[str, int]:
        """What runs and what waits."""
        return {
            "preparing": self.preparing.running,
            "scanning": self.scanning.running,
            "judging": self.judging.running,
            "waiting": self.preparing.waiting + self.scanning.waiting + self.judging.waiting,
            "held": self.scanning.held,
        }


class Pool:
    """Runs the work of clients, in turns.

    Threads are started on need and end when nothing waits, so an idle pool has none. They are daemons: what cannot be
    ended keeps no process from ending.

    Attributes:
        waiting: Pieces of work that wait for a thread or for their share.

    Args:
        name: What its threads are called.
        threads: Most threads.
        share: Most pieces of work of one client that run, or whose answers are being taken, at a time.
        waiting: Most pieces of work that wait: option ``scans_waiting``.
    """

    def __init__(self, name: str, threads: int, share: int, waiting: int) -> None:
        self._name = name
        self._threads = threads
        self._share = share
        self._most = waiting
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[Turn[Any]]] = {}
        self._ready: dict[
            Hashable, None
        ] = {}  # clients that wait and have something of their share left, in turn
        self._busy: dict[Hashable, int] = {}
        self._running: set[Turn[Any]] = set()
        self.waiting = self._alive = 0
        self._closed = False

    @property
    def running(self) -> int:
        """Pieces of work that run."""
        return len(self._running)

    @property
    def held(self) -> int:
        """Pieces of work that run, or whose answers are being taken."""
        with self._lock:
            return sum(self._busy.values())

    def submit(self, client: Hashable, work: Callable[["Turn[_T]"], _T], *, held: bool = False) -> "Turn[_T]":
        """Has something done for a client.

        Args:
            client: Whose share it takes.
            work: Is given its turn, to ask ``check`` of it between its steps.
            held: Whether the share is kept until ``release``, and not only until the work is done.

        Raises:
            TooCostly: If too much waits already, or the system has no thread for it.
            GoingAway: If the pool is closed.
        """
        turn = Turn(self, client, work, held)
        with self._lock:
            if self._closed:
                raise GoingAway
            if self.waiting >= self._most:
                raise TooCostly(
                    "scans_waiting", self.waiting + 1, self._most, _CHEAPER, what="requests that wait", left=0
                )
            self._queues.setdefault(client, deque()).append(turn)
            self.waiting += 1
            self._rank(client)
            starts = self._counts_one_more()
        if starts:
            try:
                self._start()
            except RuntimeError:
                if self.withdraw(turn):  # else a thread has taken it that began meanwhile
                    raise TooCostly("threads of the system", 1, 0, _CHEAPER, what="threads", left=0) from None
        return turn

    async def run(self, client: Hashable, work: Callable[[], _T]) -> _T:
        """What some work for a client returns.

        Raises:
            TooCostly: As ``submit``.
            GoingAway: If the pool is closed, or was before the work began.
        """
        turn = self.submit(client, lambda _: work())
        try:
            return await asyncio.wrap_future(turn.result)
        finally:
            turn.cancel()

    def close(self) -> None:
        """Withdraws what waits, ends what runs at its next step, and takes nothing more."""
        with self._lock:
            self._closed = True
            turns = [turn for queue in self._queues.values() for turn in queue] + list(self._running)
        for turn in turns:
            turn.cancel()

    # Under the lock.

    def _counts_one_more(self) -> bool:
        """Whether a thread is to be started, which then counts."""
        starts = bool(self._ready) and self._alive < self._threads
        self._alive += starts
        return starts

    def _rank(self, client: Hashable) -> None:
        """Notes whether a client is to be served."""
        if client in self._queues and self._busy.get(client, 0) < self._share:
            self._ready.setdefault(client)
        else:
            self._ready.pop(client, None)

    def _drop(self, turn: Turn[Any]) -> None:
        queue = self._queues[turn.client]
        queue.remove(turn)
        self.waiting -= 1
        if not queue:
            del self._queues[turn.client]

    # Anywhere.

    def withdraw(self, turn: Turn[Any]) -> bool:
        """Takes back what has not begun; answers whether it had not."""
        with self._lock:
            if turn not in self._queues.get(turn.client, ()):
                return False
            self._drop(turn)
            turn.released = True  # it never took a share
            self._rank(turn.client)
            return True

    def end_share(self, turn: Turn[Any]) -> None:
        """Gives a client back what a turn took of its share; once for each turn."""
        with self._lock:
            if turn.released:
                return
            turn.released = True
            client = turn.client
            self._busy[client] -= 1
            if not self._busy[client]:
                del self._busy[client]
            self._rank(client)
            starts = self._counts_one_more()
        if starts:
            self._start()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._serve, name=f"penstock-{self._name}", daemon=True).start()
        except RuntimeError:  # no thread is to be had; what waits is taken by the next one
            with self._lock:
                self._alive -= 1
            if not self._alive:
                raise

    # On a thread.

    def _serve(self) -> None:
        while (turn := self._take()) is not None:
            turn.run()
            with self._lock:
                self._running.discard(turn)
            # After the result is there: ``release`` looks for it. Whichever comes second ends the share.
            if not turn.held:
                self.end_share(turn)

    def _take(self) -> Turn[Any] | None:
        with self._lock:
            if not self._ready:
                self._alive -= 1
                return None
            client = next(iter(self._ready))
            turn = self._queues[client][0]
            self._drop(turn)
            self._busy[client] = self._busy.get(client, 0) + 1
            self._ready.pop(client)  # and behind the others, if more of it waits
            self._rank(client)
            self._running.add(turn)
            return turn

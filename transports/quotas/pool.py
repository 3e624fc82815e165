"""Threads for work that clients cause: bounded, and shared fairly among the clients.

A client with much work waits for itself: its share is bounded even if threads are free, so that a further client always
finds one. When a client disconnects, its waiting work is withdrawn, and its running work ends at the next step.

The processor time of work is charged to whoever pays for it. Each busy thread makes the event loop wait for the interpreter, so
of all payers beyond their share of the processor, one at a time has a thread.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar

from publishers.errors import TooCostly
from transports.errors import GoingAway
from transports.limits import SCANS_WAITING, Limits, half
from transports.tcp.shares import SHARES

__all__ = ["APPEND_THREADS", "PREPARE_THREADS", "Pool", "Pools", "Turn"]

_T = TypeVar("_T")
PREPARE_THREADS: Final = 2
"""Most threads of a server that parse and validate large GraphQL requests, and parse and compile heavy criteria. They only use the processor,
under the interpreter's lock: one goes on while the other is a client's that asks for more than others."""

APPEND_THREADS: Final = 4
"""Most threads of a server that parse, validate and encode appends. They wait for room in the queues of logs, and use the processor otherwise."""

_CHEAPER: Final = "to ask again when others have been answered"
_LINGER: Final = 1.0  # seconds that a thread waits for more work


@dataclass(slots=True, eq=False, repr=False)
class Turn(Generic[_T]):
    """One piece of work of a client.

    Attributes:
        result: The result or the error of the work; ``GoingAway`` if it was cancelled before it began.
        client: The client whose share of the threads it takes.
        payer: Who is charged for its processor time; None if nobody is.
        held: Whether the share is kept beyond the work.
        heavy: Whether the payer was beyond its share of the processor when the work began; guarded by the lock of the pool.
        released: Whether the share has ended; guarded by the lock of the pool.
    """

    _pool: "Pool"
    client: Hashable
    _work: "Callable[[Turn[_T]], _T]"
    payer: Hashable
    held: bool
    heavy: bool = False
    result: Future[_T] = field(default_factory=Future)
    released: bool = False
    _cancelled: bool = False

    def check(self) -> None:
        """Called by the work between its steps.

        Raises:
            GoingAway: If the work was cancelled, because its client has disconnected or the server is stopping.
        """
        if self._cancelled:
            raise GoingAway

    def cancel(self) -> None:
        """Cancels the work; from any thread."""
        self._cancelled = True
        # The waiter may have cancelled the future already.
        if self._pool.withdraw(self) and self.result.set_running_or_notify_cancel():
            self.result.set_exception(GoingAway())

    def release(self) -> None:
        """Ends the share of a turn that was held beyond its work. Idempotent; from any thread."""
        self.held = False
        if self.result.done():
            self._pool.end_share(self)

    def run(self) -> None:
        """Does the work, on a thread of the pool."""
        if not self.result.set_running_or_notify_cancel():
            return
        try:
            self.check()
            work = partial(self._work, self)
            found = work() if self.payer is None else SHARES.charged(self.payer, work)
        except BaseException as error:  # noqa: BLE001 - the waiter gets the error, and the thread continues
            self.result.set_exception(error)
        else:
            self.result.set_result(found)


class Pools:
    """The thread pools of one server for work of its clients.

    Attributes:
        preparing: Parses and validates large GraphQL requests and heavy criteria, and compiles the latter.
        scanning: Answers requests that may read the disk.
        appending: Parses, validates and encodes appends.
        gathering: Gathers statistics.
        judging: Authenticates clients with authenticators that may block.

    Args:
        limits: The bounds of the server.
    """

    def __init__(self, limits: Limits) -> None:
        # Preparation only uses the processor, so no client gets two threads for it.
        waiting, processor = SCANS_WAITING, limits.late_share
        self.preparing: Pool = Pool("prepare", PREPARE_THREADS, 1, waiting, processor)
        most = limits.scan_threads
        self.scanning: Pool = Pool("scan", most, half(most), waiting, processor)
        # Apart from scanning: an append that waits for room in the queue of a log occupies no thread of readers, and half
        # the threads remain for other clients.
        self.appending: Pool = Pool("append", APPEND_THREADS, half(APPEND_THREADS), waiting, processor)
        self.gathering: Pool = Pool("gather", 1, 1, waiting, processor)
        most = limits.authenticate_threads
        self.judging: Pool = Pool("judge", most, half(most), waiting, processor)

    def close(self) -> None:
        """Ends running work at its next step, and accepts no more."""
        self.gathering.close()
        self.appending.close()
        self.judging.close()
        self.preparing.close()
        self.scanning.close()

    def statistics(self) -> dict[str, int]:
        """Returns the counts of running and waiting work."""
        return {
            "preparing": self.preparing.running,
            "scanning": self.scanning.running,
            "judging": self.judging.running,
            "waiting": self.preparing.waiting + self.scanning.waiting + self.judging.waiting,
            "held": self.scanning.held,
        }


class Pool:
    """Runs the work of clients, in turns.

    Threads start on demand and end when there was no work for a second, so an idle pool has none. Starting one makes the event
    loop wait until it runs, behind every busy thread, so a thread is not started for each piece of work. They are daemons, so
    work that cannot be ended does not keep the process alive.

    Attributes:
        waiting: The pieces of work that wait for a thread or for their client's share.

    Args:
        name: The name of its threads.
        threads: The most threads.
        share: The most pieces of work of one client that run or whose answers are being sent.
        waiting: The most pieces of work that wait: option ``scans_waiting``.
        processor: The share of the processor beyond which payers have one thread in all: option ``late_share``.
    """

    def __init__(self, name: str, threads: int, share: int, waiting: int, processor: float = 1.0) -> None:
        self._name = name
        self._threads = threads
        self._share = share
        self._most = waiting
        self._processor = processor
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[Turn[Any]]] = {}
        self._ready: dict[Hashable, None] = {}  # clients with waiting work and a free share, in turn
        self._busy: dict[Hashable, int] = {}
        self._running: set[Turn[Any]] = set()
        self._heavy = 0  # how many of these are
        self.waiting: int = 0
        self._alive = 0
        self._called = threading.Condition(self._lock)
        self._idle = self._calls = 0  # threads that wait, and how many of those that waited have been called
        self._closed = False

    @property
    def running(self) -> int:
        """The pieces of work that run."""
        return len(self._running)

    @property
    def held(self) -> int:
        """The pieces of work that run or whose answers are being sent."""
        with self._lock:
            return sum(self._busy.values())

    def submit(
        self,
        client: Hashable,
        work: Callable[["Turn[_T]"], _T],
        *,
        payer: Hashable = None,
        held: bool = False,
    ) -> "Turn[_T]":
        """Queues work of a client.

        Args:
            client: The client whose share of the threads it takes.
            work: The work; receives its turn, whose ``check`` it calls between its steps.
            payer: Who is charged for the processor time of the work; None if nobody is.
            held: Whether the share is kept until ``release`` rather than until the work is done.

        Raises:
            TooCostly: If too much work waits, or the system has no thread for it.
            GoingAway: If the pool is closed.
        """
        turn = Turn(self, client, work, payer, held)
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
                if self.withdraw(turn):  # otherwise a thread that started meanwhile has taken the turn
                    raise TooCostly("threads of the system", 1, 0, _CHEAPER, what="threads", left=0) from None
        return turn

    async def run(self, client: Hashable, work: Callable[[], _T], *, payer: Hashable = None) -> _T:
        """Runs work of a client, and returns its result; arguments as of ``submit``.

        Raises:
            TooCostly: As ``submit``.
            GoingAway: If the pool is closed, or closes before the work begins.
        """
        turn = self.submit(client, lambda _: work(), payer=payer)
        try:
            return await asyncio.wrap_future(turn.result)
        finally:
            turn.cancel()

    def close(self) -> None:
        """Withdraws waiting work, ends running work at its next step, and accepts no more."""
        with self._lock:
            self._closed = True
            self._called.notify_all()
            turns = [turn for queue in self._queues.values() for turn in queue] + list(self._running)
        for turn in turns:
            turn.cancel()

    # Under the lock.

    def _counts_one_more(self) -> bool:
        """Calls a thread that waits; without one, returns whether to start a thread, which is counted at once."""
        ready = self._first() is not None
        if ready and self._idle:
            self._idle -= 1
            self._calls += 1
            self._called.notify()
            return False
        starts = ready and self._alive < self._threads
        self._alive += starts
        return starts

    def _waits(self) -> bool:
        """Waits for work on a thread that found none; returns whether it was called."""
        self._idle += 1
        self._called.wait_for(lambda: self._calls or self._closed, _LINGER)
        if not self._calls:
            self._idle -= 1
            return False
        self._calls -= 1
        return True

    def _first(self) -> Turn[Any] | None:
        """Returns the work that is next, if any may begin."""
        for client in self._ready:
            turn = self._queues[client][0]
            if not (self._heavy and self._is_heavy(turn)):
                return turn
        return None

    def _is_heavy(self, turn: Turn[Any]) -> bool:
        return turn.payer is not None and SHARES.beyond(turn.payer, self._processor)

    def _rank(self, client: Hashable) -> None:
        """Updates whether a client is ready to be served."""
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

    # With or without the lock.

    def withdraw(self, turn: Turn[Any]) -> bool:
        """Withdraws a turn that has not begun; returns whether it had not."""
        with self._lock:
            if turn not in self._queues.get(turn.client, ()):
                return False
            self._drop(turn)
            turn.released = True  # it never occupied a share
            self._rank(turn.client)
            return True

    def end_share(self, turn: Turn[Any]) -> None:
        """Returns the part of a client's share that a turn occupied; once per turn."""
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
        except RuntimeError:  # the system has no thread; another thread of the pool takes the waiting work
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
                self._heavy -= turn.heavy
            # Only after the result is set, which ``release`` checks: whichever comes second ends the share.
            if not turn.held:
                self.end_share(turn)
            del turn  # a thread that waits for more work keeps nothing of the last

    def _take(self) -> Turn[Any] | None:
        with self._lock:
            while (turn := self._first()) is None:
                if self._closed or not self._waits():
                    self._alive -= 1
                    return None
            client = turn.client
            turn.heavy = self._is_heavy(turn)
            self._heavy += turn.heavy
            self._drop(turn)
            self._busy[client] = self._busy.get(client, 0) + 1
            self._ready.pop(client)  # to the end of the line, if more of its work waits
            self._rank(client)
            self._running.add(turn)
            return turn

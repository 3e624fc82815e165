"""Commits for which no thread waits: one thread of the log leads for all of them, and another one tells what became of them."""

import asyncio
import heapq
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from enum import StrEnum
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, Final

from flow import hooks
from publishers.commits.pending import Commit, Pending
from publishers.errors import (
    LogClosed,
    LogError,
    LogFailed,
    NoSuchVersion,
    PenstockError,
    PredecessorFailed,
)

__all__ = ["Arrivals", "Submission", "Submitted", "Wait"]

_ticket: Final = count()


class Wait(StrEnum):
    """How far a transaction has to be before its writer goes on."""

    ACCEPTED = "accepted"
    """It is in the log and has its version: it is no longer refused, but a crash may take it."""
    DURABLE = "durable"
    """A crash does not take it; what that means is said by the option ``sync``."""
    VISIBLE = "visible"
    """Subscribers may be given it."""


class Submission:
    """A transaction on its way; ``ChangeLog.submit`` makes it. To await it is to await ``durable``.

    What is called when a future is done runs on one thread for the whole log, and should be quick. A future that is cancelled
    is done all the same: what was submitted cannot be taken back.

    Attributes:
        accepted: Done when the transaction has its version.
        durable: Done when a crash does not take it.
        visible: Done when subscribers may be given it.
    """

    __slots__ = ("_pending", "accepted", "durable", "visible")

    def __init__(self, pending: Pending | None = None) -> None:
        self._pending = pending
        self.accepted: Future[Commit] = Future()
        self.durable: Future[Commit] = Future()
        self.visible: Future[Commit] = Future()
        for future in (self.accepted, self.durable, self.visible):
            future.set_running_or_notify_cancel()

    @classmethod
    def of(cls, commit: Commit) -> "Submission":
        """One that has arrived already."""
        made = cls()
        for future in (made.accepted, made.durable, made.visible):
            future.set_result(commit)
        return made

    @property
    def pending(self) -> Pending | None:
        """What is in the queue of the log."""
        return self._pending

    def future(self, wait: Wait = Wait.DURABLE) -> "Future[Commit]":
        """The future of a degree."""
        return {Wait.ACCEPTED: self.accepted, Wait.DURABLE: self.durable, Wait.VISIBLE: self.visible}[wait]

    def result(self, wait: Wait = Wait.DURABLE, timeout: float | None = None) -> Commit:
        """Waits until it has come so far.

        Args:
            wait: How far.
            timeout: Most seconds to wait; None for as long as it takes.

        Raises:
            TimeoutError: If it takes longer.
            PenstockError: As ``ChangeLog.commit``.
        """
        return self.future(wait).result(timeout)

    def check(self) -> None:
        """Waits until it is accepted.

        Raises:
            PredecessorFailed: If it was refused.
        """
        if self.accepted.exception() is not None:
            raise PredecessorFailed

    def __await__(self) -> Generator[Any, None, Commit]:
        return asyncio.wrap_future(self.durable).__await__()


class Submitted(Pending):
    """A transaction in the queue for which no thread waits.

    Attributes:
        submission: Where its writer is told what became of it.
    """

    __slots__ = ("_arrivals", "submission")

    def __init__(self, arrivals: "Arrivals", *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.submission = Submission(self)
        self._arrivals = arrivals

    def rouse(self) -> None:
        """It is to lead, or there may be room for it."""
        if self.inside:
            self._arrivals.lead(self)
        else:
            super().rouse()

    def finish(self, error: LogError | None) -> None:
        """Its group has been dealt with."""
        if error is not None:
            self.commit, self.error = None, error
        self.done = True
        self._arrivals.finished(self)


class Arrivals:
    """Tells those who wait for submitted transactions how far these are, and has one thread lead for them.

    Args:
        places: Tells the newest durable and the newest visible version.
        lead: Leads in the place of a submitted transaction.
        name: Of the threads.

    Attributes:
        used: Whether anything was ever submitted.
    """

    def __init__(
        self, places: Callable[[], tuple[int, int]], lead: Callable[[Pending], None], name: str
    ) -> None:
        self.used = False
        self._places = places
        self._lead = lead
        self._name = name
        self._lock = threading.Lock()
        self._leading = _Tasks()
        self._telling = _Tasks()
        self._durable: list[tuple[int, int, Commit, Submission]] = []  # heaps
        self._visible: list[tuple[int, int, Commit, Submission]] = []

    def start(self) -> None:
        """Starts the threads, once."""
        if not self.used:
            with self._lock:
                if not self.used:
                    self._leading.start(f"{self._name}-leads")
                    self._telling.start(f"{self._name}-tells")
                    self.used = True

    def lead(self, pending: Submitted) -> None:
        """Has a transaction lead. It is called under the lock of the queue."""
        self._leading.put(partial(self._lead, pending))

    def accept(self, group: Iterable[Pending]) -> None:
        """The transactions of a group have their versions; called by its leader, which goes on to sync."""
        told = [
            (member.submission.accepted, member.commit)
            for member in group
            if isinstance(member, Submitted) and member.commit is not None and member.error is None
        ]
        if told:
            self._telling.put(partial(_resolve, told))

    def finished(self, member: Submitted) -> None:
        """A submitted transaction was dealt with by its leader."""
        submission, commit = member.submission, member.commit
        transaction = member.transaction
        if transaction is not None and transaction.spool is not None:
            self._telling.put(transaction.discard)
        if member.error is not None or commit is None:
            error = member.error or LogFailed("unknown", "a commit was not finished")
            self._telling.put(partial(_refuse, [submission], error))
            return
        self._telling.put(partial(_resolve, [(submission.accepted, commit)]))
        with self._lock:
            heapq.heappush(self._durable, (commit.version, next(_ticket), commit, submission))
            heapq.heappush(self._visible, (commit.version, next(_ticket), commit, submission))
        self.settle()

    def settle(self) -> None:
        """Tells of what has become durable, and visible."""
        if not (self._durable or self._visible):
            return
        durable, visible = self._places()
        told: list[tuple[Future[Commit], Commit]] = []
        with self._lock:
            while self._durable and self._durable[0][0] <= durable:
                _, _, commit, submission = heapq.heappop(self._durable)
                told.append((submission.durable, commit))
            while self._visible and self._visible[0][0] <= visible:
                _, _, commit, submission = heapq.heappop(self._visible)
                told.append((submission.visible, commit))
        if told:
            self._telling.put(partial(_resolve, told))

    def forget_after(self, version: int) -> None:
        """What is above a version is no longer in the log; called by whoever removes it, before anything else is written."""
        with self._lock:
            gone = [entry for entry in (*self._durable, *self._visible) if entry[0] > version]
            for heap in (self._durable, self._visible):
                heap[:] = [entry for entry in heap if entry[0] <= version]
                heapq.heapify(heap)
        for entry in gone:
            self._telling.put(partial(_refuse, [entry[3]], NoSuchVersion(entry[0], version)))

    def fail(self, error: PenstockError) -> None:
        """Nothing more will come of what is on its way."""
        with self._lock:
            lost = [entry[3] for entry in (*self._durable, *self._visible)]
            self._durable.clear()
            self._visible.clear()
        if lost:
            self._telling.put(partial(_refuse, lost, error))

    def close(self) -> None:
        """Tells the last, and lets the threads end."""
        if self.used:
            self.fail(LogClosed())
            self._leading.put(None)
            self._telling.put(None)


class _Tasks:
    """What one thread does, in order. To give it something never waits, and starts nothing."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def start(self, name: str) -> None:
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(self, task: Callable[[], object] | None) -> None:
        self._queue.put(task)

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            try:
                task()
            except Exception as error:  # noqa: BLE001 - the others are led, and told, all the same
                hooks.report(error, self)


def _resolve(told: Iterable[tuple["Future[Commit]", Commit]]) -> None:
    for future, commit in told:
        if not future.done():
            future.set_result(commit)


def _refuse(submissions: Iterable[Submission], error: PenstockError) -> None:
    for submission in submissions:
        for future in (submission.accepted, submission.durable, submission.visible):
            if not future.done():
                future.set_exception(error)

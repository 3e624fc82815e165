"""Submitted commits: no caller waits, so one thread of the log leads their groups, and another one resolves their futures."""

import asyncio
import contextlib
import heapq
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from enum import StrEnum
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Final

from flow import hooks
from flow.executors import require_loop
from publishers.background import start_thread
from publishers.commits.pending import Commit, CommitStage, Pending
from publishers.errors import (
    LogClosed,
    LogFailed,
    NoSuchVersion,
    PenstockError,
    PredecessorFailed,
)

__all__ = ["Arrivals", "Submission", "Submitted", "Wait"]

_ticket: Final = count()


class Wait(StrEnum):
    """The degree that a commit must reach before its caller continues."""

    ACCEPTED = "accepted"
    """The transaction is in the log and has its version. It can no longer be refused, but a crash may lose it."""
    DURABLE = "durable"
    """A crash does not lose the transaction; the option ``sync`` says which kinds of crash."""
    VISIBLE = "visible"
    """Subscribers may receive the transaction."""


class Submission:
    """A submitted transaction, made by ``ChangeLog.submit``. Awaiting it awaits ``durable``.

    Callbacks of the futures run on one thread for the whole log and should be quick; after the log is closed, they run on the
    thread whose write of the transaction ended later. Cancelling a future does not cancel
    the commit: what was submitted cannot be withdrawn.

    Attributes:
        accepted: Done when the transaction has its version.
        durable: Done when a crash can no longer lose the transaction.
        visible: Done when subscribers may receive the transaction.
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
        """Makes a submission whose commit is already visible."""
        made = cls()
        for future in (made.accepted, made.durable, made.visible):
            future.set_result(commit)
        return made

    @property
    def pending(self) -> Pending | None:
        """The queue entry; None for a submission made by `of`."""
        return self._pending

    def future(self, wait: Wait = Wait.DURABLE) -> "Future[Commit]":
        """Returns the future of a degree."""
        return {Wait.ACCEPTED: self.accepted, Wait.DURABLE: self.durable, Wait.VISIBLE: self.visible}[wait]

    def result(self, wait: Wait = Wait.DURABLE, timeout: float | None = None) -> Commit:
        """Waits until the transaction reaches a degree.

        Args:
            wait: The degree.
            timeout: Longest wait in seconds; None waits without a limit.

        Raises:
            TimeoutError: If the wait takes longer than ``timeout``.
            PenstockError: As ``ChangeLog.commit``.
        """
        return self.future(wait).result(timeout)

    def check(self) -> None:
        """Waits until the transaction is accepted.

        Raises:
            PredecessorFailed: If the transaction was refused.
        """
        if self.accepted.exception() is not None:
            raise PredecessorFailed

    def __await__(self) -> Generator[Any, None, Commit]:
        loop = require_loop("await of a submission", "on a thread that may block: result(); else ")
        return asyncio.wrap_future(self.durable, loop=loop).__await__()


class Submitted(Pending):
    """A queued transaction for which no thread waits.

    Attributes:
        submission: The futures that announce its outcome to the writer.
    """

    __slots__ = ("_arrivals", "submission")

    def __init__(self, arrivals: "Arrivals", *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.submission: Submission = Submission(self)
        self._arrivals = arrivals

    def appoint(self) -> None:
        """Starts the leadership of the entry on the thread of `Arrivals`."""
        self._arrivals.lead(self)

    def finish(self) -> None:
        """Notes that the outcome is known, and resolves the futures."""
        self.stage = CommitStage.DONE
        self._arrivals.finished(self)


class Arrivals:
    """Resolves the futures of submitted transactions, and leads their groups on one thread.

    Args:
        places: Returns the newest durable and the newest visible version.
        lead: Leads the group of a submitted transaction.
        name: Prefix of the thread names.

    Attributes:
        used: Whether any transaction was ever submitted.
    """

    def __init__(
        self, places: Callable[[], tuple[int, int]], lead: Callable[[Pending], None], name: str
    ) -> None:
        self.used: bool = False
        self._places = places
        self._lead = lead
        self._name = name
        self._lock = threading.Lock()
        self._leading = _Tasks()
        self._telling = _Tasks()
        self._closed = False
        self._error: PenstockError | None = None
        self._durable: list[tuple[int, int, Commit, Submission]] = []  # heaps
        self._visible: list[tuple[int, int, Commit, Submission]] = []

    def start(self) -> None:
        """Starts the two threads at the first call, unless the log was closed: then the queue refuses the submission.

        Raises:
            LogExhausted: If the system has no thread.
        """
        if not self.used:
            with self._lock:
                if not self.used and not self._closed:
                    self._leading.start(f"{self._name}-leads")
                    try:
                        self._telling.start(f"{self._name}-tells")
                    except BaseException:
                        self._leading.put(None)
                        raise
                    self.used = True

    def lead(self, pending: Submitted) -> None:
        """Schedules a transaction to lead. The caller holds the lock of the queue."""
        self._leading.put(partial(self._lead, pending))

    def accept(self, group: Iterable[Pending]) -> None:
        """Resolves ``accepted`` of a group whose versions are assigned, and waits for durability and visibility.

        Its leader calls this before it syncs, and before another leader can truncate what it has written.
        """
        resolved: list[tuple[Future[Commit], Commit]] = []
        with self._lock:
            for member in group:
                commit = member.commit
                if isinstance(member, Submitted) and commit is not None and member.error is None:
                    submission = member.submission
                    resolved.append((submission.accepted, commit))
                    heapq.heappush(self._durable, (commit.version, next(_ticket), commit, submission))
                    heapq.heappush(self._visible, (commit.version, next(_ticket), commit, submission))
        if resolved:
            self._telling.put(partial(_resolve, resolved))
            if self._error is not None:
                self.fail(self._error)

    def finished(self, member: Submitted) -> None:
        """Notes that the group of a submitted transaction has ended, and refuses the transaction if it was not committed."""
        transaction = member.transaction
        if transaction is not None and transaction.spool is not None:
            self._telling.put(transaction.discard)
        if member.error is not None or member.commit is None:
            error = member.error or LogFailed("unknown", "a commit was not finished")
            self._telling.put(partial(_refuse, [member.submission], error))
        else:
            self.settle()

    def settle(self) -> None:
        """Resolves the futures of transactions that have become durable or visible."""
        if not (self._durable or self._visible):
            return
        durable, visible = self._places()
        resolved: list[tuple[Future[Commit], Commit]] = []
        with self._lock:
            while self._durable and self._durable[0][0] <= durable:
                _, _, commit, submission = heapq.heappop(self._durable)
                resolved.append((submission.durable, commit))
            while self._visible and self._visible[0][0] <= visible:
                _, _, commit, submission = heapq.heappop(self._visible)
                resolved.append((submission.visible, commit))
        if resolved:
            self._telling.put(partial(_resolve, resolved))

    def forget_after(self, version: int) -> None:
        """Refuses the transactions above a version that are truncated; called by the truncating thread before the next write."""
        with self._lock:
            gone = [entry for entry in (*self._durable, *self._visible) if entry[0] > version]
            for heap in (self._durable, self._visible):
                heap[:] = [entry for entry in heap if entry[0] <= version]
                heapq.heapify(heap)
        for entry in gone:
            self._telling.put(partial(_refuse, [entry[3]], NoSuchVersion(entry[0], version)))

    def fail(self, error: PenstockError) -> None:
        """Fails every future that is not resolved, also those of later groups, because its outcome will never be known."""
        with self._lock:
            self._error = error
            lost = [entry[3] for entry in (*self._durable, *self._visible)]
            self._durable.clear()
            self._visible.clear()
        if lost:
            self._telling.put(partial(_refuse, lost, error))

    def close(self) -> None:
        """Fails the remaining futures, and ends both threads after their last task."""
        with self._lock:
            self._closed = True
        if self.used:
            self.fail(LogClosed())
            self._leading.put(None)
            self._telling.put(None)


class _Tasks:
    """Tasks that one thread runs in order. `put` never starts a thread, and never blocks before the end.

    A leader may finish its group while another leader's group ends the log. So tasks may come after the end; `put` runs them.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._ended = False

    def start(self, name: str) -> None:
        start_thread(threading.Thread(target=self._run, name=name, daemon=True))

    def put(self, task: Callable[[], object] | None) -> None:
        self._queue.put(task)
        if self._ended:
            self._run(block=False)

    def _run(self, *, block: bool = True) -> None:
        with contextlib.suppress(Empty):
            while (task := self._queue.get(block)) is not None:
                try:
                    task()
                except Exception as error:  # noqa: BLE001 - the remaining tasks have to run
                    hooks.report(error, self)
            # Set before the last look: a task that comes after that look is run by `put`.
            self._ended = True
            self._run(block=False)


def _resolve(resolved: Iterable[tuple["Future[Commit]", Commit]]) -> None:
    for future, commit in resolved:
        if not future.done():
            future.set_result(commit)


def _refuse(submissions: Iterable[Submission], error: PenstockError) -> None:
    for submission in submissions:
        for future in (submission.accepted, submission.durable, submission.visible):
            if not future.done():
                future.set_exception(error)

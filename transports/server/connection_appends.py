"""The appends of one connection: runs them on threads, in order, and sends the replies from the event loop."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from publishers.commits.group_commit import Commit
from publishers.commits.submission import Submission
from publishers.errors import PenstockError
from publishers.model.position import Position
from transports.access.principal import Principal
from transports.appends import Appending, Repetitions, cursor_behind, outcome_of, payer_of
from transports.codec.appends import AppendRequest
from transports.codec.changes import read_array
from transports.problems import describe
from transports.protocol.appends import AppendEntry, Write
from transports.protocol.connection import Effect
from transports.protocol.parts import BeginSpool, DropSpool, Spool, TransactionEntry, WriteSpool
from transports.protocol.server import ServerSession
from transports.quotas.pool import Pools
from transports.server.append_lane import AppendLane
from transports.server.disk_jobs import DiskJobs
from transports.server.spool import PartSpool

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["APPENDS", "ConnectionAppends"]

_T = TypeVar("_T")

APPENDS: Final = (Write, BeginSpool, Spool, DropSpool, WriteSpool)
"""The effects that `ConnectionAppends` performs."""


class ConnectionAppends:
    """The appends of one connection; on the event loop.

    Args:
        session: The protocol machine of the connection.
        appending: The appends of the whole server: authorisation, budgets, submission.
        loop: The event loop.
        pools: The thread pools of the server.
        jobs: The disk jobs of the connection.
        client: The key of the client, which is charged if it has no name.
        perform: Performs the effects that the machine returns.
        accepted: Called for each transaction that was committed.
    """

    def __init__(
        self,
        session: ServerSession,
        appending: Appending,
        *,
        loop: asyncio.AbstractEventLoop,
        pools: Pools,
        jobs: DiskJobs,
        client: Hashable,
        perform: Callable[[Iterable[Effect]], object],
        accepted: Callable[[], object],
    ) -> None:
        self._session = session
        self._appending = appending
        self._loop = loop
        self._pools = pools
        self._jobs = jobs
        self._client = client
        self._perform = perform
        self._accepted = accepted
        self._repetitions = Repetitions()
        self._lane = AppendLane(loop, pools.appending)
        self._reached: deque[tuple[AppendEntry, ChangeLog, int]] = (
            deque()
        )  # in the log, and not replied to yet
        self._spools: dict[TransactionEntry, PartSpool] = {}
        self._storing: set[PartSpool] = set()
        self._closed = False

    def close(self) -> None:
        """Drops the appends that have not begun; called when the connection is gone."""
        self._reached.clear()
        self._closed = True
        self._lane.close()

    def do(self, effect: Effect, principal: Principal) -> None:
        """Performs an effect of the machine."""
        match effect:
            case Write(entry, request, changes):
                self._append(entry, request, changes, principal)
            case BeginSpool(transaction):
                self._begin(transaction, principal)
            case Spool(transaction, changes):
                self._spool(transaction, changes)
            case DropSpool(transaction):
                if (spool := self._spools.pop(transaction, None)) is not None:
                    self._discard(spool)
            case WriteSpool(entry, request, transaction):
                self._append_spool(entry, request, transaction, principal)
            case _:
                raise TypeError(f"{effect!r} is no effect of one who appends")

    # Transactions in one message.

    def _append(
        self, entry: AppendEntry, request: AppendRequest, changes: bytes, principal: Principal
    ) -> None:
        appending, nbytes, payer = self._appending, entry.nbytes, payer_of(principal, self._client)
        try:
            log = appending.target(principal, request.log)
            appending.unanswered.take(payer, nbytes)
        except Exception as error:  # noqa: BLE001 - any error concerns this append and those behind it
            self._perform(self._session.append_failed(entry, describe(error)))
            return

        def submit(after: Submission | None) -> Submission:
            return appending.submit(log, principal, request, read_array(changes), after)

        def release() -> None:
            appending.unanswered.give(payer, nbytes)

        self._put(entry, request, log, principal, submit, release, nbytes)

    def _put(
        self,
        entry: AppendEntry,
        request: AppendRequest,
        log: "ChangeLog",
        principal: Principal,
        submit: Callable[[Submission | None], Submission],
        release: Callable[[], object],
        nbytes: int,
        *,
        alone: bool = False,
    ) -> None:
        """Queues a submission and replies with its outcome; calls ``release`` exactly once, on success and on failure."""
        figures = self._appending.figures
        came = figures.come()

        def answered(result: Callable[[], Commit]) -> None:
            release()
            figures.gone()
            try:
                commit = result()
            except Exception:  # noqa: BLE001 - any error concerns this append and those behind it
                answer(result)
                return
            figures.reached(log, came)
            if not self._closed:
                self._reached.append((entry, log, came))
            figures.count(outcome_of(commit), 0 if commit.duplicate else nbytes)
            if commit.duplicate and not commit.version:
                find = partial(self._repetitions.version, log, principal, request)
                if self._jobs.send(self._pools.scanning, entry, find, partial(found, commit)):
                    return
            answer(lambda: commit)

        def found(commit: Commit, version: Callable[[], int]) -> None:
            answer(lambda: commit._replace(version=version()))

        def answer(result: Callable[[], Commit]) -> None:
            try:
                commit = result()
                effects = self._session.appended(entry, commit, cursor_behind(log, commit))
                self._accepted()
            except Exception as error:  # noqa: BLE001 - as above
                effects = self._session.append_failed(entry, describe(error, partial(_token_of, log)))
            self._perform(effects)
            while self._reached and self._reached[0][0].ended:
                _, where, since = self._reached.popleft()
                figures.replied(where, since)

        payer = payer_of(principal, self._client)
        self._lane.put(payer, entry.run, request.wait, submit, answered, alone=alone)

    # Transactions in several parts.

    def _begin(self, transaction: TransactionEntry, principal: Principal) -> None:
        appending = self._appending
        try:
            appending.target(principal, transaction.request.log)  # authorises before any part is stored
            payer = payer_of(principal, self._client)
            spool = PartSpool(
                payer, appending.spooled, appending.memory, appending.unanswered, transaction.held
            )
        except Exception as error:  # noqa: BLE001 - any error concerns only this transaction
            self._perform(self._session.part_failed(transaction, describe(error)))
            return
        self._spools[transaction] = spool
        appending.transactions += 1

    def _spool(self, transaction: TransactionEntry, changes: bytes) -> None:
        spool = self._spools[transaction]
        try:
            stores = spool.put(changes)
        except Exception as error:  # noqa: BLE001 - as above
            self._perform(self._session.part_failed(transaction, describe(error)))
            return
        if not stores:
            self._perform(self._session.spooled(transaction, spool.stored))
        elif spool not in self._storing:
            self._store(transaction, spool)

    def _store(self, transaction: TransactionEntry, spool: PartSpool) -> None:
        """Stores all parts that have arrived; at most one thread per transaction."""

        def done(result: "asyncio.Future[int]") -> None:
            self._storing.discard(spool)
            try:
                effects = self._session.spooled(transaction, result.result())
            except Exception as error:  # noqa: BLE001 - as above
                effects = self._session.part_failed(transaction, describe(error))
            self._perform(effects)
            if not transaction.ended and transaction.waiting:
                self._store(transaction, spool)

        self._storing.add(spool)
        self._run(spool, spool.store).add_done_callback(done)

    def _append_spool(
        self, entry: AppendEntry, request: AppendRequest, transaction: TransactionEntry, principal: Principal
    ) -> None:
        appending, spool = self._appending, self._spools.pop(transaction)
        release = partial(self._discard, spool)
        try:
            log = appending.target(principal, request.log)
        except Exception as error:  # noqa: BLE001 - as above
            release()
            self._perform(self._session.append_failed(entry, describe(error)))
            return

        def submit(after: Submission | None) -> Submission:
            try:
                whole = transaction.annotated(request)
                if spool.small:
                    return appending.submit(log, principal, whole, list(spool.mutations()), after)
                if after is not None:
                    after.check()
                return Submission.of(appending.commit_columns(log, principal, whole, spool.batches()))
            finally:
                spool.close()  # on this thread, because it may wait for the disk

        self._put(entry, request, log, principal, submit, release, spool.nbytes, alone=not spool.small)

    def _discard(self, spool: PartSpool) -> None:
        """Deletes a spool; that of a file on a thread, because it may wait for the disk."""
        self._appending.transactions -= 1
        if spool.small:
            spool.close()
        else:
            self._run(spool, spool.close).add_done_callback(partial(_close, spool))

    def _run(self, spool: PartSpool, work: Callable[[], _T]) -> "asyncio.Future[_T]":
        """Runs ``work`` with a spool on a thread; the future fails if the pool refuses it."""
        try:
            result = self._pools.appending.submit(spool.payer, lambda _: work(), payer=spool.payer).result
        except PenstockError as error:
            result = Future()
            result.set_exception(error)
        return asyncio.wrap_future(result, loop=self._loop)


def _close(spool: PartSpool, tried: "asyncio.Future[None]") -> None:
    """Closes a spool on the event loop if no thread has closed it."""
    spool.close()
    _ = tried.cancelled() or tried.exception()  # read, so that asyncio does not report it as never retrieved


def _token_of(log: "ChangeLog", position: Position) -> str:
    return str(log.token(position))

"""Appends of clients, for every transport: authorisation, producers, and bounds."""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from publishers.commits.expectation import Expected, expected
from publishers.commits.group_commit import Commit
from publishers.commits.label import RemoteProducer
from publishers.commits.submission import Submission, Wait
from publishers.model.position import Position
from publishers.mutations.mutation import columns_of
from publishers.mutations.rows import Mutation
from transports.access.access import Access
from transports.access.grant import LogAction, check_keys
from transports.access.principal import ANONYMOUS, Principal
from transports.codec.appends import AppendRequest
from transports.errors import TooManyProducers
from transports.limits import Limits
from transports.quotas.rates import PrincipalRates
from transports.quotas.shared_bytes import SharedBytes
from transports.telemetry.latency import AppendFigures

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog
    from publishers.wal import Columns

__all__ = ["Appending", "Repetitions", "batches", "cursor_behind", "outcome_of", "payer_of"]

PRODUCER_IDLE: Final = 3_600.0
"""Seconds that a producer counts towards `Limits.producers` after its last append."""

_ROWS: Final = 4096
_BATCH: Final = 2**20  # bytes


class Appending:
    """The shared state of a server for appends.

    Args:
        logs: The logs of the server, by name.
        access: What each principal may do.
        limits: The bounds of the server.

    Attributes:
        unanswered: The bytes of unanswered appends of the whole server.
        spooled: The bytes of transactions that arrive in parts or as lines, likewise.
        memory: The part of these bytes that is kept in memory.
        scanned: The bytes of logs that are scanned for expectations.
        figures: The figures of appends.
        transactions: The number of transactions in parts that are open or being written; for event loops of one thread.
    """

    def __init__(self, logs: "Mapping[str, ChangeLog]", access: Access, limits: Limits) -> None:
        self.unanswered: SharedBytes = SharedBytes(
            "appending_bytes", limits.appending_bytes, "bytes of appends under way"
        )
        self.memory: SharedBytes = SharedBytes(
            "appending_bytes", limits.appending_bytes, "bytes of small transactions"
        )
        self.spooled: SharedBytes = SharedBytes(
            "spooled_bytes",
            limits.spooled_bytes,
            "bytes of transactions that come",
            share=("principal_spooled_bytes", limits.principal_spooled_bytes),
        )
        self.scanned: PrincipalRates = PrincipalRates(
            "expect_bytes_per_second", limits.expect_bytes_per_second, "bytes that are scanned for keys"
        )
        self.transactions = 0
        self.figures: AppendFigures = AppendFigures()
        self._logs = logs
        self._access = access
        self._limits = limits

    def target(self, principal: Principal, name: str | None) -> "ChangeLog":
        """Returns the log that a principal wants to append to.

        Raises:
            Forbidden: If it may not.
            LogNotFound: If there is no such log.
        """
        return self._access.find(self._logs, name, principal, LogAction.WRITE)[1]

    async def check(
        self, principal: Principal, name: str | None, run: Callable[[Callable[[], None]], Awaitable[None]]
    ) -> None:
        """Checks that a principal may append to the log of a name; without a name, to any, because the body may name it.

        Args:
            principal: The principal.
            name: The name of the log in the address; None without one.
            run: Runs on a thread what may call the authoriser for every log.

        Raises:
            Forbidden: If it may not.
            LogNotFound: If there is no such log.
        """
        names = tuple(self._logs) if name is None else ()
        if len(names) < 2:  # the body can only name the one that is meant without it
            self.target(principal, name)
        else:
            await run(partial(self._check_any, principal, names))

    def _check_any(self, principal: Principal, names: Sequence[str]) -> None:
        if not any(self._access.allows(principal, one, LogAction.WRITE) for one in names):
            self._access.grant(principal, names[0], LogAction.WRITE)

    def submit(
        self,
        log: "ChangeLog",
        principal: Principal,
        request: AppendRequest,
        changes: Sequence[Mutation],
        after: Submission | None = None,
    ) -> Submission:
        """Submits a transaction; on a thread, because it encodes, may read the disk, and may wait for room in the queue.

        Args:
            log: The log.
            principal: The principal, to which the producer belongs.
            request: The request.
            changes: Its changes.
            after: The submission without which the transaction must not be written.

        Raises:
            Forbidden: If the principal may not read the keys that the request expects to be unchanged.
            TooCostly: If too much was scanned for such keys.
            TooManyProducers: If the principal would have one producer too many.
            PenstockError: As ``ChangeLog.submit``.
        """
        return log.submit(
            changes,
            meta=request.meta,
            producer=self._producer(log, principal, request),
            durable=request.wait is not Wait.ACCEPTED,
            expect=self._expected(principal, request),
            after=after,
        )

    def commit_columns(
        self, log: "ChangeLog", principal: Principal, request: AppendRequest, batches: "Iterable[Columns]"
    ) -> Commit:
        """Commits a transaction that is too large to be submitted; blocks the calling thread.

        Raises:
            Forbidden, TooCostly, TooManyProducers: As `submit`.
            PenstockError: As ``ChangeLog.commit_columns``.
        """
        return log.commit_columns(
            batches,
            meta=request.meta,
            producer=self._producer(log, principal, request),
            durable=request.wait is not Wait.ACCEPTED,
            expect=self._expected(principal, request),
        )

    def _expected(self, principal: Principal, request: AppendRequest) -> Expected | None:
        """Returns what a request expects, with the budget of the principal.

        Raises:
            Forbidden: If the principal may not read the keys: a refusal would tell that they changed.
        """
        if request.expect is None:
            return None
        found = expected(request.expect)
        if found.keys is not None:
            check_keys(self._access.find(self._logs, request.log, principal)[2], found.keys.pairs)
        return found._replace(spend=partial(self.scanned.spend, principal.name))

    def _producer(
        self, log: "ChangeLog", principal: Principal, request: AppendRequest
    ) -> tuple[RemoteProducer, int] | None:
        """Returns the producer of a transaction, qualified by the principal, and its sequence.

        Raises:
            TooManyProducers: If the principal would have one producer too many.
        """
        if request.producer is None:
            return None
        limits, producer = self._limits, RemoteProducer(principal.name, request.producer)
        if not producer.drawn and log.produced(producer) is None:
            since = datetime.now(UTC) - timedelta(seconds=PRODUCER_IDLE)
            if log.serving.producers_of(principal.name, since) >= limits.producers:
                raise TooManyProducers(limits.producers, PRODUCER_IDLE)
        return producer, request.sequence


class Repetitions:
    """Finds the versions of transactions that a client repeats and the log no longer remembers: all but the last of a producer.

    The result of a search is kept until another is needed, because a client repeats a whole window.
    """

    def __init__(self) -> None:
        self._log: ChangeLog | None = None
        self._producer = RemoteProducer("", "")
        self._known: dict[int, int] = {}

    def version(self, log: "ChangeLog", principal: Principal, request: AppendRequest) -> int:
        """Returns the version; 0 if it lies too far back. Call it on a thread."""
        producer = RemoteProducer(principal.name, request.producer or "")
        if self._log is not log or self._producer != producer or request.sequence not in self._known:
            self._known = log.serving.versions_of(producer, request.sequence)
            self._log, self._producer = log, producer
        return self._known.get(request.sequence, 0)


def payer_of(principal: Principal, client: Hashable) -> Hashable:
    """Returns who is charged for the bytes of a request: the principal, or the address of a client that has no name."""
    return (client,) if principal.name == ANONYMOUS.name else principal.name


def batches(mutations: "Iterable[Mutation]") -> "Iterator[Columns]":
    """Iterates changes as columns, of a bounded number of rows and bytes."""
    rows: list[Mutation] = []
    nbytes = 0
    for one in mutations:
        rows.append(one)
        nbytes += len(one.key) + len(one.body or b"") + len(one.before or b"") + len(one.meta or b"")
        if len(rows) == _ROWS or nbytes >= _BATCH:
            yield columns_of(rows, keyed=True)
            rows, nbytes = [], 0
    if rows:
        yield columns_of(rows, keyed=True)


def outcome_of(commit: Commit) -> str:
    """Returns the outcome of a transaction for the figures."""
    return "DUPLICATE" if commit.duplicate else "WRITTEN"


def cursor_behind(log: "ChangeLog", commit: Commit) -> str | None:
    """Returns the cursor behind a transaction; None if it is a duplicate whose version is no longer known."""
    return str(log.token(Position(commit.version + 1))) if commit.version else None

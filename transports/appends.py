"""Appending for clients, whatever way they come: who may, under which name, and within which bounds."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from publishers.commits.group_commit import Commit
from publishers.commits.label import RemoteProducer
from publishers.commits.submission import Submission, Wait
from publishers.model.position import Position
from publishers.mutations.rows import Mutation
from transports.access.access import Access
from transports.access.grant import LogAction
from transports.access.principal import Principal
from transports.codec.appends import AppendWish
from transports.errors import TooManyProducers
from transports.limits import Limits
from transports.quotas.shared_bytes import DividedBytes, SharedBytes
from transports.telemetry.append_figures import AppendFigures

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog
    from publishers.wal import Columns

__all__ = ["Appending", "Repetitions", "cursor_behind", "outcome_of"]


class Appending:
    """What a server does for those who append.

    Args:
        logs: The logs of the server, by name.
        access: What each principal may do.
        limits: Bounds of the server.

    Attributes:
        unanswered: Bytes of appends that are not answered yet, of the whole server.
        spooled: Bytes of transactions that come in parts, or as lines, likewise.
        memory: Of these the bytes that are kept in memory.
        figures: How they fare.
        transactions: How many transactions in parts are open, or on their way to their log; of event loops of one thread.
    """

    def __init__(self, logs: "Mapping[str, ChangeLog]", access: Access, limits: Limits) -> None:
        self.unanswered = SharedBytes("appending_bytes", limits.appending_bytes, "bytes of appends under way")
        self.memory = SharedBytes("appending_bytes", limits.appending_bytes, "bytes of small transactions")
        self.spooled = DividedBytes(
            "spooled_bytes",
            limits.spooled_bytes,
            "bytes of transactions that come",
            share="principal_spooled_bytes",
            most=limits.principal_spooled_bytes,
        )
        self.transactions = 0
        self.figures = AppendFigures()
        self._logs = logs
        self._access = access
        self._limits = limits

    def target(self, principal: Principal, name: str | None) -> "ChangeLog":
        """The log that a principal wants to append to.

        Raises:
            Forbidden: If it may not.
            LogNotFound: If there is no such log.
        """
        return self._access.find(self._logs, name, principal, LogAction.WRITE)[1]

    def submit(
        self,
        log: "ChangeLog",
        principal: Principal,
        wish: AppendWish,
        changes: Sequence[Mutation],
        after: Submission | None = None,
    ) -> Submission:
        """Submits a transaction; on a thread, as it encodes, and may read the disk and wait for room in the queue.

        Args:
            log: Where to.
            principal: Whose it is, and whose its producer is.
            wish: What is said of it.
            changes: Its changes.
            after: What it must not be written without.

        Raises:
            TooManyProducers: If its producer would be one too many.
            PenstockError: As ``ChangeLog.submit``.
        """
        return log.submit(
            changes,
            meta=wish.meta,
            producer=self._producer(log, principal, wish),
            durable=wish.wait is not Wait.ACCEPTED,
            expect=wish.expect,
            after=after,
        )

    def commit_columns(
        self, log: "ChangeLog", principal: Principal, wish: AppendWish, batches: "Iterable[Columns]"
    ) -> Commit:
        """Commits a transaction that is too large to be submitted; on a thread, which waits for it.

        Raises:
            TooManyProducers: As `submit`.
            PenstockError: As ``ChangeLog.commit_columns``.
        """
        return log.commit_columns(
            batches,
            meta=wish.meta,
            producer=self._producer(log, principal, wish),
            durable=wish.wait is not Wait.ACCEPTED,
            expect=wish.expect,
        )

    def _producer(
        self, log: "ChangeLog", principal: Principal, wish: AppendWish
    ) -> tuple[RemoteProducer, int] | None:
        """Under whose name a transaction is committed.

        Raises:
            TooManyProducers: If it would be one too many.
        """
        if wish.producer is None:
            return None
        limits, producer = self._limits, RemoteProducer(principal.name, wish.producer)
        if log.produced(producer) is None:
            since = datetime.now(UTC) - timedelta(seconds=limits.producer_idle)
            if log.producers_of(principal.name, since) >= limits.producers:
                raise TooManyProducers(limits.producers, limits.producer_idle)
        return producer, wish.sequence


class Repetitions:
    """Finds the versions of what one client has repeated, and the log does not tell: all but the last of each producer.

    What is found is kept until something else is asked for, as a window is repeated as a whole.
    """

    def __init__(self) -> None:
        self._log: ChangeLog | None = None
        self._producer = RemoteProducer("", "")
        self._known: dict[int, int] = {}

    def version(self, log: "ChangeLog", principal: Principal, wish: AppendWish) -> int:
        """The version; 0 if it lies too far back. On a thread."""
        producer = RemoteProducer(principal.name, wish.producer or "")
        if self._log is not log or self._producer != producer or wish.sequence not in self._known:
            self._known = log.versions_of(producer, wish.sequence)
            self._log, self._producer = log, producer
        return self._known.get(wish.sequence, 0)


def outcome_of(commit: Commit) -> str:
    """What became of a transaction, in the word of the figures."""
    return "DUPLICATE" if commit.duplicate else "WRITTEN"


def cursor_behind(log: "ChangeLog", commit: Commit) -> str | None:
    """The cursor behind a transaction; None if it is a repetition of one that nobody knows the version of any more."""
    return str(log.token(Position(commit.version + 1))) if commit.version else None

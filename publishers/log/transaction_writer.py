"""Turns a writer's changes into transactions: small ordinary ones by a short path, the rest as columns stamped with schemas."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypedDict, TypeVar, Unpack
from uuid import uuid4

from publishers.commits import Commit, Committer
from publishers.commits.expectation import Expect, Expectation, Expected, LateExpect
from publishers.commits.label import Label, Producer, check_mutations
from publishers.commits.submission import Submission
from publishers.errors import InvalidChange, InvalidOption
from publishers.fanout.ports import Wakeable
from publishers.fanout.publish_gate import wake
from publishers.log.lineage import Lineage
from publishers.log.origin import Origin
from publishers.log.staging import Stage, Staging
from publishers.model.position import Position, PositionToken
from publishers.mutations.mutation import Mutation, columns_of
from publishers.mutations.rows import RowEncoder, check_columns
from publishers.options import LogOptions
from publishers.schemas.registry import Schemas
from publishers.schemas.stamping import Stamping, has_schemas, unsealed
from publishers.wal import Columns, FileSystem, Transaction, Wal, seal_rows, seal_transaction
from publishers.wal.append.staged import remove_abandoned, remove_staged, staged_transaction
from publishers.wal.disk.filesystem import means_full

__all__ = ["Committing", "Labelled", "Submitting", "Tracer", "TransactionWriter", "W", "check_tracer"]


class Showing(TypedDict, total=False):
    """When a transaction is synced and published, and what is a repetition; see ``ChangeLog.commit``."""

    durable: bool
    visible: bool
    trust: bool


class Labelled(Showing, total=False):
    """The keyword arguments of ``ChangeLog.commit_staged``."""

    meta: Mapping[str, Any] | None
    producer: Producer | None


class Committing(Labelled, total=False):
    """The keyword arguments of ``ChangeLog.commit``."""

    expect: Expect | Expected | LateExpect | None


class Submitting(Committing, total=False):
    """The keyword arguments of ``ChangeLog.submit``."""

    after: Submission | None


W = TypeVar("W", Commit, Submission)

_NOTHING: Final = Commit(0, duplicate=False, changes=0, committed_at=0)


class Tracer(Protocol):
    """Wraps each write of a log, as ``publishers.tracing.CommitSpans`` does."""

    def __call__(
        self, log: str, write: Callable[..., W], changes: Iterable[Any], /, **committing: Unpack[Submitting]
    ) -> W:
        """Calls ``write`` once with the changes and the keyword arguments, of which it may replace ``meta``; returns its result.

        Args:
            log: Name of the log.
            write: Commits or submits.
            changes: The changes to write.
            committing: The keyword arguments of ``write``.
        """
        ...


def check_tracer(tracer: object) -> None:
    """Checks a tracer.

    Raises:
        InvalidOption: If it is neither None nor callable.
    """
    if tracer is not None and not callable(tracer):
        raise InvalidOption("tracer", tracer, "such as publishers.tracing.CommitSpans(), or None")


class TransactionWriter:
    """Commits and submits transactions of any size and kind to one log; errors are those of ``ChangeLog.commit``.

    Args:
        directory: Directory of the log.
        wal: The log's files.
        committer: The log's write path.
        schemas: The log's schemas.
        lineage: Judges the tokens of expectations.
        storage: The filesystem of the log.
        options: Bounds of transactions.
        check: Raises if the log is not open in this process.
    """

    def __init__(
        self,
        directory: Path,
        wal: Wal,
        committer: Committer,
        schemas: Schemas,
        lineage: Lineage,
        storage: FileSystem,
        options: LogOptions,
        check: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._committer = committer
        self._wal = wal
        self._schemas = schemas
        self._lineage = lineage
        self._origin = None if options.origin is None else Origin(options.origin)
        self._storage = storage
        self._options = options
        self._compress = options.compress
        self._check = check
        self._staging: set[str] = set()  # names of transactions whose staging is in progress
        self._encoder = RowEncoder(
            options, schemas.versions, None if self._origin is None else self._origin.row
        )

    def commit(
        self,
        mutations: Iterable[Mutation],
        *,
        meta: Mapping[str, Any] | None = None,
        producer: Producer | None = None,
        expect: Expect | Expected | LateExpect | None = None,
        **showing: Unpack[Showing],
    ) -> Commit:
        """See ``ChangeLog.commit``."""
        rows = mutations if type(mutations) is list else check_mutations(mutations)
        expected = None if expect is None else self._expectation(expect)
        label = Label.of(meta, producer)
        encoded = self._encoder.rows(rows, label.annotations)
        if encoded is not None:
            return self._committer.commit(
                seal_rows(encoded, label.producer, label.sequence, compress=self._compress),
                expect=expected,
                **showing,
            )
        return self._commit([columns_of(rows, keyed=True)], label, expected, **showing)

    def commit_columns(
        self,
        batches: Iterable[Columns],
        *,
        meta: Mapping[str, Any] | None = None,
        producer: Producer | None = None,
        expect: Expect | Expected | LateExpect | None = None,
        **showing: Unpack[Showing],
    ) -> Commit:
        """See ``ChangeLog.commit_columns``."""
        label = Label.of(meta, producer)
        if not isinstance(batches, Iterable):
            raise InvalidChange("batches", batches, "a list of Columns")
        columns: Iterable[Columns] = map(check_columns, batches)
        if isinstance(batches, (list, tuple)):
            columns = list(columns)
        expected = expect if callable(expect) else self._expectation(expect)
        return self._commit(columns, label, expected, **showing)

    def commit_staged(
        self,
        stage: Stage,
        *,
        meta: Mapping[str, Any] | None = None,
        producer: Producer | None = None,
        **showing: Unpack[Showing],
    ) -> Commit:
        """See ``ChangeLog.commit_staged``."""
        label = Label.of(meta, producer)
        storage, directory = self._storage, self._directory
        abandoned = remove_abandoned(storage, directory, self._staging)
        staging = Staging(directory.resolve(), uuid4().hex, label.annotations, self._options, abandoned)
        self._staging.add(staging.transaction)
        try:
            stamping = Stamping(self._schemas)
            parts, versions = stage(staging)
            if not any(part.payloads for part in parts):
                return _NOTHING
            stamping.vouch(versions)
            transaction = staged_transaction(
                parts,
                options=self._options,
                producer=label.producer,
                sequence=label.sequence,
                filesystem=storage,
                directory=directory,
            )
            return self._committer.commit(transaction, outdated=stamping.outdated, **showing)
        finally:
            self._staging.discard(staging.transaction)
            remove_staged(storage, directory, staging.transaction)

    def submit(
        self,
        mutations: Iterable[Mutation],
        *,
        after: Submission | None = None,
        meta: Mapping[str, Any] | None = None,
        producer: Producer | None = None,
        expect: Expect | Expected | LateExpect | None = None,
        **showing: Unpack[Showing],
    ) -> Submission:
        """See ``ChangeLog.submit``."""
        rows = check_mutations(mutations)
        expected, label = self._expectation(expect, after), Label.of(meta, producer)
        encoded, outdated = self._encoder.rows(rows, label.annotations), None
        transaction = (
            None
            if encoded is None
            else seal_rows(encoded, label.producer, label.sequence, compress=self._compress)
        )
        if transaction is None:
            columns = [columns_of(rows, keyed=True)]
            stamping, transaction = self._stamped(columns, label)
            if transaction is None:  # it carries schemas, on which later transactions depend
                if after is not None:
                    after.check()
                return Submission.of(
                    self._commit_schemas(columns, label, stamping, None, expected, **showing)
                )
            outdated = stamping.outdated
        return self._committer.submit(transaction, outdated=outdated, expect=expected, after=after, **showing)

    def _commit(
        self,
        columns: Iterable[Columns],
        label: Label,
        expect: Expectation | LateExpect | None,
        **showing: Unpack[Showing],
    ) -> Commit:
        stamping, kept = self._stamped(columns, label)
        if callable(expect):
            expect = self._expectation(expect)
        if kept is None or stamping.registers:
            return self._commit_schemas(columns, label, stamping, kept, expect, **showing)
        return self._committer.commit(kept, outdated=stamping.outdated, expect=expect, **showing)

    def _expectation(
        self, expect: Expect | Expected | LateExpect | None, after: Submission | None = None
    ) -> Expectation | None:
        if callable(expect):
            expect = expect()
        if expect is None:
            return None
        futile = None if after is None else partial(_refused, after)
        return Expectation(expect, self._judge, self._wal, self._options.expect_bytes, futile)

    def _judge(self, token: PositionToken, head: Position) -> Position:
        return self._lineage.judge(token, Position(self._wal.reader.oldest), head, pruned=True)

    def _stamped(self, columns: Iterable[Columns], label: Label) -> tuple[Stamping, Transaction | None]:
        """Stamps and seals the changes; None instead of a transaction if they are a list and carry schemas.

        An iterator of the caller runs here, before the schemas' turn is held; it may itself commit, even schemas.
        """
        stamping = Stamping(self._schemas)
        if isinstance(columns, list):
            stamping.registers = any(map(has_schemas, columns))
        return stamping, None if stamping.registers else self._sealed(stamping.through(columns), label)

    def _commit_schemas(
        self,
        columns: Iterable[Columns],
        label: Label,
        stamping: Stamping,
        kept: Transaction | None,
        expect: Expectation | None,
        **showing: Unpack[Showing],
    ) -> Commit:
        showing["durable"] = True
        woken: deque[Wakeable] = deque()
        try:
            self._check()  # in a child of fork a thread of the parent may hold the turn
            with self._schemas.turn:
                stamped = stamping.registering(columns if kept is None else unsealed(kept))
                commit = self._committer.commit(
                    self._sealed(stamped, label),
                    woken=woken,
                    outdated=stamping.outdated,
                    expect=expect,
                    **showing,
                )
                if not commit.duplicate:
                    stamping.done(commit.version)
            wake(woken)  # after the schemas' turn: INLINE subscribers may commit schemas or truncate
        finally:
            if kept is not None:
                kept.discard()
            wake(woken)  # after any error, and wherever an interrupt hit
        return commit

    def _sealed(self, batches: Iterable[Columns], label: Label) -> Transaction:
        if self._origin is not None:
            batches = map(self._origin.columns, batches)
        try:
            return seal_transaction(
                batches,
                label.annotations,
                producer=label.producer,
                sequence=label.sequence,
                options=self._options,
                filesystem=self._storage,
                directory=self._directory,
            )
        except (OSError, MemoryError) as error:
            self._check()  # the spool does not exist in a child of fork
            if means_full(error):  # the log itself is unchanged
                raise self._wal.refuse(error, self._options.spool_bytes) from error
            raise


def _refused(submission: Submission) -> bool:
    """Whether a transaction is known to be refused."""
    return submission.accepted.done() and submission.accepted.exception() is not None

"""The way over columns: changes are stamped with their schemas, sealed, and committed or submitted."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from publishers.commits import Commit, Committer
from publishers.commits.expectation import Expectation
from publishers.commits.label import Label
from publishers.commits.submission import Submission
from publishers.errors import LogFull
from publishers.fanout.ports import Wakeable
from publishers.fanout.publish_gate import wake
from publishers.log.origin import Origin
from publishers.options import LogOptions
from publishers.schemas.registry import Schemas
from publishers.schemas.stamping import Stamping, tells_schemas, unsealed
from publishers.wal import Columns, FileSystem, Transaction, seal_transaction
from publishers.wal.disk.filesystem import means_full

__all__ = ["ColumnWriter"]


class ColumnWriter:
    """Writes transactions of any size and kind to one log; small ordinary ones have a shorter way, see ``RowEncoder``.

    Args:
        directory: Of the log.
        schemas: Those that were told.
        origin: Where changes are made that tell no other; None to tell none.
        storage: Where the log is.
        options: Bounds of transactions.
        check: Raises if the log is not open here.
    """

    def __init__(
        self,
        directory: Path,
        schemas: Schemas,
        origin: Origin | None,
        storage: FileSystem,
        options: LogOptions,
        check: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._schemas = schemas
        self._origin = origin
        self._storage = storage
        self._options = options
        self._check = check

    def commit(
        self,
        committer: Committer,
        columns: Iterable[Columns],
        label: Label,
        expect: Expectation | None,
        *,
        durable: bool,
        visible: bool,
    ) -> Commit:
        """Commits them as one transaction; raises as ``ChangeLog.commit``."""
        stamping, kept = self._stamped(columns, label)
        if kept is None or stamping.tells:
            return self._tell(committer, columns, label, stamping, kept, visible=visible, expect=expect)
        return committer.commit(
            kept, durable=durable, visible=visible, outdated=stamping.outdated, expect=expect
        )

    def submit(
        self,
        committer: Committer,
        columns: list[Columns],
        label: Label,
        expect: Expectation | None,
        *,
        durable: bool,
        visible: bool,
        after: Submission | None,
    ) -> Submission:
        """Submits them as one transaction, unless it tells schemas: then it is committed, as what follows depends on it."""
        stamping, kept = self._stamped(columns, label)
        if kept is None:
            if after is not None:
                after.check()
            return Submission.of(
                self._tell(committer, columns, label, stamping, kept, visible=visible, expect=expect)
            )
        return committer.submit(
            kept,
            durable=durable,
            visible=visible,
            outdated=stamping.outdated,
            expect=expect,
            after=after,
        )

    def _stamped(self, columns: Iterable[Columns], label: Label) -> tuple[Stamping, Transaction | None]:
        """The changes, sealed; None if some of them, which are at hand, tell schemas.

        The code that makes changes runs here, before anybody is kept waiting; it may commit, and tell schemas, itself.
        """
        stamping = Stamping(self._schemas)
        if isinstance(columns, list):
            stamping.tells = any(map(tells_schemas, columns))
        return stamping, None if stamping.tells else self._sealed(stamping.through(columns), label)

    def _tell(
        self,
        committer: Committer,
        columns: Iterable[Columns],
        label: Label,
        stamping: Stamping,
        kept: Transaction | None,
        *,
        visible: bool,
        expect: Expectation | None,
    ) -> Commit:
        write = partial(committer.commit, visible=visible, outdated=stamping.outdated, expect=expect)
        woken: deque[Wakeable] = deque()
        try:
            self._check()  # in a child of fork the turn may be that of a thread which is not there
            with self._schemas.turn:
                stamped = stamping.telling(columns if kept is None else unsealed(kept))
                commit = write(self._sealed(stamped, label), durable=True, woken=woken)
                if not commit.duplicate:
                    stamping.done(commit.version)
            wake(woken)  # only now: what they run may tell schemas, or forget
        finally:
            if kept is not None:
                kept.discard()
            wake(woken)  # whatever was raised, and wherever an interrupt came
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
        except OSError as error:
            self._check()  # a child of fork has no spool
            if means_full(error):  # of the spool: the log itself has not been touched
                raise LogFull(None, self._options.spool_bytes) from error
            raise

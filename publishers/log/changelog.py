"""The change log: a durable, totally ordered log of changes, its one write path, and its subscribers."""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from flow.clock import SYSTEM_CLOCK, Clock
from flow.interrupts import SHIELD
from publishers.commits import Commit, Committer, PublishGate, TransactionBuilder
from publishers.commits.encoder import RowEncoder
from publishers.commits.label import Label, Producer, check_mutations, producer_id
from publishers.errors import InvalidChange, InvalidOption, LogClosed, LogFull, LogReadOnly, PenstockError
from publishers.fanout.ports import Wakeable
from publishers.fanout.publish_gate import wake
from publishers.fanout.service import Service
from publishers.log.housekeeping import Housekeeping
from publishers.log.lineage import Lineage
from publishers.log.links import LogLinks
from publishers.log.origin import Origin
from publishers.log.soundness import LogHealth, health_of
from publishers.log.statistics import LogStatistics, statistics_of
from publishers.log.tailing import Following
from publishers.log.withheld import DeferringLog
from publishers.mutations.mutation import Mutation, columns_of
from publishers.mutations.rows import check_columns
from publishers.options import LogOptions, check_directory, check_switches
from publishers.schemas.loading import schemas_of
from publishers.schemas.registry import SchemaVersion
from publishers.schemas.stamping import Stamping
from publishers.wal import (
    Columns,
    FileSystem,
    Follower,
    RealFileSystem,
    Retention,
    Transaction,
    Wal,
    seal_transaction,
)
from publishers.wal.disk.filesystem import means_full

__all__ = ["ChangeLog", "Produced"]

_LOG: Final = logging.getLogger("penstock.follower")
_HOUSEKEEPING: Final = 0.25  # seconds between two looks for work, when nobody asks for one earlier


@dataclass(frozen=True, slots=True)
class Produced:
    """What a producer has committed last.

    Attributes:
        sequence: Its greatest sequence.
        version: The version of that transaction.
    """

    sequence: int
    version: int


class ChangeLog(DeferringLog):
    """A directory of changes that is written by one process and read by any number.

    Open it with ``ChangeLog.open``. All methods may be called from any thread. It is a context manager that closes.

    Attributes:
        path: Its directory.
        name: Its name: that of the directory.
        log_id: What tells it from every other log.
        options: Its bounds and policies.
        read_only: Whether this opening follows the log instead of owning it.
        links: Segments that are kept for consumers in other processes.
    """

    def __init__(
        self, path: Path, files: Wal | Follower, storage: FileSystem, options: LogOptions, clock: Clock
    ) -> None:
        self.path = path
        self._storage = storage
        self.name = path.resolve().name
        self.log_id: UUID = files.log_id
        self.options = options
        self.read_only = isinstance(files, Follower)
        name = f"penstock-{self.name}"
        service = Service(visible=files.visible, reader=files.reader, options=options, clock=clock, name=name)
        super().__init__(service, Lineage(files), files)
        self.links = LogLinks(path, files, self._check_open)
        self._publication = PublishGate(self._service)
        self._origin = None if options.origin is None else Origin(options.origin)
        self._following: Following | None = None
        self._oldest = self._service.oldest
        self._schemas = schemas_of(files, storage, path, lambda: self._failed)
        stamp = None if self._origin is None else self._origin.row
        self._encoder = RowEncoder(options, self._schemas.versions, stamp)
        if isinstance(files, Wal):
            self._committer = Committer(files, self._publication, options)
            interval: float | Following = (
                options.sync_interval if options.sync == "interval" else _HOUSEKEEPING
            )
        else:
            ear = storage.listen(path)
            interval = self._following = Following(files, self._service, self._publication, ear, self._lose)
            self._service.explain = self._following.explain
        self._housekeeping = Housekeeping(self._keep_house, interval, f"{name}-house")

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        read_only: bool = False,
        consumer: str | None = None,
        options: LogOptions | None = None,
        filesystem: FileSystem | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **overrides: Any,
    ) -> Self:
        """Opens a log: to write it, creating or recovering it as needed, or to follow it.

        Args:
            path: Its directory.
            read_only: Follow what another process (or another opening in this one) writes, and serve subscribers. It ends,
                with all of them, when the directory is replaced or gone; see ``failure``.
            consumer: With ``read_only``: read through the hard links of that name, which no retention takes away.
            options: Bounds and policies; ``LogOptions()`` if None.
            filesystem: Where the files are; the real one if None.
            clock: What time it is.
            overrides: Single options by name, such as ``ring_events=256``.

        Raises:
            InvalidOption: If an option is unknown or out of its bounds, or there are no links for the consumer.
            ConsumerBusy: If another process is that consumer.
            NotALog: If the directory holds something else, or, with ``read_only``, nothing.
            LogBusy: If somebody else writes to it.
            WalCorrupted, LogUnreadable: If acknowledged data are damaged; if a file of the log cannot be opened.
        """
        check_switches(read_only=read_only)
        chosen = LogOptions.chosen(options, overrides)
        directory = check_directory(path)
        if not all(callable(getattr(clock, name, None)) for name in ("now_us", "monotonic")):
            raise InvalidOption("clock", clock, "a flow.clock.Clock")
        if filesystem is not None and not callable(getattr(filesystem, "make_directory", None)):
            raise InvalidOption("filesystem", filesystem, "a publishers.wal.FileSystem, or None")
        storage = filesystem or RealFileSystem()
        files: Wal | Follower
        if read_only:
            files = Follower.open(directory, chosen, filesystem=storage, consumer=consumer)
        elif consumer is not None:
            raise InvalidOption("consumer", consumer, "given with read_only=True only")
        else:
            files = Wal.open(directory, chosen, filesystem=storage, clock=clock)
        log = None
        try:
            with SHIELD:  # from its first thread on, it is in the hands of somebody who closes it
                log = cls(directory, files, storage, chosen, clock)
            if not read_only:
                log._schemas.load()
        except BaseException:
            (log or files).close()
            raise
        return log

    @property
    def epoch(self) -> int:
        """Rises with each opening for writing."""
        return self._files.epoch

    # Writing.

    def transaction(
        self,
        meta: Mapping[str, Any] | None = None,
        producer: Producer | None = None,
        *,
        durable: bool = False,
        visible: bool = True,
    ) -> TransactionBuilder:
        """A transaction that is filled in a block, ``with`` or ``async with``, and committed on leaving it; see ``TransactionBuilder``."""
        self._writer()
        return TransactionBuilder(self.name, self.commit, meta, producer, durable=durable, visible=visible)

    def commit(
        self,
        mutations: Iterable[Mutation],
        *,
        meta: Mapping[str, Any] | None = None,
        producer: Producer | None = None,
        durable: bool = False,
        visible: bool = True,
    ) -> Commit:
        """Commits changes as one transaction, and returns when the sync policy says so.

        Args:
            mutations: What ``upsert`` and ``remove`` made.
            meta: Annotations of the transaction.
            producer: Name and sequence; a sequence that is not above the producer's last writes nothing.
            durable: Whether to sync before returning, whatever the policy.
            visible: False withholds the transaction, and with it every later one, until ``publish``.

        Raises:
            InvalidChange: If something cannot be stored, or the schema of something was forgotten at that moment.
            TransactionTooLarge: If the transaction is above a bound.
            LogClosed, LogReadOnly, LogFull, LogFailed, LogForked: If the log cannot take it.
        """
        rows = mutations if type(mutations) is list else check_mutations(mutations)
        committer = self._committer
        if committer is None or self._service.closed:
            committer, _ = self._writer()  # which says why not
        sealed = self._encoder.seal(rows, meta, producer)
        if sealed is None:
            return self.commit_columns(
                [columns_of(rows)], meta=meta, producer=producer, durable=durable, visible=visible
            )
        return committer.commit(sealed, durable=durable, visible=visible)

    async def commit_async(
        self,
        mutations: Iterable[Mutation],
        *,
        meta: Mapping[str, Any] | None = None,
        producer: Producer | None = None,
        durable: bool = False,
        visible: bool = True,
    ) -> Commit:
        """``commit`` off the event loop. Cancelling the wait does not undo the commit."""
        rows = check_mutations(mutations)
        work = asyncio.to_thread(
            self.commit, rows, meta=meta, producer=producer, durable=durable, visible=visible
        )
        return await asyncio.shield(work)

    def commit_columns(
        self,
        batches: Iterable[Columns],
        *,
        meta: Mapping[str, Any] | None = None,
        producer: Producer | None = None,
        durable: bool = False,
        visible: bool = True,
    ) -> Commit:
        """``commit`` for changes that are columns already; all batches become one version."""
        committer, wal = self._writer()
        label = Label.of(meta, producer)
        if not isinstance(batches, Iterable):
            raise InvalidChange("batches", batches, "a list of Columns")
        made = isinstance(batches, (list, tuple))
        aside = None if made else partial(self._sealed, label=label, directory=wal.directory)
        telling = Stamping(self._schemas, aside)
        woken: deque[Wakeable] = deque()
        try:
            try:
                stamped = telling.through(map(check_columns, batches))
                if self._origin is not None:
                    stamped = map(self._origin.columns, stamped)
                sealed = self._sealed(stamped, label, wal.directory)
                lasting = durable or telling.tells
                commit = committer.commit(
                    sealed, durable=lasting, visible=visible, woken=woken, outdated=telling.outdated
                )
                if not commit.duplicate:
                    telling.done(commit.version)
            finally:
                telling.end()
            wake(woken)  # only now: what they run may tell schemas, or forget
        finally:
            try:
                telling.end()  # again, as an interrupt may have come where the first one begins
            finally:
                wake(woken)
        return commit

    def schema(self, entity_type: str, version: int | None = None) -> SchemaVersion | None:
        """A schema that was told, by its version, or the newest; None if there is none. It may read the disk.

        It answers for every version that was ever told, whatever became of the change that told it: a subscriber that
        begins behind it, or does not hear changes of the area SCHEMA, asks here.
        """
        self._check_open()
        with self._service.noting():
            return self._schemas.find(entity_type, version)

    def schemas(self) -> dict[str, tuple[int, ...]]:
        """Of each entity type whose schema was told the versions of it, rising. It may read the disk."""
        self._check_open()
        with self._service.noting():
            return self._schemas.told()

    def _sealed(self, batches: Iterable[Columns], label: Label, directory: Path) -> Transaction:
        try:
            return seal_transaction(
                batches,
                label.annotations,
                producer=label.producer,
                sequence=label.sequence,
                options=self.options,
                filesystem=self._storage,
                directory=directory,
            )
        except OSError as error:
            self._check_open()  # a child of fork has no spool
            if means_full(error):  # of the spool: the log itself has not been touched
                raise LogFull(None, self.options.spool_bytes) from error
            raise

    def produced(self, producer: str | UUID) -> Produced | None:
        """What a producer has committed last, or None if it is not known (any more)."""
        found = self._writer()[1].producer(producer_id(producer))
        return None if found is None else Produced(found.sequence, found.version)

    def admit(self, stopped: threading.Event, stall_timeout: float) -> None:
        """Waits until no gating subscriber lags more than its ``max_lag``; for writers that can wait.

        Args:
            stopped: Ends the wait when it is set.
            stall_timeout: Seconds for which a gating subscriber may make no progress.

        Raises:
            SubscriberStalled: If one made none; the error names it.
            AdmissionStopped: If ``stopped`` was set.
            LogClosed: If the log was closed.
        """
        self.check_here()
        self._service.admission.wait(stopped, stall_timeout)

    # Life.

    def statistics(self, *, listed: int | None = None) -> LogStatistics:
        """What the log holds and does at this moment.

        Args:
            listed: Most shared publishers, and most subscriptions of each, that are told one by one; what is counted counts
                all. None for all of them, which costs the more the more there are.

        Raises:
            InvalidOption: If ``listed`` is no number.
            LogReplaced, LogGone, WalCorrupted, FormatTooNew: With which a follower has ended; see ``failure``.
        """
        self.check_here()
        if listed is not None and (isinstance(listed, bool) or not isinstance(listed, int) or listed < 0):
            raise InvalidOption("listed", listed, "a whole number from 0, or None")
        if self.failure is not None:
            raise self.failure
        return statistics_of(
            self.name, self._files, self._service, self._publication, self._committer, listed=listed
        )

    def health(self) -> LogHealth:
        """Whether the log is sound, as far as is known, and whether it is written. Damage is known once a read has met it.

        It reads the newest record, and tries the lock of the writer for an instant: for a thread that may wait for the disk.
        """
        self.check_here()
        if self._service.closed:
            return LogHealth.of(self.failure or self._service.reason or LogClosed())
        looked = None if self._following is None else self._following.looked
        return health_of(
            self.path,
            self._storage,
            self._files,
            self._service,
            looked,
            lambda version: self.time_of(version).timestamp(),
        )

    def close(self, because: Exception | None = None) -> None:
        """Ends every subscription with a terminal signal, and closes the files. Idempotent; does nothing in a child of ``fork``.

        Args:
            because: With what every subscription ends, such as ``LogDropped``; None completes those who have everything
                that is visible, and ends the others with ``LogClosed``.

        Raises:
            LogFailed: If what was left could not be synced; everything is closed all the same.
        """
        with self._closing:
            self._close(because)

    def _close(self, because: Exception | None) -> None:
        if self._service.closed:
            return
        self._service.reason = because
        with contextlib.ExitStack() as last:  # whatever one of them raises, the others follow
            last.callback(
                self._tell, "CLOSED", {"reason": None if because is None else type(because).__name__}
            )
            last.callback(self._files.close)
            last.callback(self._service.close, wake)
            if self._following is not None:
                last.callback(self._following.close)
            last.callback(self._housekeeping.close)
            if self._committer is not None:
                last.callback(self._committer.close)

    def _lose(self, error: PenstockError) -> None:
        """Ends a follower, of whose log nothing can follow any more; on the thread of the housekeeping.

        Whoever is closing the log at this moment waits for this thread, so it must not wait for the lock.
        """
        because = self._service.explain(error)
        if not self._closing.acquire(blocking=False):
            return
        try:
            if not self._service.closed:
                self.failure = because
                _LOG.error("the log %s is followed no longer: %s", self.name, because)
                self._close(because)
        finally:
            self._closing.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        mode = "closed" if self._service.closed else "read-only" if self.read_only else "owned"
        return f"<ChangeLog {str(self.path)!r} {mode} at {self.head}>"

    def _writer(self) -> tuple[Committer, Wal]:
        self._check_open()
        if self._committer is None or not isinstance(self._files, Wal):
            raise LogReadOnly(self.path)
        return self._committer, self._files

    def _retention(self) -> Retention:
        return self._writer()[1].retention

    def _keep_house(self) -> None:
        if self._following is not None:
            self._following.step()
            if self._service.closed:
                return
        if self._committer is not None and isinstance(self._files, Wal):
            self._committer.sync()
            self._files.maintain(self._schemas.settle())
            with contextlib.suppress(LogFull):  # the next step tries again
                self._committer.roll()
        oldest = self._service.oldest
        if oldest != self._oldest:
            self._oldest = oldest
            for subscription in self._service.registry.subscriptions():
                subscription.prune(oldest)

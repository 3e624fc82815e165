"""The change log: a durable, totally ordered log of changes, its one write path, and its subscribers."""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self, Unpack
from uuid import UUID

from flow import forks
from flow.clock import SYSTEM_CLOCK, Clock
from flow.interrupts import SHIELD
from publishers.commits import Commit, Committer, PublishGate, TransactionBuilder
from publishers.commits.label import RemoteProducer, check_mutations, producer_id
from publishers.commits.submission import Submission
from publishers.errors import (
    InvalidOption,
    LogClosed,
    LogFailed,
    LogForked,
    LogFull,
    PenstockError,
)
from publishers.fanout.ports import Wakeable
from publishers.fanout.publish_gate import wake
from publishers.fanout.service import Service
from publishers.groups import ConsumerGroups
from publishers.log.health import LogHealth, health_of
from publishers.log.holds import KeepingLog
from publishers.log.housekeeping import Housekeeping
from publishers.log.lineage import Lineage
from publishers.log.links import LogLinks
from publishers.log.start import Places
from publishers.log.statistics import LogStatistics, Produced, statistics_of
from publishers.log.tailing import Following
from publishers.log.transaction_writer import Committing, Tracer, TransactionWriter, check_tracer
from publishers.mutations.mutation import Mutation
from publishers.options import KIB, LogOptions, check_directory, check_switches, check_whole
from publishers.schemas.registry import Schemas, SchemaVersion
from publishers.slots import Slots
from publishers.wal import (
    Columns,
    FileSystem,
    Follower,
    RealFileSystem,
    Wal,
)
from publishers.wal.disk.filesystem import means_full

__all__ = ["ChangeLog"]

_LOG: Final = logging.getLogger("penstock.follower")
_HOUSEKEEPING: Final = 0.25  # seconds between two looks for work, when nobody asks for one earlier


class ChangeLog(KeepingLog):
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
        self.name = path.resolve().name
        self.log_id: UUID = files.log_id
        self.options = options
        self.read_only = isinstance(files, Follower)
        self.failure = None
        self.links = LogLinks(path, files, self._check_open)
        self._files = files
        self._storage = storage
        name = f"penstock-{self.name}"
        service = Service(visible=files.visible, reader=files.reader, options=options, clock=clock, name=name)
        super().__init__(service, Places(service, Lineage(files)))
        self._schemas = Schemas(files, storage, lambda: self._failed)
        self._publication = PublishGate(service)
        self._committer: Committer | None = None
        self._following: Following | None = None
        self._slots: Slots | None = None
        self._groups: ConsumerGroups | None = None
        self._transactions: TransactionWriter | None = None
        self._tracer: Tracer | None = None
        self._oldest = service.oldest
        self._closing = threading.Lock()
        forks.register(self)
        if isinstance(files, Wal):
            self._committer = Committer(files, self._publication, options, name)
            self._transactions = TransactionWriter(
                path,
                files,
                self._committer,
                self._schemas,
                self._places.lineage,
                storage,
                options,
                self._check_open,
            )
            self._keep(files, self._committer, self._beside)
            interval: float | Following = (
                options.sync_interval if options.sync == "interval" else min(_HOUSEKEEPING, options.ack_sync)
            )
        else:
            listener = storage.listen(path)
            interval = self._following = Following(files, service, self._publication, listener, self._lose)
            service.explain = self._following.explain
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
        tracer: Tracer | None = None,
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
            tracer: Stands around each write, such as ``publishers.tracing.CommitSpans()``; None for nothing.
            overrides: Single options by name, such as ``ring_events=256``.

        Raises:
            InvalidOption: If an option is unknown or out of its bounds, or there are no links for the consumer.
            ConsumerBusy: If another process is that consumer.
            NotALog: If the directory holds something else, or, with ``read_only``, nothing.
            LogBusy: If somebody else writes to it.
            StateIncomplete: If it is to keep its state, and changes that belong into it are no longer kept.
            StateUnusable: If the file of the state is of another application, or cannot be opened.
            WalCorrupted, LogUnreadable: If acknowledged data are damaged; if a file of the log cannot be opened.
        """
        check_switches(read_only=read_only)
        chosen = LogOptions.chosen(options, overrides)
        directory = check_directory(path)
        if not all(callable(getattr(clock, name, None)) for name in ("now_us", "monotonic")):
            raise InvalidOption("clock", clock, "a flow.clock.Clock")
        if filesystem is not None and not callable(getattr(filesystem, "make_directory", None)):
            raise InvalidOption("filesystem", filesystem, "a publishers.wal.FileSystem, or None")
        check_tracer(tracer)
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
                log._tracer = tracer
            if not read_only:
                log._schemas.load()
                log._schemas.settle()
                assert log._slots is not None
                log._slots.book.load()
                assert log._groups is not None
                log._groups.load()
            if log._state is not None:
                log._state.start()
        except BaseException:
            (log or files).close()
            raise
        return log

    def _beside(self, path: Path) -> "ChangeLog":
        """The log of the dead letters of a group, which are kept until they are discarded."""
        return ChangeLog.open(
            path,
            filesystem=self._storage,
            clock=self._service.clock,
            fill_step=64 * KIB,
            retain_age=None,
            retain_bytes=None,
        )

    @property
    def epoch(self) -> int:
        """Rises with each opening for writing."""
        return self._files.epoch

    # Writing.

    def transaction(self, **committing: Unpack[Committing]) -> TransactionBuilder:
        """A transaction that is filled in a block, ``with`` or ``async with``, and committed on leaving it; see ``TransactionBuilder``.

        Args:
            committing: As for ``commit``.
        """
        self._writer()
        return TransactionBuilder(self.name, self.commit, committing)

    def commit(self, mutations: Iterable[Mutation], **committing: Unpack[Committing]) -> Commit:
        """Commits changes as one transaction, and returns when the sync policy says so.

        Args:
            mutations: What ``upsert`` and ``remove`` made.
            committing: By name, each of them or none:

                *meta*: Annotations of the transaction; None for none.

                *producer*: Name and sequence; a sequence that is not above the producer's last writes nothing. None for none.

                *durable*: Whether to sync before returning, whatever the policy; False by default.

                *visible*: False withholds the transaction, and with it every later one, until ``publish``; True by default.

                *expect*: A token, such as ``log.token(log.head)``: the commit is refused if anything was committed there or
                later. Or a pair of a token and keys, ``(token, [("order", "42")])``: it is refused if one of these was
                changed. A repetition of what the producer has committed is none, and is not refused. None for nothing.

        Raises:
            InvalidChange: If something cannot be stored, or the schema of something was forgotten at that moment.
            TransactionTooLarge: If the transaction is above a bound.
            ExpectationFailed: If something was committed that the writer did not expect.
            PositionError: If the token of ``expect`` is none of this log's history.
            InvalidOption: If ``expect`` is neither a token nor a pair of one and keys.
            LogClosed, LogReadOnly, LogFull, LogFailed, LogForked: If the log cannot take it.
        """
        writer = self._transactions
        if writer is None or self._service.closed:
            writer = self._writing()  # which says why not
        if self._tracer is not None:
            return self._tracer(self.name, writer.commit, mutations, **committing)
        return writer.commit(mutations, **committing)

    def submit(
        self,
        mutations: Iterable[Mutation],
        *,
        after: Submission | None = None,
        **committing: Unpack[Committing],
    ) -> Submission:
        """Has changes committed as one transaction, without waiting for that; they are committed in the order of the calls.

        It encodes here, and waits here for room in the queue (``queue_bytes``); a transaction that tells schemas is committed
        when it returns. However many are submitted, one thread commits them, in groups with what other threads commit.

        Args:
            mutations: As for ``commit``.
            after: What it is written behind, or not at all: if that is refused, this is, with ``PredecessorFailed``. Else a
                producer whose later sequence was written could not repeat the earlier one.
            committing: As for ``commit``.

        Returns:
            Futures of three degrees: accepted, durable and visible. They raise what ``commit`` raises.

        Raises:
            InvalidChange, TransactionTooLarge, InvalidOption, LogClosed, LogReadOnly, LogFailed, LogForked: As ``commit``, as
                far as that is known at once.
        """
        submit = self._writing().submit
        if self._tracer is not None:
            return self._tracer(self.name, submit, mutations, after=after, **committing)
        return submit(mutations, after=after, **committing)

    async def commit_async(self, mutations: Iterable[Mutation], **committing: Unpack[Committing]) -> Commit:
        """``commit`` off the event loop. Cancelling the wait does not undo the commit."""
        rows = check_mutations(mutations)
        return await asyncio.shield(asyncio.to_thread(self.commit, rows, **committing))

    def commit_columns(self, batches: Iterable[Columns], **committing: Unpack[Committing]) -> Commit:
        """``commit`` for changes that are columns already; all batches become one version."""
        commit = self._writing().commit_columns
        if self._tracer is not None:
            return self._tracer(self.name, commit, batches, **committing)
        return commit(batches, **committing)

    def _writing(self) -> TransactionWriter:
        self._writer()
        assert self._transactions is not None
        return self._transactions

    def produced(self, producer: str | UUID | RemoteProducer) -> Produced | None:
        """What a producer has committed last, or None if it is not known (any more)."""
        found = self._writer()[1].producer(producer_id(producer))
        return None if found is None else Produced(found.sequence, found.version)

    def producers_of(self, principal: str, since: datetime) -> int:
        """How many producers of a remote principal have committed since a time."""
        owner = RemoteProducer(principal, "").id
        return self._writer()[1].producers_of(owner, int(since.timestamp() * 1e6))

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

    # Commits that subscribers do not get yet: shown or forgotten later.

    def publish(self, version: int) -> None:
        """Shows what is withheld up to a version, and the ordinary commits behind it up to the next withheld one.

        When it returns, everything up to ``version`` is durable and visible; subscribers that run INLINE have it. Again is
        harmless.

        Args:
            version: What ``commit(..., visible=False)`` has returned.

        Raises:
            InvalidOption: If ``version`` is not a whole number from 0.
            NoSuchVersion: If there is no such version (any more).
            LogClosed, LogReadOnly, LogFull: If the log cannot tell of it; nothing was shown.
            LogFailed: If the disk failed; opening the log again tells whether it is shown.
        """
        committer, _ = self._writer()
        check_whole("version", version, "a whole number from 0")
        committer.publish(version)

    def forget_after(self, version: int) -> None:
        """Drops what is withheld above a version, as if it had never been committed, and begins a new epoch.

        Its versions and the sequences of its producers are free again. Ordinary commits that waited behind it are dropped
        as well, and so are the schemas that were told there. Again is harmless.

        Args:
            version: The newest one to keep.

        Raises:
            InvalidOption: If ``version`` is not a whole number from 0.
            AlreadyVisible: If more is visible; what was shown cannot be taken back.
            NoSuchVersion: If there is no such version (any more).
            LogClosed, LogReadOnly, LogFull: If the log cannot do it; nothing has changed.
            LogFailed: If the disk failed; if it was begun, opening the log again finishes it.
        """
        committer, _ = self._writer()
        check_whole("version", version, "a whole number from 0")
        woken: deque[Wakeable] = deque()
        try:
            self._schemas.forgetting(version, lambda: committer.forget_after(version, woken=woken))
        except OSError as error:  # of the schemas: the log itself has not been touched
            if means_full(error):
                raise LogFull(None, 4096) from error
            raise LogFailed("refused", str(error)) from error
        else:
            wake(woken)  # only now: what they run may tell schemas, or forget
        finally:
            wake(woken)

    @property
    def withheld(self) -> range | None:
        """The versions that wait for ``publish`` or ``forget_after``; None if there are none, or the log is read-only."""
        committer = self._committer
        return None if committer is None else committer.withheld

    @property
    def visible(self) -> int:
        """Newest version that subscribers may be given; never above ``durable``."""
        return self._service.watermark.visible

    @property
    def durable(self) -> int:
        """Newest version that a crash cannot take; under ``sync="os"`` the newest written one.

        For a read-only opening, which cannot know it, the newest visible one.
        """
        files = self._files
        return files.durable if isinstance(files, Wal) else self.visible

    # Schemas.

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

    # Life.

    def statistics(self, *, listed: int | None = None, lag: bool = False) -> LogStatistics:
        """What the log holds and does at this moment.

        Args:
            listed: Most shared publishers, and most subscriptions of each, that are told one by one; what is counted counts
                all. None for all of them, which costs the more the more there are.
            lag: Whether ``LogStatistics.lag`` is found out, for which every subscription is looked at.

        Raises:
            InvalidOption: If ``listed`` is no number.
            LogReplaced, LogGone, WalCorrupted, FormatTooNew: With which a follower has ended; see ``failure``.
        """
        self.check_here()
        if listed is not None:
            check_whole("listed", listed, "a whole number from 0, or None")
        if self.failure is not None:
            raise self.failure
        files, service = self._files, self._service
        parts = self._publication, self._committer, self._state, self._slots, self._groups
        waiting = self._source_threads.waiting
        return statistics_of(
            self.name, files, service, *parts, source_waiting=waiting, listed=listed, lag=lag
        )

    def health(self) -> LogHealth:
        """Whether the log is sound, as far as is known, and whether it is written. Damage is known once a read has met it.

        It reads the newest record, and tries the lock of the writer for an instant: for a thread that may wait for the disk.
        """
        self.check_here()
        if self._service.closed:
            return LogHealth.of(self.failure or self._service.reason or LogClosed())
        looked = None if self._following is None else self._following.looked
        return health_of(self.path, self._storage, self._files, self._service, looked, self.time_of)

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
            if self._slots is not None:
                last.callback(self._slots.book.close)
            if self._groups is not None:
                last.callback(self._groups.close)
            last.callback(self._service.close, wake)
            for part in (self._following, self._housekeeping, self._committer, self._state):
                if part is not None:
                    last.callback(part.close)

    def forked(self, pid: int, /) -> None:
        """See ``flow.forks.Forkable``: everything is refused with ``LogForked``, and to close does nothing."""
        self._closing = threading.Lock()
        self._service.abandon(LogForked(self.path, pid))

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        mode = "closed" if self._service.closed else "read-only" if self.read_only else "owned"
        return f"<ChangeLog {str(self.path)!r} {mode} at {self.head}>"

    @property
    def _failed(self) -> bool:
        if self._service.inherited is not None:
            return True
        return self._committer is not None and self._committer.failed is not None

    def _keep_house(self) -> None:
        if self._following is not None:
            self._following.step()
            if self._service.closed:
                return
        if self._committer is not None and isinstance(self._files, Wal):
            self._committer.sync()
            needed = self._schemas.settle()
            safe = self._slots is not None and self._slots.book.settle()
            safe = self._groups is not None and self._groups.settle() and safe
            self._files.maintain(needed if safe else 0)
            with contextlib.suppress(LogFull):  # the next step tries again
                self._committer.roll()
        oldest = self._service.oldest
        if oldest != self._oldest:
            self._oldest = oldest
            for subscription in self._service.registry.subscriptions():
                subscription.prune(oldest)

"""The change log: a durable, totally ordered log of changes, its only write path, and its subscribers."""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterable
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, Self, Unpack
from uuid import UUID

from flow import forks
from flow.clock import SYSTEM_CLOCK, Clock
from flow.interrupts import SHIELD
from publishers.commits import Commit, Committer, PublishGate, TransactionBuilder
from publishers.commits.commit_threads import CommitThreads
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
from publishers.log.housekeeping import SYNC, TIMER, Job
from publishers.log.lineage import Lineage
from publishers.log.links import LogLinks
from publishers.log.log_port import ServingPort
from publishers.log.start import Places
from publishers.log.statistics import LogStatistics, Produced, statistics_of
from publishers.log.tailing import FollowerThread, Following
from publishers.log.transaction_writer import Committing, Tracer, TransactionWriter, check_tracer
from publishers.mutations.mutation import Mutation
from publishers.options import (
    KEEP_HISTORY,
    KIB,
    LogOptions,
    check_directory,
    check_switches,
    check_wait,
    check_whole,
)
from publishers.schemas.registry import Schemas, SchemaVersion
from publishers.slots import Slots
from publishers.wal import (
    Columns,
    FileSystem,
    Follower,
    RealFileSystem,
    Wal,
)
from publishers.wal.disk.filesystem import full, means_full
from publishers.wal.disk.modes import kept_readers
from publishers.wal.files.own_options import OwnOptions

__all__ = ["ChangeLog"]

_LOG: Final = logging.getLogger("penstock.follower")
_HOUSEKEEPING: Final = 0.25
"""Most seconds between two steps of housekeeping of a log that is in use."""
_SETTLED: Final = 2.0
"""Seconds without a commit, and without anything to do, after which a log is idle."""
_IDLE: Final = 5.0
"""Seconds between two steps for an idle log: half of the time for which followers believe its writer that it lives."""


class ChangeLog(KeepingLog):
    """A directory of changes, written by one process and read by any number.

    Open it with ``ChangeLog.open``. All methods may be called from any thread. As a context manager it closes on exit.

    Attributes:
        path: Its directory.
        name: Its name: that of the directory.
        log_id: Its unique identity.
        options: Its bounds and policies.
        read_only: Whether this opening follows the log instead of owning it.
        links: Hard links of segments for consumers in other processes.
    """

    def __init__(
        self, path: Path, files: Wal | Follower, storage: FileSystem, options: LogOptions, clock: Clock
    ) -> None:
        self.path = path
        self.name: str = path.resolve().name
        self.log_id: UUID = files.log_id
        self.options = options
        self.read_only: bool = isinstance(files, Follower)
        self.failure = None
        self.links: LogLinks = LogLinks(path, files, self._check_open)
        self._files = files
        self._storage = storage
        name = f"penstock-{self.name}"
        service = Service(visible=files.visible, reader=files.reader, options=options, clock=clock, name=name)
        super().__init__(service, Places(service, Lineage(files)))
        self._schemas = Schemas(files, storage, lambda: self._failed)
        self._publication = PublishGate(service)
        self._committer: Committer | None = None
        self._upkeep: Job | None = None
        self._syncing: Job | None = None
        self._following: Following | None = None
        self._slots: Slots | None = None
        self._groups: ConsumerGroups | None = None
        self._transactions: TransactionWriter | None = None
        self._tracer: Tracer | None = None
        self._commit_threads = CommitThreads(name)
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
            self._settled_at = clock.monotonic() + _SETTLED
            self._begun = files.begun
            self._period = period = min(_HOUSEKEEPING, options.ack_sync)
            self._housekeeping = self._upkeep = TIMER.add(self._keep_house, period, period)
            if options.sync == "interval":
                self._syncing = TIMER.add(self._sync, options.sync_interval, inf, SYNC)
            self._committer.rouse = self._rouse
        else:
            listener = storage.listen(path)
            self._following = Following(files, service, self._publication, listener, self._lose)
            service.explain = self._following.explain
            try:
                self._housekeeping = FollowerThread(self._follow, self._following, f"{name}-house")
            except BaseException:  # the system has no thread
                self._following.close()
                raise

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        read_only: bool = False,
        consumer: str | None = None,
        borrowed: bool = False,
        wait: float = 0.0,
        options: LogOptions | None = None,
        filesystem: FileSystem | None = None,
        clock: Clock = SYSTEM_CLOCK,
        tracer: Tracer | None = None,
        **overrides: Any,
    ) -> Self:
        """Opens a log: to write it, creating or recovering it as needed, or to follow it.

        Args:
            path: Its directory.
            read_only: Follow the commits of another process (or of another opening in this one), and serve subscribers. The
                follower and all its subscriptions end when the directory is replaced or removed; see ``failure``.
            consumer: With ``read_only``: read through the hard links of this name, which no retention deletes.
            borrowed: The log is another program's, as for a command: options given here apply to this opening only, except those
                in ``options`` if the log is made here; and nothing is deleted where the log keeps no options.
            wait: Seconds to wait for another writer to close the log, before ``LogBusy``; at most a day.
            options: Bounds and policies. Those that decide what stays of the log, and how it is synced, stand in the log
                (``penstock log options DIR``). They are the log's where nothing else is given here; what differs from the
                default here replaces them.
            filesystem: Holds the files; the real one if None.
            clock: Source of the time.
            tracer: Wraps each write, such as ``publishers.tracing.CommitSpans()``; None for no tracing.
            overrides: Single options by name, such as ``ring_events=256``; these are given whatever their value.

        Raises:
            InvalidOption: If an option is unknown or out of its bounds, or there are no links for the consumer.
            ConsumerBusy: If another process reads as that consumer.
            NotALog: If the directory holds something else, or, with ``read_only``, nothing.
            LogBusy: If another opening writes to it.
            StateIncomplete: If the log is to keep its state, and changes that belong to the state are no longer kept.
            StateUnusable: If the file of the state belongs to another application, or cannot be opened.
            WalCorrupted, LogUnreadable: If acknowledged data are damaged; if a file of the log cannot be opened.
            LogFull: If the disk has no room to open it; LogExhausted: if descriptors, memory or a thread are lacking for it.
        """
        check_switches(read_only=read_only, borrowed=borrowed)
        check_wait(wait)
        chosen = LogOptions.chosen(options, overrides)
        directory = check_directory(path)
        _check_given(filesystem, clock, tracer)
        storage = filesystem or RealFileSystem()
        if not read_only and type(storage) is RealFileSystem:
            quiet = borrowed and "readers" not in overrides
            overrides["readers"] = kept_readers(directory, None if quiet else chosen.readers)
            storage = RealFileSystem(overrides["readers"])
        files: Wal | Follower
        own = OwnOptions(storage, directory, options, overrides, borrowed=borrowed)
        if read_only:
            files = Follower.open(directory, filesystem=storage, consumer=consumer)
        elif consumer is not None:
            raise InvalidOption("consumer", consumer, "given with read_only=True only")
        else:
            files = Wal.open(directory, own.choose, filesystem=storage, clock=clock, wait=wait)
            chosen = files.options
        log = None
        try:
            with SHIELD:  # from its first thread on, the caller must hold the log in order to close it
                log = cls(directory, files, storage, chosen, clock)
                log._tracer = tracer
            if isinstance(files, Wal):
                own.store(files.insist)
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
        """Opens the log for the dead letters of a group, which deletes nothing unless its own options are set so."""
        return ChangeLog.open(
            path,
            borrowed=True,
            filesystem=self._storage,
            clock=self._service.clock,
            options=LogOptions(**KEEP_HISTORY),
            fill_step=64 * KIB,
        )

    @property
    def epoch(self) -> int:
        """Number of the opening for writing; it rises with each."""
        return self._files.epoch

    # Writing.

    def transaction(self, **committing: Unpack[Committing]) -> TransactionBuilder:
        """Begins a transaction: a ``with`` or ``async with`` block that collects changes and commits at its end; see ``TransactionBuilder``.

        Args:
            committing: As for ``commit``.
        """
        self._writer()
        return TransactionBuilder(self.name, self.commit, committing, self._commit_threads)

    def commit(self, mutations: Iterable[Mutation], **committing: Unpack[Committing]) -> Commit:
        """Commits changes as one transaction, and returns as soon as the sync policy allows.

        Args:
            mutations: Results of ``upsert``, ``remove`` and the like.
            committing: Optional, by name:

                *meta*: Annotations of the transaction; None for none.

                *producer*: Name and sequence; a sequence that is not above the producer's last writes nothing. None for none.

                *trust*: Whether a repetition of the producer's last sequence is not compared with the transaction in the log, for a
                producer whose content differs at each attempt; False by default.

                *durable*: Whether to sync before returning, whatever the policy; False by default.

                *visible*: False withholds the transaction, and with it every later one, until ``publish``; True by default.

                *expect*: A token, such as ``log.token(log.head)``: the commit is refused if anything was committed at its position
                or later. Or a pair of a token and keys, ``(token, [("order", "42")])``: it is refused if one of these keys was
                changed since. Or a function that returns either, called once all changes were read. A repetition of the producer's
                earlier commit is not refused. None for no expectation.

        Raises:
            InvalidChange: If a change cannot be stored, or its schema was truncated at that moment.
            TransactionTooLarge: If the transaction exceeds a bound.
            ExpectationFailed: If a commit contradicts ``expect``.
            ProducerConflict: If the producer has committed the sequence with other changes, as far as they are kept; nothing was
                written. Annotations, schema versions, entry versions, origins and times are not compared.
            PositionError: If the token of ``expect`` does not belong to this log's history.
            InvalidOption: If ``expect`` is neither a token nor a pair of a token and keys.
            LogClosed, LogReadOnly, LogFull, LogFailed, LogForked: If the log cannot accept the commit.
        """
        writer = self._transactions
        if writer is None or self._service.closed:
            writer = self._writing()  # raises the reason
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
        """Queues changes as one transaction without waiting for the commit; transactions are committed in the order of the calls.

        The calling thread encodes the changes, and waits for room in the queue (``queue_bytes``). A transaction with schemas is
        committed before the call returns. One thread commits all submitted transactions, in groups with the commits of others.

        Args:
            mutations: As for ``commit``.
            after: The predecessor. If it is refused, this transaction is refused with ``PredecessorFailed``; otherwise a producer
                whose later sequence was written could not retry the earlier one.
            committing: As for ``commit``.

        Returns:
            Futures of three degrees: accepted, durable and visible. They raise the errors of ``commit``.

        Raises:
            InvalidChange, TransactionTooLarge, InvalidOption, LogClosed, LogReadOnly, LogFailed, LogForked: As ``commit``, as
                far as the error is known at once.
        """
        submit = self._writing().submit
        if self._tracer is not None:
            return self._tracer(self.name, submit, mutations, after=after, **committing)
        return submit(mutations, after=after, **committing)

    async def commit_async(self, mutations: Iterable[Mutation], **committing: Unpack[Committing]) -> Commit:
        """``commit`` on one of the log's own threads, at most 32. Cancelling the wait does not undo the commit."""
        rows = check_mutations(mutations)
        return await self._commit_threads.run(partial(self.commit, rows, **committing))

    def commit_columns(self, batches: Iterable[Columns], **committing: Unpack[Committing]) -> Commit:
        """``commit`` for changes in columns; all batches become one version."""
        commit = self._writing().commit_columns
        if self._tracer is not None:
            return self._tracer(self.name, commit, batches, **committing)
        return commit(batches, **committing)

    @property
    def serving(self) -> ServingPort:
        """The log as transports use it; not for programs."""
        return ServingPort(self.name, self._service, lambda: self._writer()[1], self._writing, self._tracer)

    def _writing(self) -> TransactionWriter:
        self._writer()
        assert self._transactions is not None
        return self._transactions

    def produced(self, producer: str | UUID | RemoteProducer) -> Produced | None:
        """Returns the last commit of a producer; None if the producer is unknown or no longer remembered."""
        found = self._writer()[1].producer(producer_id(producer))
        return None if found is None else Produced(found.sequence, found.version)

    # Withheld commits: published or truncated later.

    def publish(self, version: int) -> None:
        """Publishes the withheld transactions up to a version, and the ordinary commits behind it up to the next withheld one.

        When it returns, everything up to ``version`` is durable and visible, and was delivered to INLINE subscribers with
        demand. Idempotent.

        Args:
            version: The version of a ``commit(..., visible=False)``.

        Raises:
            InvalidOption: If ``version`` is not a whole number from 0.
            NoSuchVersion: If the version does not exist, or was truncated.
            LogClosed, LogReadOnly, LogFull: If the log cannot record it; nothing was published.
            LogFailed: If the disk failed; reopening the log decides whether the version is visible.
        """
        committer, _ = self._writer()
        check_whole("version", version, "a whole number from 0")
        committer.publish(version)

    def forget_after(self, version: int) -> None:
        """Truncates the withheld transactions above a version, as if they had never been committed, and begins a new epoch.

        Their versions and the sequences of their producers become free again. Ordinary commits withheld behind them are
        truncated as well, and so are their schemas. Idempotent.

        Args:
            version: The newest version to keep.

        Raises:
            InvalidOption: If ``version`` is not a whole number from 0.
            AlreadyVisible: If a later version is visible; published versions cannot be truncated.
            NoSuchVersion: If the version does not exist, or was truncated.
            LogClosed, LogReadOnly, LogFull: If the log cannot do it; nothing has changed.
            LogFailed: If the disk failed; reopening the log finishes a truncation that has begun.
        """
        committer, _ = self._writer()
        check_whole("version", version, "a whole number from 0")
        woken: deque[Wakeable] = deque()
        try:
            self._schemas.forgetting(version, lambda: committer.forget_after(version, woken=woken))
        except OSError as error:  # from the schemas: the log itself is unchanged
            if means_full(error):
                raise full(error, None, 4096) from error
            raise LogFailed("refused", str(error)) from error
        else:
            wake(woken)  # after the schemas' turn: INLINE subscribers may commit schemas or truncate
        finally:
            wake(woken)

    @property
    def withheld(self) -> range | None:
        """The versions withheld until ``publish`` or ``forget_after``; None if there are none, or the log is read-only."""
        committer = self._committer
        return None if committer is None else committer.withheld

    @property
    def visible(self) -> int:
        """Newest version that may be delivered; never above ``durable``."""
        return self._service.watermark.visible

    @property
    def durable(self) -> int:
        """Newest version that a crash cannot lose; under ``sync="os"`` the newest written one.

        A read-only opening does not know it, and returns the newest visible version.
        """
        files = self._files
        return files.durable if isinstance(files, Wal) else self.visible

    # Schemas.

    def schema(self, entity_type: str, version: int | None = None) -> SchemaVersion | None:
        """Returns a schema of an entity type by its version, or the newest; None if there is none. It may read the disk.

        It knows every version ever committed, even if retention has deleted the change that carried it. So a subscriber that
        begins later, or does not subscribe to the area SCHEMA, can look the schema up here.
        """
        self._check_open()
        with self._service.noting():
            return self._schemas.find(entity_type, version)

    def schemas(self) -> dict[str, tuple[int, ...]]:
        """Returns the schema versions of each entity type that has any, rising. It may read the disk."""
        self._check_open()
        with self._service.noting():
            return self._schemas.by_type()

    # Life.

    def statistics(self, *, listed: int | None = None, lag: bool = False) -> LogStatistics:
        """Returns the log's statistics at this moment.

        Args:
            listed: Most shared publishers, and most subscriptions of each, to list; totals count all. None lists all, which
                costs time in proportion to their number.
            lag: Whether to fill ``LogStatistics.lag``, which examines every subscription.

        Raises:
            InvalidOption: If ``listed`` is not a whole number from 0.
            LogReplaced, LogGone, WalCorrupted, FormatTooNew: The error that has ended a follower; see ``failure``.
        """
        self._service.check_here()
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
        """Returns whether the log is known to be damaged, and whether it is open for writing. Damage is known once a read meets it.

        It reads the newest record and tries the writer's lock for an instant: call it from a thread that may wait for the disk.
        """
        self._service.check_here()
        if self._service.closed:
            return LogHealth.of(self.failure or self._service.reason or LogClosed())
        looked = None if self._following is None else self._following.looked
        late = 0.0 if self._syncing is None else self._syncing.late
        return health_of(self.path, self._storage, self._files, self._service, looked, late, self.time_of)

    def close(self, because: Exception | None = None) -> None:
        """Ends every subscription with a terminal signal, and closes the files. Idempotent; does nothing in a child of ``fork``.

        Args:
            because: The error of every subscription, such as ``LogDropped``. None completes each subscription that has received
                everything visible, and ends the rest with ``LogClosed``.

        Raises:
            LogFailed: If the last commits could not be synced; everything is closed all the same.
        """
        with self._closing:
            self._close(because)

    def _close(self, because: Exception | None) -> None:
        if self._service.closed:
            return
        self._service.reason = because
        with contextlib.ExitStack() as last:  # each callback runs, even if an earlier one raises
            last.callback(
                self._service.publish_event,
                "CLOSED",
                {"reason": None if because is None else type(because).__name__},
            )
            last.callback(self._files.close)
            if self._slots is not None:
                last.callback(self._slots.book.close)
            if self._groups is not None:
                last.callback(self._groups.close)
            last.callback(self._commit_threads.close)
            last.callback(self._service.close, wake)
            for part in (self._following, self._housekeeping, self._syncing, self._committer, self._state):
                if part is not None:
                    last.callback(part.close)

    def forked(self, pid: int, /) -> None:
        """See ``flow.forks.Forkable``: every method raises ``LogForked``, and ``close`` does nothing."""
        self._closing = threading.Lock()
        self._service.abandon(LogForked(self.path, pid))

    def _lose(self, error: PenstockError) -> None:
        """Ends a follower that can follow its log no longer; runs on the housekeeping thread.

        A thread that is closing the log holds the lock and joins this thread, so this method must not wait for the lock.
        """
        because = self._service.explain(error)
        if not self._closing.acquire(blocking=False):
            return
        try:
            if not self._service.closed:
                self.failure = because
                _LOG.error("the log %s is no longer followed: %s", self.name, because)
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

    def _follow(self) -> None:
        assert self._following is not None
        self._following.step()
        if not self._service.closed:
            self._prune()

    def _sync(self) -> None:
        assert self._committer is not None
        self._committer.sync()

    def _keep_house(self) -> float:
        """One step of housekeeping of the owner; returns the seconds until the next one."""
        committer, files, slots, groups = self._committer, self._files, self._slots, self._groups
        assert committer is not None
        assert isinstance(files, Wal)
        assert slots is not None
        assert groups is not None
        begun = files.begun
        committer.sync()
        needed = self._schemas.settle()
        safe = slots.book.settle()
        safe = groups.settle() and safe
        done = files.maintain(needed if safe else 0)
        with contextlib.suppress(LogFull):  # the next step tries again
            committer.roll()
        self._prune()
        now = self._service.clock.monotonic()
        if begun != self._begun or done or files.space_low or slots.book.owes or groups.owe:
            # HEAD is written by then too.
            self._begun, self._settled_at = begun, now + max(_SETTLED, self.options.head_sync + self._period)
        if now < self._settled_at:
            return self._period
        return max(min(_IDLE, self.options.segment_age or _IDLE), self._period)

    def _prune(self) -> None:
        """Ends the subscriptions that retention has passed."""
        oldest = self._service.oldest
        if oldest != self._oldest:
            self._oldest = oldest
            for subscription in self._service.registry.subscriptions():
                subscription.prune(oldest)


def _check_given(filesystem: object, clock: object, tracer: object) -> None:
    if not all(callable(getattr(clock, name, None)) for name in ("now_us", "monotonic")):
        raise InvalidOption("clock", clock, "a flow.clock.Clock")
    if filesystem is not None and not callable(getattr(filesystem, "make_directory", None)):
        raise InvalidOption("filesystem", filesystem, "a publishers.wal.FileSystem, or None")
    check_tracer(tracer)

"""Group commit: a calling thread leads.

A thread that finds no leader leads: it takes the waiting transactions, writes them with one write and one sync, passes
leadership on, and publishes. So the disk already works for the next group while this group is published. No timer forms
groups, and the callers' threads commit, as in LevelDB and RocksDB. For submitted transactions, for which no thread
waits, one thread of the log leads.

The leader acquires the publish gate before it passes leadership on; this keeps publication in version order.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final

from flow.interrupts import SHIELD
from publishers.commits.expectation import Expectation
from publishers.commits.handover import Handover
from publishers.commits.leadership import Leadership
from publishers.commits.pending import Commit, CommitStage, Pending, answer, blocks_of, sift, to_publish
from publishers.commits.queue import GROUP_BYTES, CommitQueue
from publishers.commits.submission import Arrivals, Submission, Submitted
from publishers.commits.withheld import Withheld
from publishers.errors import AlreadyVisible, InvalidChange, LogError, LogFailed, LogFull, NoSuchVersion
from publishers.fanout.ports import Wakeable
from publishers.fanout.publish_gate import Published, PublishGate, wake
from publishers.options import LogOptions, check_switches
from publishers.wal import Appended, Transaction, Wal
from publishers.wal.format.frame import NO_PRODUCER

__all__ = ["Commit", "Committer"]

_SWITCHES: Final = (bool, bool)
# As globals: an attribute of an enumeration takes ten times as long, and each commit would pay for it.
_FREE: Final = Leadership.FREE
_OUTSIDE, _WAITING, _TAKEN, _DONE = CommitStage


class Committer:
    """The only write path of a log.

    Args:
        wal: The log's files; the leader holds their write gate.
        publication: The publish gate.
        options: The bound of the queue, and the sync policy.
        name: Prefix of the thread names, which start with the first submission.

    Attributes:
        groups: Groups written so far; benchmarks derive the group size from it.
        rouse: Called behind each append: the housekeeping has something to do in a while, and under ``interval`` a sync.
        arrivals: Resolves the futures of submitted transactions.
        held: The transactions that are withheld.
        handover: Pauses a thread that commits again and again without contention; contending threads wait for each other.
    """

    def __init__(
        self, wal: Wal, publication: PublishGate, options: LogOptions, name: str = "penstock"
    ) -> None:
        self.groups: int = 0
        self.rouse: Callable[[], None] = lambda: None
        self.arrivals: Arrivals = Arrivals(lambda: (wal.durable, publication.visible), self._lead_next, name)
        self.handover: Handover = Handover()
        self._wal = wal
        self._publication = publication
        self._options = options
        self._queue = CommitQueue(options, deferring=wal.withholding)
        self._unsynced: list[Published] = []
        self._unsynced_bytes = 0
        self._most_unsynced = {"always": -1, "interval": options.queue_bytes, "os": 2**63}[options.sync]
        self._owing = False  # a withheld transaction is not synced yet
        self.held: Withheld = Withheld(options.withheld_bytes, wal.visible, wal.appended)

    def commit(
        self,
        transaction: Transaction,
        *,
        durable: bool = False,
        visible: bool = True,
        woken: deque[Wakeable] | None = None,
        outdated: Callable[[], InvalidChange | None] | None = None,
        expect: Expectation | None = None,
        trust: bool = False,
    ) -> Commit:
        """Commits a transaction, alone or in a group with the concurrent commits of other threads.

        Args:
            transaction: The transaction; its spool, if any, is discarded in every case.
            durable: Whether to sync before returning, whatever the policy.
            visible: Whether to publish it. False withholds it; it is withheld too while an earlier transaction is.
            woken: Collects the subscriptions to wake, for a caller that holds a lock; that caller wakes them even after an error.
            outdated: Called at the transaction's turn; returns why it may no longer be written, or None.
            expect: Expectation about the log, judged at the transaction's turn.
            trust: Whether a repetition of the producer's newest sequence is not compared with the first transaction.

        Raises:
            InvalidChange: The error returned by ``outdated``; nothing was written.
            ExpectationFailed, PositionError: If the log does not meet ``expect``; nothing was written.
            ProducerConflict: If the producer has committed the sequence with another content; nothing was written.
            LogClosed: If the log was closed; nothing was written.
            LogFull: If the disk has no room; nothing was written.
            LogFailed: If the disk failed.
            LogForked: In a child of ``fork``; nothing was written.
        """
        found: deque[Wakeable] = deque() if woken is None else woken
        began = monotonic()
        commit = pending = None
        try:
            try:
                if (type(durable), type(visible)) != _SWITCHES:
                    check_switches(durable=durable, visible=visible)
                if self._wal.inherited is not None:
                    raise self._wal.inherited  # before the queue is entered: its lock and leader may belong to the parent
                ordinary = visible and outdated is None and expect is None and transaction.spool is None
                if ordinary and transaction.producer == NO_PRODUCER and self._queue.state is _FREE:
                    with SHIELD:
                        commit = self._lead_alone(transaction, found, durable=durable)
                if commit is None:
                    if expect is not None:
                        expect.look()
                    pending = Pending(
                        transaction,
                        durable=durable,
                        hidden=not visible,
                        outdated=outdated,
                        expect=expect,
                        trust=trust,
                    )
                    self._take_part(pending, found)
            finally:
                if transaction.spool is not None:
                    transaction.discard()
                if found and woken is None:
                    wake(found)
        finally:
            if found and woken is None:
                wake(found)  # an interrupt may have hit the start of the first call
        if pending is not None:
            commit = pending.commit
        elif woken is None:
            self.handover.worked(monotonic() - began)
        assert commit is not None
        return commit

    def submit(
        self,
        transaction: Transaction,
        *,
        durable: bool = False,
        visible: bool = True,
        outdated: Callable[[], InvalidChange | None] | None = None,
        expect: Expectation | None = None,
        after: Submission | None = None,
        trust: bool = False,
    ) -> Submission:
        """Queues a transaction; waits at most for room in the queue. Arguments not listed are those of ``commit``.

        Args:
            transaction: The transaction.
            durable: Whether to sync at once.
            visible: Whether to publish it.
            outdated: Returns why it may no longer be written, or None.
            expect: Expectation about the log.
            after: Its predecessor; if that is refused, this transaction is not written.
            trust: Whether its content is not compared with that of the transaction that it repeats.

        Raises:
            LogClosed, LogFailed, LogForked: If the log accepts no commits; nothing was written.
        """
        pending = Submitted(
            self.arrivals,
            transaction,
            durable=durable,
            hidden=not visible,
            outdated=outdated,
            expect=expect,
            after=None if after is None else after.pending,
            trust=trust,
        )
        try:
            check_switches(durable=durable, visible=visible)
            if self._wal.inherited is not None:
                raise self._wal.inherited
            self.arrivals.start()
            if expect is not None:
                expect.look()
            while True:
                with SHIELD:
                    self._queue.enter(pending)
                if pending.stage is not _OUTSIDE:
                    break
                pending.wait()
        except BaseException:
            if pending.stage is _OUTSIDE:  # else a leader writes it
                transaction.discard()
            raise
        return pending.submission

    def _lead_next(self, pending: Pending) -> None:
        woken: deque[Wakeable] = deque()
        try:
            self._lead(pending, woken)
        finally:
            wake(woken)

    def publish(self, version: int) -> None:
        """Publishes everything up to a version, and the ordinary commits behind it up to the next withheld one.

        Raises:
            NoSuchVersion: If there is no such version.
            LogClosed: If the log was closed.
            LogFull: If the disk has no room to record it; nothing has changed.
            LogFailed: If the disk failed.
        """
        self._alone(partial(self._show, version))

    def forget_after(self, version: int, *, woken: deque[Wakeable] | None = None) -> None:
        """Truncates the withheld transactions above a version; ``woken`` is that of ``commit``.

        Raises:
            AlreadyVisible: If a later version is visible; nothing has changed.
            NoSuchVersion: If there is no such version.
            LogClosed: If the log was closed.
            LogFull: If the disk has no room to record it; nothing has changed.
            LogFailed: If the disk failed.
        """
        self._alone(partial(self._forget, version), woken)

    def sync(self) -> None:
        """Syncs the transactions that the ``interval`` policy has not synced yet, and publishes them.

        Raises:
            LogFailed: If the disk failed.
        """
        if (self._unsynced or self._owing) and self.failed is None:
            self._run(Pending(None, durable=True))

    def vouch(self, version: int) -> None:
        """Makes HEAD cover a version that is about to be stored as a position; syncs first if the policy has not.

        Raises:
            LogClosed: If the log was closed, and the version was not synced.
            LogFull: If the disk has no room.
            LogFailed: If the disk failed.
        """
        if self._wal.synced < version:
            self._run(Pending(None, durable=True))
        self._wal.vouch(version)

    def roll(self) -> None:
        """Closes the active segment if it is older than ``segment_age``; this needs no commit.

        Raises:
            LogClosed: If the log was closed.
            LogFull: If the disk has no room for a segment; the caller may retry.
            LogFailed: If the disk failed.
        """
        if self.failed is None and self._wal.overdue:
            self._alone(self._roll)

    def _roll(self) -> list[Published]:
        with self._publication.gate:
            self._wal.roll()
        return []

    def close(self) -> None:
        """Refuses later commits, finishes commits in progress, and syncs the rest.

        On a failed log, what waits in the queue gets the log's error. After an interrupt this waits once more, because the files
        are closed next, and no leader may be writing then.

        Raises:
            LogFailed: If the log had not failed before.
        """
        self._queue.close()
        failed = self.failed
        ended: BaseException | None = None
        try:
            self._run(Pending(None, durable=True))
        except LogFailed as error:
            ended = error if failed is None else None
        except BaseException as error:  # noqa: BLE001 - raised below
            ended = error
            with contextlib.suppress(LogFailed):
                self._run(Pending(None, durable=True))
        # Not after a second interrupt: then the thread that leads for submitted commits still has to answer them.
        self.arrivals.close()
        if ended is not None:
            raise ended

    @property
    def failed(self) -> str | None:
        """Why the log accepts no more commits; None while it does."""
        return self._queue.failed

    @property
    def waiting(self) -> tuple[int, int]:
        """The number of queued commits, and their bytes."""
        return len(self._queue), self._queue.nbytes

    def _alone(self, task: Callable[[], list[Published]], woken: deque[Wakeable] | None = None) -> None:
        # Larger than a whole group, so that the task gets a group of its own.
        self._run(Pending(None, durable=True, task=task, size=GROUP_BYTES + 1), woken)

    def _run(self, pending: Pending, woken: deque[Wakeable] | None = None) -> None:
        found: deque[Wakeable] = deque() if woken is None else woken
        try:
            try:
                if self._wal.inherited is not None:
                    raise self._wal.inherited
                self._take_part(pending, found)
            finally:
                if found and woken is None:
                    wake(found)
        finally:
            if found and woken is None:
                wake(found)

    def _take_part(self, pending: Pending, woken: deque[Wakeable]) -> None:
        """Queues an entry, and leads if it is appointed; waking subscriptions is left to the caller."""
        try:
            while pending.stage is not _DONE:
                with SHIELD:
                    if pending.stage is _OUTSIDE:
                        self._queue.enter(pending)
                    if self._queue.leader is pending:
                        self._lead(pending, woken)
                if pending.stage is not _DONE:
                    pending.asleep = True
                    pending.wait()
            if pending.asleep:
                with SHIELD:
                    self._queue.returned(pending)
        except BaseException:
            while True:  # no interrupt may end this: the caller discards the spool next. Not a call, which one could hit at its start
                try:
                    with SHIELD:
                        self._queue.leave(pending)
                    while pending.stage is _TAKEN:
                        pending.wait()  # a leader is writing it at this moment, perhaps from its spool
                    break
                except BaseException:  # noqa: BLE001, S112 - the first one is raised
                    continue
            raise
        if pending.error is not None:
            raise pending.error

    def _lead_alone(
        self, transaction: Transaction, woken: deque[Wakeable], *, durable: bool
    ) -> Commit | None:
        """Commits without the queue if no other commit is present, as `_lead` does; else returns None and does nothing."""
        queue, wal = self._queue, self._wal
        if not queue.skip(transaction):
            return None
        written, before = False, wal.begun
        try:
            (done,) = wal.append((transaction,))
            self.groups += 1
            version, committed_at, _, _, _ = done
            _, count, nbytes, size, _, _, _, _ = transaction
            # As `to_publish`; inlined, because each commit would pay for the call.
            due = (version, count + 1, partial(blocks_of, transaction, done), nbytes, committed_at)
            self._unsynced.append(tuple.__new__(Published, due))
            self._unsynced_bytes += size
            published = self._synced(durable=durable)
            written = True
            self._publish(transaction, published, woken)
        except BaseException as error:
            with SHIELD:  # anew: an interrupt late in a long sync must not leave the queue without a leader
                verdict = self._judge(error, woken, written=written, before=before)
                queue.pass_on(transaction)
            if isinstance(error, MemoryError):
                raise verdict from error
            raise
        wal.notify()
        return tuple.__new__(Commit, (version, False, count + 1, committed_at))

    def _lead(self, pending: Pending, woken: deque[Wakeable]) -> None:
        group: list[Pending] = []
        verdict: LogError | None = LogFailed("unknown", "a commit was not finished")
        written, before = False, self._wal.begun
        until = began = monotonic()
        try:
            self._queue.begin(pending, group)
            published = self._write(group)
            until = 2 * monotonic() - began
            written = True
            self._publish(pending, published, woken, len(group))
            verdict = None
        except BaseException as error:
            if group:
                before = before if group[0].task is None else -1
                verdict = self._judge(error, woken, written=written, before=before)
            if verdict is not error and not (group and isinstance(error, MemoryError)):
                raise
        finally:
            with SHIELD:  # as in `_lead_alone`
                if verdict is not None:
                    for member in group:
                        member.refuse(verdict)
                self._queue.end(pending, group, until)
                for member in group:
                    member.finish()
        self._wal.notify()  # before INLINE subscribers run on this thread

    def _publish(
        self, leader: object, published: list[Published], woken: deque[Wakeable], beyond: int = -1
    ) -> None:
        """Publishes a group. If more than ``beyond`` commits wait, the next group is written meanwhile."""
        with self._publication.gate:
            self._queue.pass_on(leader, beyond)
            if published:
                self._wal.publish_tail(published[-1].version)
                woken.extend(self._publication.publish(published))
        if self.arrivals.used:
            self.arrivals.settle()

    def _judge(self, error: BaseException, woken: deque[Wakeable], *, written: bool, before: int) -> LogError:
        """Returns the error to report to a group that has met an error of any kind, KeyboardInterrupt included.

        If the group was being written or published, and the error does not say how far that went, the log fails with an unknown
        outcome; not if memory was lacking before another append than the first ``before`` ones had begun.
        """
        if isinstance(error, LogError) and not written:
            if isinstance(error, LogFailed):
                self._fail(self._wal.failed or str(error))
            return error
        if isinstance(error, MemoryError) and self._wal.begun == before:
            return self._wal.refuse(error, 0)
        why = f"{type(error).__name__} while a commit was being written or published"
        woken.extend(self._publication.all_subscriptions())
        self._fail(why)
        return LogFailed("unknown", why)

    def _write(self, group: list[Pending]) -> list[Published]:
        """Writes a group and syncs it as the policy says; returns what may be published now."""
        if self.failed is not None:
            raise LogFailed("refused", self.failed)
        task = group[0].task
        if task is not None:
            return task()
        repeated, fresh = sift(group, self._wal)
        deferring = self._queue.deferring
        if deferring:
            self._defer(fresh)
        appended = self._append(fresh)
        self.groups += 1
        for member, done in zip(fresh, appended, strict=True):
            transaction = member.transaction
            assert transaction is not None
            fields = (done.version, False, transaction.count + 1, done.committed_at)
            member.commit = tuple.__new__(Commit, fields)  # inlined, because each commit would pay for a call
            # A withheld transaction may wait for long: keep its payload only, not its rows as well.
            kept = transaction._replace(rows=None) if deferring else transaction
            self._unsynced.append(to_publish(kept, done))
            self._unsynced_bytes += member.size
        if deferring:
            self._hold_back(fresh)
        answer(repeated, self._wal.log_id)
        if self.arrivals.used:
            self.arrivals.accept(group)
        return self._synced(durable=True in [member.durable for member in group])

    def _synced(self, *, durable: bool) -> list[Published]:
        """Syncs if a member of the group or the policy requires it; returns what may be published now."""
        self.rouse()
        if durable or self._unsynced_bytes > self._most_unsynced:
            self._wal.sync()
        elif self._options.sync == "interval":
            return []
        return self._release()

    def _release(self) -> list[Published]:
        """Returns the transactions that the caller has just synced, and empties the list of unsynced ones."""
        published, self._unsynced, self._unsynced_bytes, self._owing = self._unsynced, [], 0, False
        return published

    # Withheld transactions.

    @property
    def withheld(self) -> range | None:
        """The versions that are withheld, or None."""
        first = self.held.first
        return None if first is None else range(first, self._wal.appended + 1)

    def _defer(self, fresh: list[Pending]) -> None:
        """Records in HEAD the first withheld version before it is written, or that no version is withheld any more."""
        if self.held.first is None:
            place = next((place for place, member in enumerate(fresh) if member.hidden), None)
            self._wal.show(None if place is None else self._wal.appended + place)

    def _hold_back(self, fresh: list[Pending]) -> None:
        """Moves the transactions that may not be published from the unsynced list to the withheld ones."""
        withheld = self.held
        first = len(self._unsynced) - len(fresh)
        shown = 0
        for member, transaction in zip(fresh, self._unsynced[first:], strict=True):
            if member.hidden:
                withheld.hide(transaction.version)
            if withheld.first is None:
                shown += 1
            else:
                withheld.keep(transaction, member.size)
                self._owing = True
        del self._unsynced[first + shown :]
        self._settle()

    def _settle(self) -> None:
        """Notes in the queue whether anything is withheld, in memory or in HEAD."""
        self._queue.settle(withheld=self.held.first is not None or self._wal.withholding)

    def _show(self, version: int) -> list[Published]:
        wal, withheld = self._wal, self.held
        if version > wal.appended:
            raise NoSuchVersion(version, wal.appended)
        if wal.durable < wal.appended:
            wal.sync()
        shown: list[Published] = []
        if withheld.first is not None and version >= withheld.first:
            reach = withheld.reach(version, wal.appended)
            wal.show(None if reach == wal.appended else reach)
            shown = withheld.take(reach)
            self._settle()
        return self._release() + shown

    def _forget(self, version: int) -> list[Published]:
        wal, withheld = self._wal, self.held
        if wal.durable < wal.appended:
            wal.sync()
        newest = wal.appended
        visible = newest if withheld.first is None else withheld.first - 1
        if version > newest:
            raise NoSuchVersion(version, newest)
        if version < visible:
            raise AlreadyVisible(version, visible)
        if version < newest:
            with self._publication.gate:
                wal.forget_after(version)
            withheld.forget_after(version)
            self.arrivals.forget_after(version)
            self._settle()
        return self._release()

    # Groups.

    def _append(self, fresh: list[Pending]) -> list[Appended]:
        """Appends the new transactions. Those for which the disk has no room get the error and leave ``fresh``."""
        appended: list[Appended] = []
        while len(appended) < len(fresh):
            rest = fresh[len(appended) :]
            try:
                appended += self._wal.append([m.transaction for m in rest if m.transaction is not None])
            except LogFull as error:
                if not appended:
                    raise
                for member in rest:
                    member.error = error
                del fresh[len(appended) :]
        return appended

    def _fail(self, why: str) -> None:
        if self._queue.failed is None:
            self._queue.failed = why
            self.arrivals.fail(LogFailed("unknown", why))

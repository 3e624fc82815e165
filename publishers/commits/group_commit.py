"""Group commit: the caller leads.

Whoever finds no leader leads: it takes all that wait, writes them with one write and one sync, passes leadership on, and
publishes them; so the disk already works for the next group while this one is published. No timer forms groups, and the
callers' threads commit (LevelDB and RocksDB do it so). One thread leads in the place of those who wait elsewhere for what
they have submitted.

The publish gate is taken before leadership is passed on, which keeps publication in version order.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final

from flow.interrupts import SHIELD
from publishers.commits.expectation import Expectation
from publishers.commits.handover import Handover
from publishers.commits.pending import Commit, Pending, blocks_of, sift, tell_repeated, to_publish
from publishers.commits.queue import CommitQueue
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


class Committer:
    """The one write path of a log.

    Args:
        wal: The log's files; whoever leads holds their write gate.
        publication: The publish gate.
        options: Bounds of groups and queue, and the sync policy.
        name: Of its threads, if anything is submitted.

    Attributes:
        groups: Groups written so far; benchmarks tell how large they were.
        arrivals: Tells writers that do not wait here how far their transactions are.
        handover: Pauses a thread that commits again and again and meets no other: those that meet wait for each other.
    """

    def __init__(
        self, wal: Wal, publication: PublishGate, options: LogOptions, name: str = "penstock"
    ) -> None:
        self.groups = 0
        self.arrivals = Arrivals(lambda: (wal.durable, publication.visible), self._lead_submitted, name)
        self.handover = Handover()
        self._wal = wal
        self._publication = publication
        self._options = options
        self._queue = CommitQueue(options, deferring=wal.withholding)
        self._unsynced: list[Published] = []
        self._unsynced_bytes = 0
        self._most_unsynced = {"always": -1, "interval": options.queue_bytes, "os": 2**63}[options.sync]
        self._owing = False  # something that is withheld was not synced
        self._withheld = Withheld(options.deferred_bytes, wal.visible, wal.appended)

    def commit(
        self,
        transaction: Transaction,
        *,
        durable: bool = False,
        visible: bool = True,
        woken: deque[Wakeable] | None = None,
        outdated: Callable[[], InvalidChange | None] | None = None,
        expect: Expectation | None = None,
    ) -> Commit:
        """Commits a transaction, alone or in a group with what other threads commit at the same time.

        Args:
            transaction: What to commit; its spool, if any, is discarded in every case.
            durable: Whether to sync before returning, whatever the policy.
            visible: Whether subscribers get it, unless something before it is withheld; False withholds it.
            woken: Takes those who are to be woken, for a caller that holds something; it wakes them, whatever is raised.
            outdated: Asked when its turn has come: why it may not be written any more, or None.
            expect: What is expected of the log when its turn has come.

        Raises:
            InvalidChange: What ``outdated`` says; nothing was written.
            ExpectationFailed, PositionError: If the log is not what ``expect`` says; nothing was written.
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
                    raise self._wal.inherited  # before the queue, whose lock and leader may be those of the parent
                ordinary = visible and outdated is None and expect is None and transaction.spool is None
                if ordinary and transaction.producer == NO_PRODUCER and self._queue.leader is None:
                    with SHIELD:
                        commit = self._lead_alone(transaction, found, durable=durable)
                if commit is None:
                    if expect is not None:
                        expect.look()
                    pending = Pending(
                        transaction, durable=durable, hidden=not visible, outdated=outdated, expect=expect
                    )
                    self._take_part(pending, found)
            finally:
                if transaction.spool is not None:
                    transaction.discard()
                if found and woken is None:
                    wake(found)
        finally:
            if found and woken is None:
                wake(found)  # an interrupt may have come where the first one begins
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
    ) -> Submission:
        """Queues a transaction, without waiting for more than room in the queue; the other arguments are those of ``commit``.

        Args:
            transaction: What to commit.
            durable: Whether to sync at once.
            visible: Whether subscribers get it.
            outdated: Why it may not be written any more.
            expect: What is expected of the log.
            after: What it was submitted behind, and is not written if that was refused.

        Raises:
            LogClosed, LogFailed, LogForked: If the log takes no commits; nothing was written.
        """
        pending = Submitted(
            self.arrivals,
            transaction,
            durable=durable,
            hidden=not visible,
            outdated=outdated,
            expect=expect,
            after=None if after is None else after.pending,
        )
        try:
            check_switches(durable=durable, visible=visible)
            if self._wal.inherited is not None:
                raise self._wal.inherited
            self.arrivals.start()
            if expect is not None:
                expect.look()
            while not pending.inside:
                with SHIELD:
                    self._queue.enter(pending)
                    if pending.leads:
                        self.arrivals.lead(pending)
                if not pending.inside:
                    pending.wait()
        except BaseException:
            if not pending.inside:
                if self._wal.inherited is None:  # else the lock may be that of a thread which is not there
                    self._queue.leave(pending)
                transaction.discard()
            raise
        return pending.submission

    def _lead_submitted(self, pending: Pending) -> None:
        woken: deque[Wakeable] = deque()
        try:
            self._lead(pending, woken)
        finally:
            wake(woken)

    def publish(self, version: int) -> None:
        """Shows everything up to a version, and the ordinary commits behind it up to the next withheld one.

        Raises:
            NoSuchVersion: If there is no such version.
            LogClosed: If the log was closed.
            LogFull: If the disk has no room to tell of it; nothing has changed.
            LogFailed: If the disk failed.
        """
        self._alone(partial(self._show, version))

    def forget_after(self, version: int, *, woken: deque[Wakeable] | None = None) -> None:
        """Removes what is withheld above a version; ``woken`` is that of ``commit``.

        Raises:
            AlreadyVisible: If more than that is visible; nothing has changed.
            NoSuchVersion: If there is no such version.
            LogClosed: If the log was closed.
            LogFull: If the disk has no room to tell of it; nothing has changed.
            LogFailed: If the disk failed.
        """
        self._alone(partial(self._forget, version), woken)

    def sync(self) -> None:
        """Syncs what the ``interval`` policy has left, and publishes it.

        Raises:
            LogFailed: If the disk failed.
        """
        if (self._unsynced or self._owing) and self.failed is None:
            self._run(Pending(None, durable=True))

    def vouch(self, version: int) -> None:
        """Makes HEAD cover a version, which somebody is about to store as a place; syncs first what the policy has left.

        Raises:
            LogClosed: If the log was closed, and the version was not synced.
            LogFull: If the disk has no room.
            LogFailed: If the disk failed.
        """
        if self._wal.synced < version:
            self._run(Pending(None, durable=True))
        self._wal.vouch(version)

    def roll(self) -> None:
        """Closes the live segment if it is above ``segment_age``, although nobody commits.

        Raises:
            LogClosed: If the log was closed.
            LogFull: If the disk has no room for a segment; it is tried again.
            LogFailed: If the disk failed.
        """
        if self.failed is None and self._wal.overdue:
            self._alone(self._roll)

    def _roll(self) -> list[Published]:
        with self._publication.gate:
            self._wal.roll()
        return []

    def close(self) -> None:
        """Refuses later commits, lets those in progress finish, and syncs what is left."""
        self._queue.close()
        try:
            if self.failed is None:
                self._run(Pending(None, durable=True))
        finally:
            self.arrivals.close()

    @property
    def failed(self) -> str | None:
        """Why nothing is committed any more; None while all is well."""
        return self._queue.failed

    @property
    def waiting(self) -> tuple[int, int]:
        """Commits that wait for their turn, and their bytes."""
        return len(self._queue), self._queue.nbytes

    def _alone(self, task: Callable[[], list[Published]], woken: deque[Wakeable] | None = None) -> None:
        # As large as a whole group, so that it gets one of its own.
        self._run(Pending(None, durable=True, task=task, size=self._options.group_bytes + 1), woken)

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
        """Waits for a turn, and leads if it has to; everything but to wake subscribers."""
        try:
            while not pending.done:
                with SHIELD:
                    if not pending.inside:
                        self._queue.enter(pending)
                    if pending.leads:
                        self._lead(pending, woken)
                if not pending.done:
                    pending.asleep = True
                    pending.wait()
            if pending.asleep:
                with SHIELD:
                    self._queue.returned(pending)
        except BaseException:
            with SHIELD:
                self._queue.leave(pending)
            while pending.taken and not pending.done:
                pending.wait()  # another thread writes it at this moment, perhaps from its spool
            raise
        if pending.error is not None:
            raise pending.error

    def _lead_alone(
        self, transaction: Transaction, woken: deque[Wakeable], *, durable: bool
    ) -> Commit | None:
        """Commits what meets no other, and does nothing if it does: what `_lead` does, without a queue."""
        queue, wal = self._queue, self._wal
        with queue.lock:
            if queue.leader is not None or queue.deferring or queue.failed is not None or queue.closed:
                return None
            queue.leader = transaction
        written = False
        try:
            (done,) = wal.append((transaction,))
            self.groups += 1
            version, committed_at, _, _, _ = done
            _, count, nbytes, size, _, _, _, _ = transaction
            # As `to_publish`, for every commit: without a call of Python code.
            due = (version, count + 1, partial(blocks_of, transaction, done), nbytes, committed_at)
            self._unsynced.append(tuple.__new__(Published, due))
            self._unsynced_bytes += size
            published = self._synced(durable=durable)
            written = True
            self._publish(transaction, published, woken)
        except BaseException as error:
            self._judge(error, woken, written=written)
            queue.pass_on(transaction)
            raise
        wal.notify()
        return tuple.__new__(Commit, (version, False, count + 1, committed_at))

    def _lead(self, pending: Pending, woken: deque[Wakeable]) -> None:
        group: list[Pending] = []
        verdict: LogError | None = LogFailed("unknown", "a commit was not finished")
        written = False
        until = began = monotonic()
        try:
            self._queue.gather(group)
            published = self._write(group)
            until = 2 * monotonic() - began
            written = True
            self._publish(pending, published, woken, len(group))
            verdict = None
        except BaseException as error:
            if group:
                verdict = self._judge(error, woken, written=written)
            if verdict is not error:
                raise
        finally:
            self._queue.end(pending, group, until)
            for member in group:
                member.finish(verdict)
        self._wal.notify()  # before anything that subscribers run on this thread

    def _publish(
        self, leader: object, published: list[Published], woken: deque[Wakeable], beyond: int = -1
    ) -> None:
        """Publishes a group; meanwhile the next one is written, if it is the larger one."""
        with self._publication.gate:
            self._queue.pass_on(leader, beyond)
            if published:
                self._wal.publish_tail(published[-1].version)
                woken.extend(self._publication.publish(published))
        if self.arrivals.used:
            self.arrivals.settle()

    def _judge(self, error: BaseException, woken: deque[Wakeable], *, written: bool) -> LogError:
        """What a group is told that has met an error, which may be a KeyboardInterrupt or anything else.

        If it was being written or published, and the error is not what says how far that went, nobody knows: the log fails
        with an unknown outcome.
        """
        if isinstance(error, LogError) and not written:
            if isinstance(error, LogFailed):
                self._fail(self._wal.failed or str(error))
            return error
        why = f"{type(error).__name__} while a commit was being written or published"
        woken.extend(self._publication.everybody())
        self._fail(why)
        return LogFailed("unknown", why)

    def _write(self, group: list[Pending]) -> list[Published]:
        """Writes and syncs a group as the policy wants; answers what may be published now."""
        if self.failed is not None:
            raise LogFailed("refused", self.failed)
        task = group[0].task
        if task is not None:
            return task()
        repeated, fresh = sift(group, self._wal.producer)
        deferring = self._queue.deferring
        if deferring:
            self._defer(fresh)
        appended = self._append(fresh)
        self.groups += 1
        for member, done in zip(fresh, appended, strict=True):
            transaction = member.transaction
            assert transaction is not None
            fields = (done.version, False, transaction.count + 1, done.committed_at)
            member.commit = tuple.__new__(Commit, fields)  # for every commit: without a call of Python code
            # What is withheld may wait for long, and one copy of it is enough.
            kept = transaction._replace(rows=None) if deferring else transaction
            self._unsynced.append(to_publish(kept, done))
            self._unsynced_bytes += member.size
        if deferring:
            self._hold_back(fresh)
        for member, ahead, version in repeated:
            if ahead is not None and ahead.commit is None:
                member.error = ahead.error  # what it repeats, or came too late for, was not written after all
                continue
            if member.error is not None:
                continue
            original = ahead.commit.version if ahead and ahead.commit and version is None else version
            member.commit = Commit(original or 0, duplicate=True, changes=0, committed_at=0)
            assert member.transaction is not None
            tell_repeated(member.transaction, original or 0, self._wal.log_id)
        if self.arrivals.used:
            self.arrivals.accept(group)
        return self._synced(durable=True in [member.durable for member in group])

    def _synced(self, *, durable: bool) -> list[Published]:
        """Syncs what was written, if the policy or somebody wants that; answers what may be published now."""
        if durable or self._unsynced_bytes > self._most_unsynced:
            self._wal.sync()
        elif self._options.sync == "interval":
            return []
        published, self._unsynced, self._unsynced_bytes, self._owing = self._unsynced, [], 0, False
        return published

    def _release(self) -> list[Published]:
        """Gives away what was not synced, and is now."""
        published, self._unsynced, self._unsynced_bytes, self._owing = self._unsynced, [], 0, False
        return published

    # What is withheld.

    @property
    def withheld(self) -> range | None:
        """The versions that are withheld, or None."""
        first = self._withheld.first
        return None if first is None else range(first, self._wal.appended + 1)

    @property
    def withheld_bytes(self) -> int:
        """Bytes of withheld transactions that are kept in memory."""
        return self._withheld.nbytes

    def _defer(self, fresh: list[Pending]) -> None:
        """Lets HEAD tell of the first withheld version before it is written, and no longer than there is one."""
        if self._withheld.first is None:
            place = next((place for place, member in enumerate(fresh) if member.hidden), None)
            self._wal.show(None if place is None else self._wal.appended + place)

    def _hold_back(self, fresh: list[Pending]) -> None:
        """Takes what may not be shown from the way to the publish gate."""
        withheld = self._withheld
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
        """Looks whether there is still something to withhold, here, in HEAD or in the queue."""
        self._queue.settle(withheld=self._withheld.first is not None or self._wal.withholding)

    def _show(self, version: int) -> list[Published]:
        wal, withheld = self._wal, self._withheld
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
        wal, withheld = self._wal, self._withheld
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
        """Writes what is new; those for which the disk has no room are told, and leave ``fresh``."""
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

"""Group commit: the caller leads.

Whoever finds no leader leads: it takes all that wait, writes them with one write and one sync, passes leadership on, and
publishes them; so the disk already works for the next group while this one is published. No timer forms groups, and no
thread commits but the callers' (LevelDB and RocksDB do it so).

The publish gate is taken before leadership is passed on, which keeps publication in version order.
"""

import threading
from collections import deque

from publishers.errors import LogClosed, LogError, LogFailed, LogFull
from publishers.options import LogOptions
from publishers.pending import Commit, Pending, Repeated, to_publish
from publishers.publication import Publication, Published, wake
from publishers.wal import Appended, Transaction, Wal

__all__ = ["Commit", "Committer"]


class Committer:
    """The one write path of a log.

    Args:
        wal: The log's files; whoever leads holds their write gate.
        publication: The publish gate.
        options: Bounds of groups and queue, and the sync policy.

    Attributes:
        groups: Groups written so far.
    """

    def __init__(self, wal: Wal, publication: Publication, options: LogOptions) -> None:
        self.groups = 0
        self._wal = wal
        self._publication = publication
        self._options = options
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._queue: deque[Pending] = deque()
        self._queued_bytes = 0
        self._leader: Pending | None = None
        self._unsynced: list[Published] = []
        self._unsynced_bytes = 0
        self._failed: str | None = None
        self._closed = False

    def commit(self, transaction: Transaction, *, durable: bool = False) -> Commit:
        """Commits a transaction, alone or in a group with what other threads commit at the same time.

        Args:
            transaction: What to commit; its spool, if any, is discarded in every case.
            durable: Whether to sync before returning, whatever the policy.

        Raises:
            LogClosed: If the log was closed; nothing was written.
            LogFull: If the disk has no room; nothing was written.
            LogFailed: If the disk failed.
        """
        try:
            pending = Pending(transaction, durable=durable)
            self._run(pending)
        finally:
            transaction.discard()
        assert pending.commit is not None
        return pending.commit

    def sync(self) -> None:
        """Syncs what the ``interval`` policy has left, and publishes it.

        Raises:
            LogFailed: If the disk failed.
        """
        if self._unsynced and self._failed is None:
            self._run(Pending(None, durable=True))

    def close(self) -> None:
        """Refuses later commits, lets those in progress finish, and syncs what is left."""
        with self._lock:
            self._closed = True
            self._room.notify_all()
        if self._failed is None:
            self._run(Pending(None, durable=True))

    @property
    def waiting(self) -> tuple[int, int]:
        """Commits that wait for their turn, and their bytes."""
        return len(self._queue), self._queued_bytes

    def _run(self, pending: Pending) -> None:
        try:
            self._enter(pending)
            pending.wait()
            if pending.leads:
                self._lead(pending)
                self._wal.ring()  # before anything that subscribers run on this thread
            wake(pending.woken)
        except BaseException as error:
            self._give_up(pending, error)
            raise
        if pending.error is not None:
            raise pending.error

    def _enter(self, pending: Pending) -> None:
        size, bound = pending.size, self._options.queue_bytes
        with self._lock:
            while pending.transaction is not None:
                if self._closed:
                    raise LogClosed
                if self._failed is not None:
                    raise LogFailed("refused", self._failed)
                if not self._queue or self._queued_bytes + size <= bound:
                    break
                self._room.wait()
            self._queue.append(pending)
            self._queued_bytes += size
            if self._leader is None:
                self._leader = pending
                pending.leads = True

    def _lead(self, pending: Pending) -> None:
        group = self._gather(pending)
        try:
            published = self._write(group)
        except LogError as error:
            if isinstance(error, LogFailed):
                self._fail(self._wal.failed or str(error))
            self._pass_on(pending)
            pending.verdict = error
        else:
            with self._publication.gate:
                self._pass_on(pending)
                if published:
                    pending.woken.extend(self._publication.publish(published))
                    self._wal.publish_tail(published[-1].version)
        pending.decided = True
        for member in group:
            member.finish(pending.verdict)

    def _gather(self, pending: Pending) -> list[Pending]:
        options = self._options
        group = pending.group
        nbytes = 0
        with self._lock:
            while self._queue and len(group) < options.group_transactions:
                first = self._queue[0]
                if group and nbytes + first.size > options.group_bytes:
                    break
                # In this order, so that an interrupt in between leaves nobody out.
                first.taken = True
                group.append(first)
                self._queue.popleft()
                nbytes += first.size
            self._queued_bytes -= nbytes
            self._room.notify_all()
        return group

    def _write(self, group: list[Pending]) -> list[Published]:
        """Writes and syncs a group as the policy wants; answers what may be published now."""
        if self._failed is not None:
            raise LogFailed("refused", self._failed)
        repeated, fresh = self._sift(group)
        appended = self._append(fresh)
        self.groups += 1
        for member, done in zip(fresh, appended, strict=True):
            transaction = member.transaction
            assert transaction is not None
            changes = transaction.count + 1
            member.commit = Commit(
                done.version, duplicate=False, changes=changes, committed_at=done.committed_at
            )
            self._unsynced.append(to_publish(transaction, done))
            self._unsynced_bytes += member.size
        for member, ahead, version in repeated:
            if ahead is not None and ahead.commit is None:
                member.error = ahead.error  # what it repeats, or came too late for, was not written after all
                continue
            original = ahead.commit.version if ahead and ahead.commit and version is None else version
            member.commit = Commit(original or 0, duplicate=True, changes=0, committed_at=0)
        if self._syncs(group):
            self._wal.sync()
        elif self._options.sync == "interval":
            return []
        published, self._unsynced, self._unsynced_bytes = self._unsynced, [], 0
        return published

    def _syncs(self, group: list[Pending]) -> bool:
        """Whether a group is synced before its members return."""
        if self._options.sync == "always" or any(member.durable for member in group):
            return True
        return self._options.sync == "interval" and self._unsynced_bytes > self._options.queue_bytes

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

    def _sift(self, group: list[Pending]) -> tuple[list[Repeated], list[Pending]]:
        """Tells repetitions of producers from what is new, in queue order, so that racing retries meet it too."""
        repeated: list[Repeated] = []
        fresh: list[Pending] = []
        newest: dict[bytes, tuple[Pending, int]] = {}
        for member in group:
            transaction = member.transaction
            if transaction is None:
                member.commit = Commit(0, duplicate=False, changes=0, committed_at=0)
                continue
            producer, sequence = transaction.producer_id, transaction.sequence
            if producer is not None:
                ahead = newest.get(transaction.producer)
                known = self._wal.producer(producer) if ahead is None else None
                if ahead is not None and sequence <= ahead[1]:
                    repeated.append(Repeated(member, ahead[0], None if sequence == ahead[1] else 0))
                    continue
                if known is not None and sequence <= known.sequence:
                    repeated.append(
                        Repeated(member, None, known.version if sequence == known.sequence else 0)
                    )
                    continue
                newest[transaction.producer] = (member, sequence)
            fresh.append(member)
        return repeated, fresh

    def _pass_on(self, pending: Pending) -> None:
        """Hands leadership to the first who waits; does nothing if it was passed on before."""
        with self._lock:
            if self._leader is not pending:
                return
            self._leader = self._queue[0] if self._queue else None
            if self._leader is not None:
                self._leader.lead()

    def _fail(self, why: str) -> None:
        if self._failed is None:
            self._failed = why

    def _give_up(self, pending: Pending, error: BaseException) -> None:
        """Something interrupted the caller, KeyboardInterrupt perhaps, at any place.

        If its group was being written or published, nobody knows how far that went, so the log fails with an unknown
        outcome; in any case followers and gates are released, and subscribers woken.
        """
        try:
            self._abandon(pending, error)
        except BaseException:
            self._abandon(pending, error)  # interrupted once more; each of its steps may be repeated
            wake(pending.woken)
            raise
        if pending.taken and not pending.leads:
            # Another thread writes it at this moment, perhaps from its spool, which has to stay until then.
            pending.wait()
        wake(pending.woken)

    def _abandon(self, pending: Pending, error: BaseException) -> None:
        group = pending.group
        if group and not pending.decided:
            why = f"{type(error).__name__} while a commit was being written or published"
            self._fail(why)
            pending.verdict = LogFailed("unknown", why)
            pending.woken.extend(self._publication.everybody())
        for member in group:
            member.finish(pending.verdict)
        with self._lock:
            self._queue = deque(one for one in self._queue if one is not pending and one not in group)
            self._queued_bytes = sum(one.size for one in self._queue)
            self._room.notify_all()
            if self._leader is pending:
                self._leader = self._queue[0] if self._queue else None
            if self._leader is not None:  # it may not have heard of it
                self._leader.lead()

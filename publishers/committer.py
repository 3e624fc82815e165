"""Group commit: the caller leads.

Whoever finds no leader leads: it takes all that wait, writes them with one write and one sync, passes leadership on, and
publishes them; so the disk already works for the next group while this one is published. No timer forms groups, and no
thread commits but the callers' (LevelDB and RocksDB do it so).

The publish gate is taken before leadership is passed on, which keeps publication in version order.
"""

import threading
from collections import deque
from typing import NamedTuple

from publishers.block import Block
from publishers.errors import LogClosed, LogError, LogFailed, LogFull
from publishers.options import LogOptions
from publishers.publication import Publication, Published, wake
from publishers.subscription import ChangeSubscription
from publishers.wal import Appended, Transaction, Wal, decode_payload
from publishers.wal.frame import COMPRESSED
from publishers.wal.transaction import inflate

__all__ = ["Commit", "Committer"]


class Commit(NamedTuple):
    """What became of a transaction.

    Attributes:
        version: Its version; 0 for a duplicate that is not the last of its producer.
        duplicate: Whether its producer had committed this sequence, or a later one, before. Nothing was written then.
        changes: Its changes, the TRANSACTION event included.
        committed_at: Commit time in microseconds since the Unix epoch; 0 for a duplicate.
    """

    version: int
    duplicate: bool
    changes: int
    committed_at: int


class _Pending:
    """A transaction in the queue, and the place where its thread waits; without one it only asks for a sync.

    Attributes:
        transaction: What to commit.
        durable: Whether to sync, whatever the policy.
        commit: What became of it.
        error: Or why nothing did.
        leads: Whether its thread leads.
        taken: Whether a leader has taken it from the queue.
        done: Whether its thread may return.
        group: As a leader: whom it has taken.
        decided: As a leader: whether the fate of its group is known.
        verdict: As a leader: what its group failed with.
        woken: As a leader: whom its publishing concerns and who was not woken yet.
    """

    __slots__ = (
        "_asleep",
        "commit",
        "decided",
        "done",
        "durable",
        "error",
        "group",
        "leads",
        "taken",
        "transaction",
        "verdict",
        "woken",
    )

    def __init__(self, transaction: Transaction | None, *, durable: bool) -> None:
        self.transaction = transaction
        self.durable = durable
        self.commit: Commit | None = None
        self.error: LogError | None = None
        self.leads = False
        self.taken = False
        self.done = False
        # No Event: an interrupt inside its methods, which are written in Python, may leave it locked for ever.
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self.group: list[_Pending] = []
        self.decided = False
        self.verdict: LogError | None = None
        self.woken: deque[ChangeSubscription] = deque()

    @property
    def size(self) -> int:
        return 0 if self.transaction is None or self.transaction.spooled else self.transaction.size

    def wait(self) -> None:
        """Sleeps until its thread is to lead or may return. If that is interrupted, it can be done again."""
        while not (self.leads or self.done):
            self._asleep.acquire()

    def lead(self) -> None:
        """Lets its thread lead; may be done twice."""
        self.leads = True
        self._rouse()

    def finish(self, error: LogError | None) -> None:
        """Lets its thread return; may be done twice, and what was said first counts."""
        if not self.done:
            if error is not None:
                self.commit, self.error = None, error
            self.done = True
        self._rouse()

    def _rouse(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:  # it was roused before
            return


class _Repeated(NamedTuple):
    """A transaction that its producer has committed before, or one that comes after a later one.

    Attributes:
        member: The transaction.
        ahead: The one in the same group that it repeats, or comes after.
        version: The version of the one that it repeats; None for that of ``ahead``, 0 if unknown.
    """

    member: _Pending
    ahead: _Pending | None
    version: int | None


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
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._leader: _Pending | None = None
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
            pending = _Pending(transaction, durable=durable)
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
            self._run(_Pending(None, durable=True))

    def close(self) -> None:
        """Refuses later commits, lets those in progress finish, and syncs what is left."""
        with self._lock:
            self._closed = True
            self._room.notify_all()
        if self._failed is None:
            self._run(_Pending(None, durable=True))

    @property
    def waiting(self) -> tuple[int, int]:
        """Commits that wait for their turn, and their bytes."""
        return len(self._queue), self._queued_bytes

    def _run(self, pending: _Pending) -> None:
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

    def _enter(self, pending: _Pending) -> None:
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

    def _lead(self, pending: _Pending) -> None:
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

    def _gather(self, pending: _Pending) -> list[_Pending]:
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

    def _write(self, group: list[_Pending]) -> list[Published]:
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
            self._unsynced.append(_published(transaction, done))
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

    def _syncs(self, group: list[_Pending]) -> bool:
        """Whether a group is synced before its members return."""
        if self._options.sync == "always" or any(member.durable for member in group):
            return True
        return self._options.sync == "interval" and self._unsynced_bytes > self._options.queue_bytes

    def _append(self, fresh: list[_Pending]) -> list[Appended]:
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

    def _sift(self, group: list[_Pending]) -> tuple[list[_Repeated], list[_Pending]]:
        """Tells repetitions of producers from what is new, in queue order, so that racing retries meet it too."""
        repeated: list[_Repeated] = []
        fresh: list[_Pending] = []
        newest: dict[bytes, tuple[_Pending, int]] = {}
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
                    repeated.append(_Repeated(member, ahead[0], None if sequence == ahead[1] else 0))
                    continue
                if known is not None and sequence <= known.sequence:
                    repeated.append(
                        _Repeated(member, None, known.version if sequence == known.sequence else 0)
                    )
                    continue
                newest[transaction.producer] = (member, sequence)
            fresh.append(member)
        return repeated, fresh

    def _pass_on(self, pending: _Pending) -> None:
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

    def _give_up(self, pending: _Pending, error: BaseException) -> None:
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

    def _abandon(self, pending: _Pending, error: BaseException) -> None:
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


def _published(transaction: Transaction, appended: Appended) -> Published:
    if transaction.spooled:
        return Published(appended.version, transaction.count + 1, None)
    return Published(appended.version, transaction.count + 1, lambda: _blocks(transaction, appended))


def _blocks(transaction: Transaction, appended: Appended) -> list[Block]:
    blocks = []
    for sealed, header in zip(transaction.payloads, appended.frames, strict=True):
        payload = inflate(sealed.data, sealed.raw) if header.flags & COMPRESSED else sealed.data
        columns, annotations = decode_payload(payload, header.count)
        blocks.append(Block.of(header, columns, annotations))
    return blocks

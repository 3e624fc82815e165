"""Commits on their way: what waits in the queue of a log, and what became of it."""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from uuid import UUID

from publishers.blocks.block import Block
from publishers.errors import InvalidChange, LogError, PenstockError
from publishers.fanout.ports import Wakeable
from publishers.fanout.publish_gate import Published
from publishers.wal import Appended, ProducerState, Transaction, decode_payload
from publishers.wal.format.compression import inflate
from publishers.wal.format.frame import COMPRESSED

__all__ = ["Commit", "Pending", "Repeated", "sift", "to_publish"]


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


class Pending:
    """A transaction in the queue, and the place where its thread waits; without one it only asks for a sync.

    A task in its place is done by whoever leads, in a group of its own, and answers what is to be published.

    Attributes:
        transaction: What to commit.
        durable: Whether to sync, whatever the policy.
        hidden: Whether it was committed with ``visible=False``.
        task: What to do in its place.
        size: Bytes that it keeps in memory; for a task, what fills a group.
        commit: What became of it.
        error: Or why nothing did.
        outdated: Tells why it may not be written any more, if anything can be in the way; see ``Committer.commit``.
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
        "hidden",
        "leads",
        "outdated",
        "size",
        "taken",
        "task",
        "transaction",
        "verdict",
        "woken",
    )

    def __init__(
        self,
        transaction: Transaction | None,
        *,
        durable: bool,
        hidden: bool = False,
        task: Callable[[], list[Published]] | None = None,
        size: int = 0,
    ) -> None:
        self.transaction = transaction
        self.durable = durable
        self.hidden = hidden
        self.task = task
        self.size = size if transaction is None or transaction.spooled else transaction.size
        self.commit: Commit | None = None
        self.error: PenstockError | None = None
        self.outdated: Callable[[], InvalidChange | None] | None = None
        self.leads = False
        self.taken = False
        self.done = False
        # No Event: an interrupt inside its methods, which are written in Python, may leave it locked for ever.
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self.group: list[Pending] = []
        self.decided = False
        self.verdict: LogError | None = None
        self.woken: deque[Wakeable] = deque()

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

    def is_outdated(self) -> bool:
        """Whether it may not be written any more, if there is somebody to ask; it is told so then."""
        if self.outdated is not None:
            self.error = self.outdated()
        return self.error is not None

    def _rouse(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:  # it was roused before
            return


class Repeated(NamedTuple):
    """A transaction that its producer has committed before, or one that comes after a later one.

    Attributes:
        member: The transaction.
        ahead: The one in the same group that it repeats, or comes after.
        version: The version of the one that it repeats; None for that of ``ahead``, 0 if unknown.
    """

    member: Pending
    ahead: Pending | None
    version: int | None


def sift(
    group: list[Pending], producer_state: Callable[[UUID], ProducerState | None]
) -> tuple[list[Repeated], list[Pending]]:
    """Tells repetitions of producers from what is new, in queue order, so that racing retries meet it too.

    Who is outdated is neither, and is told so.
    """
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
            known = producer_state(producer) if ahead is None else None
            if ahead is not None and sequence <= ahead[1]:
                repeated.append(Repeated(member, ahead[0], None if sequence == ahead[1] else 0))
                continue
            if known is not None and sequence <= known.sequence:
                repeated.append(Repeated(member, None, known.version if sequence == known.sequence else 0))
                continue
        if member.outdated is not None and member.is_outdated():
            continue  # after what it repeats was looked for, and before anybody repeats it
        if producer is not None:
            newest[transaction.producer] = (member, sequence)
        fresh.append(member)
    return repeated, fresh


def to_publish(transaction: Transaction, appended: Appended) -> Published:
    """What a written transaction is to the publish gate: too large for memory, or made into blocks if anybody wants it."""
    blocks = None if transaction.spooled else partial(_blocks, transaction, appended)
    return Published(
        appended.version, transaction.count + 1, blocks, transaction.bytes, appended.committed_at
    )


def _blocks(transaction: Transaction, appended: Appended) -> list[Block]:
    blocks = []
    for sealed, header in zip(transaction.payloads, appended.frames, strict=True):
        payload = inflate(sealed.data, sealed.raw) if header.flags & COMPRESSED else sealed.data
        columns, annotations = decode_payload(payload, header.count)
        blocks.append(Block.of(header, columns, annotations))
    return blocks

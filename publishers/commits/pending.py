"""Commits on their way: what waits in the queue of a log, and what became of it."""

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

from publishers.blocks.block import Block
from publishers.commits.expectation import Expectation, GroupAhead
from publishers.errors import InvalidChange, LogError, PenstockError, PredecessorFailed
from publishers.fanout.publish_gate import Published
from publishers.losses import tell_changes
from publishers.wal import Appended, ProducerState, Transaction, decode_payload
from publishers.wal.format.compression import inflate
from publishers.wal.format.frame import COMPRESSED, NO_PRODUCER

__all__ = ["Commit", "Pending", "Repeated", "blocks_of", "sift", "tell_repeated", "to_publish"]


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
        expect: What its writer expects of the log, or None.
        after: What must not have been refused, or None.
        inside: Whether it was let into the queue.
        leads: Whether its thread leads.
        taken: Whether a leader has taken it from the queue.
        done: Whether its thread may return.
        asleep: Whether a thread waits for it, or is about to.
    """

    __slots__ = (
        "_roused",
        "after",
        "asleep",
        "commit",
        "done",
        "durable",
        "error",
        "expect",
        "hidden",
        "inside",
        "leads",
        "outdated",
        "size",
        "taken",
        "task",
        "transaction",
    )

    def __init__(
        self,
        transaction: Transaction | None,
        *,
        durable: bool,
        hidden: bool = False,
        task: Callable[[], list[Published]] | None = None,
        size: int = 0,
        outdated: Callable[[], InvalidChange | None] | None = None,
        expect: Expectation | None = None,
        after: "Pending | None" = None,
    ) -> None:
        self.transaction = transaction
        self.durable = durable
        self.hidden = hidden
        self.task = task
        self.size = size if transaction is None or transaction.spool is not None else transaction.size
        self.commit: Commit | None = None
        self.error: PenstockError | None = None
        self.outdated = outdated
        self.expect = expect
        self.after = after
        self.inside = self.leads = self.taken = self.done = self.asleep = False
        # No Event: an interrupt inside its methods, which are written in Python, may leave it locked for ever.
        self._roused = threading.Lock()
        self._roused.acquire()

    def wait(self) -> None:
        """Sleeps until it is roused, if it was not since the last time."""
        self._roused.acquire()

    def rouse(self) -> None:
        """Lets its thread look what it may do now; may be done twice."""
        try:
            self._roused.release()
        except RuntimeError:  # it was roused before
            return

    def finish(self, error: LogError | None) -> None:
        """Lets its thread return."""
        if error is not None:
            self.commit, self.error = None, error
        self.done = True
        self.rouse()

    def is_outdated(self) -> bool:
        """Whether it may not be written any more, if there is somebody to ask; it is told so then."""
        if self.outdated is not None:
            self.error = self.outdated()
        return self.error is not None

    def is_behind_a_refusal(self) -> bool:
        """Whether what it was submitted behind was refused; it is told so then."""
        after, self.after = self.after, None
        if after is not None and after.error is not None:
            self.error = PredecessorFailed()
        return self.error is not None


class Repeated(NamedTuple):
    """A transaction that its producer has committed before, or one that comes after a later one, or was not to come after one.

    Attributes:
        member: The transaction; it is told why already if it is refused.
        ahead: The one in the same group that it repeats, or comes after; if that is not written, this one shares its fate.
        version: The version of the one that it repeats; None for that of ``ahead``, 0 if unknown.
    """

    member: Pending
    ahead: Pending | None
    version: int | None


def sift(
    group: list[Pending], producer_state: Callable[[UUID], ProducerState | None]
) -> tuple[list[Repeated], list[Pending]]:
    """Tells repetitions of producers from what is new, in queue order, so that racing retries meet it too.

    Who is outdated is neither, and is told so; so is one whose writer expected something else, once it is known to be no
    repetition: an honest one is to be told what became of the first.
    """
    repeated: list[Repeated] = []
    fresh: list[Pending] = []
    newest: dict[bytes, tuple[Pending, int]] = {}
    ahead_of: GroupAhead | None = None  # what is in fresh, once somebody expects something
    for member in group:
        transaction = member.transaction
        if transaction is None:
            member.commit = Commit(0, duplicate=False, changes=0, committed_at=0)
            continue
        producer = None if transaction.producer == NO_PRODUCER else transaction.producer_id
        if producer is not None and (
            again := _repeats(member, transaction, producer, newest, producer_state)
        ):
            repeated.append(again)
            continue
        if member.after is not None and member.is_behind_a_refusal():
            continue
        if member.outdated is not None and member.is_outdated():
            continue  # after what it repeats was looked for, and before anybody repeats it
        if member.expect is not None:
            if ahead_of is None:
                ahead_of = GroupAhead(one.transaction for one in fresh if one.transaction is not None)
            if (refusal := member.expect.judge_turn(ahead_of)) is not None:
                member.error = refusal.error
                if refusal.ahead is not None:
                    repeated.append(Repeated(member, fresh[refusal.ahead], None))
                continue
        if producer is not None:
            newest[transaction.producer] = (member, transaction.sequence)
        fresh.append(member)
        if ahead_of is not None:
            ahead_of.transactions.append(transaction)
    return repeated, fresh


def tell_repeated(transaction: Transaction, version: int, log_id: UUID) -> None:
    """Writes a line of log for each change that is ignored, because its producer has committed it before."""

    def changes() -> Iterator[tuple[str, bytes | None]]:
        for sealed in transaction.payloads if transaction.spool is None else ():
            payload = inflate(sealed.data, sealed.raw) if sealed.flags & COMPRESSED else sealed.data
            columns, _ = decode_payload(payload, sealed.count)
            for row, key in enumerate(columns.key):
                yield columns.entity_types[0 if columns.type_ids is None else columns.type_ids[row]], key

    where = f"as version {version}" if version else "or a later one"
    why = f"ignored, as producer {transaction.producer_id} has committed sequence {transaction.sequence} before, {where}"
    tell_changes(logging.INFO, why, log_id, transaction.count, changes)


def _repeats(
    member: Pending,
    transaction: Transaction,
    producer: UUID,
    newest: dict[bytes, tuple[Pending, int]],
    producer_state: Callable[[UUID], ProducerState | None],
) -> Repeated | None:
    """What a transaction of a producer repeats, or comes after, in its group or in the log."""
    sequence = transaction.sequence
    ahead = newest.get(transaction.producer)
    if ahead is not None:
        return (
            Repeated(member, ahead[0], None if sequence == ahead[1] else 0) if sequence <= ahead[1] else None
        )
    known = producer_state(producer)
    if known is None or sequence > known.sequence:
        return None
    return Repeated(member, None, known.version if sequence == known.sequence else 0)


def to_publish(transaction: Transaction, appended: Appended) -> Published:
    """What a written transaction is to the publish gate: too large for memory, or made into blocks if anybody wants it."""
    blocks = None if transaction.spool is not None else partial(blocks_of, transaction, appended)
    fields = (appended.version, transaction.count + 1, blocks, transaction.bytes, appended.committed_at)
    return tuple.__new__(Published, fields)


def blocks_of(transaction: Transaction, appended: Appended) -> list[Block]:
    """The changes of a written transaction that is in memory, for those who want them."""
    rows = transaction.rows
    if rows is not None:  # as `Block.of`, for every commit that concerns a subscriber
        block = Block(
            rows,
            version=appended.version,
            first_index=1,
            leads=True,
            ends=True,
            transaction_count=transaction.count + 1,
            transaction_bytes=transaction.bytes,
            committed_at=appended.committed_at,
            annotations=rows.annotations,
        )
        return [block]
    blocks = []
    for sealed, header in zip(transaction.payloads, appended.frames, strict=True):
        payload = inflate(sealed.data, sealed.raw) if header.flags & COMPRESSED else sealed.data
        columns, annotations = decode_payload(payload, header.count)
        blocks.append(Block.of(header, columns, annotations))
    return blocks

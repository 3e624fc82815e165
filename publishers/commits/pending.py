"""Queue entries of a log, the outcomes of their commits, and whether a repeated transaction has the content of the first one."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from enum import Enum
from functools import partial
from itertools import chain, zip_longest
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from publishers.blocks.block import Block
from publishers.blocks.decode import attached_of, names_of, stored_rows
from publishers.commits.errors import ProducerConflict
from publishers.commits.expectation import Expectation, GroupAhead
from publishers.errors import (
    HistoryPruned,
    InvalidChange,
    LogError,
    LogFailed,
    PenstockError,
    PredecessorFailed,
)
from publishers.fanout.publish_gate import Published
from publishers.losses import log_changes
from publishers.model.fields import ATTACHED, FieldKind, values_of
from publishers.options import check_switches
from publishers.schemas.stamping import unsealed
from publishers.wal import Appended, Columns, Transaction, Wal, decode_payload
from publishers.wal.format.compression import inflate
from publishers.wal.format.frame import COMPRESSED, LAST, NO_PRODUCER

__all__ = [
    "Commit",
    "CommitStage",
    "Pending",
    "Repeated",
    "answer",
    "blocks_of",
    "differs",
    "sift",
    "to_publish",
]


_decoder: Final = msgspec.json.Decoder(float_hook=Decimal)
_encoder: Final = msgspec.json.Encoder(order="deterministic", decimal_format="number")
_repeated: Final = values_of(
    tuple(field for field in ATTACHED if field.repeated and field.kind is not FieldKind.JSON), stored=True
)


def stored_differs(repeated: Transaction, wal: Wal, version: int) -> bool:
    """Whether a transaction has another content than a version of the log; False if that is no longer kept.

    Raises:
        LogFailed: If the log could not be synced, which reading the version requires.
        LogError: If the version cannot be read.
    """
    if wal.durable < version:
        wal.sync()  # only durable frames can be read
    try:
        return differs(repeated, _stored(wal, version))
    except HistoryPruned:
        return False


def differs(repeated: Transaction, original: Iterable[Columns]) -> bool:
    """Whether a transaction has other changes, or another order of them, than its original.

    Not compared is what the log or the time of the attempt adds: the annotations of the transaction, in which traces are;
    schema versions, entry versions, origins, and times at which entities expire.
    """
    pairs = zip_longest(_rows(unsealed(repeated)), _rows(original))
    return any(one != other and _content(one) != _content(other) for one, other in pairs)


def named_producer(transaction: Transaction) -> str:
    """The name of a transaction's producer; its id if it has no name."""
    sealed, data = next(transaction.read())
    payload = inflate(data, sealed.raw) if sealed.flags & COMPRESSED else data
    name = msgspec.json.decode(decode_payload(payload, sealed.count)[1]).get("producer")
    return str(transaction.producer_id if name is None else name)


def _stored(wal: Wal, version: int) -> Iterator[Columns]:
    reader = wal.whole
    location = reader.locate(version)
    while (frame := reader.read(location)) is not None and frame.header.version == version:
        yield frame.columns
        if frame.header.flags & LAST:
            return
        location = frame.next


def _rows(parts: Iterable[Columns]) -> Iterator[tuple[Any, ...]]:
    return chain.from_iterable(stored_rows(part, 0, part.count) for part in parts if part.count)


def _content(row: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """What a stored row says, whatever the order of members and the white space in its JSON."""
    if row is None:
        return None
    kind, entity_type, key, body, before, changed, meta = row
    attached = attached_of(meta)
    names, flaw = names_of(changed)
    return (
        kind,
        entity_type,
        key,
        _plain(body),
        _plain(before),
        changed if names is None or flaw is not None else sorted(names),
        _plain(bytes(attached.meta)) if attached.error is None else meta,
        *_repeated(attached),
    )


def _plain(stored: bytes | None) -> bytes | None:
    try:
        return _encoder.encode(_decoder.decode(stored)) if stored else stored
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError):
        return stored


class Commit(NamedTuple):
    """The outcome of a transaction.

    Attributes:
        version: Its version; 0 for a duplicate that is not the latest sequence of its producer.
        duplicate: Whether its producer had already committed this sequence or a later one. Then nothing was written.
        changes: Number of its changes, the TRANSACTION event included.
        committed_at: Commit time in microseconds since the Unix epoch; 0 for a duplicate.
    """

    version: int
    duplicate: bool
    changes: int
    committed_at: int


class CommitStage(Enum):
    """How far a queue entry has come."""

    OUTSIDE = "it is not in the queue; without room there, its thread waits to enter again"
    WAITING = "it is in the queue, and may be the leader"
    TAKEN = "a leader has taken it into a group"
    DONE = "its outcome is known, and its thread may return"


class Pending:
    """A queue entry on which its thread waits: a transaction, a task, or with neither a request to sync.

    The leader runs a task in a group of its own; the task returns what is to be published.

    Attributes:
        transaction: The transaction to commit.
        durable: Whether to sync, whatever the policy.
        hidden: Whether the transaction was committed with ``visible=False``.
        task: Runs in place of a commit.
        size: Bytes that the entry keeps in memory; for a task, enough to fill a group.
        commit: The outcome.
        error: Why there is no outcome.
        outdated: Returns why the transaction may no longer be written; None if nothing can outdate it. See ``Committer.commit``.
        expect: The writer's expectation about the log, or None.
        after: The predecessor, whose refusal refuses this entry too; or None.
        trust: Whether a repetition of the producer's newest sequence is not compared with the first transaction.
        stage: How far it has come.
        asleep: Whether a thread waits, or is about to wait, for the entry.
    """

    __slots__ = (
        "_roused",
        "after",
        "asleep",
        "commit",
        "durable",
        "error",
        "expect",
        "hidden",
        "outdated",
        "size",
        "stage",
        "task",
        "transaction",
        "trust",
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
        trust: bool = False,
    ) -> None:
        self.transaction: Transaction | None = transaction
        self.trust: bool = trust
        if trust is not False:
            check_switches(trust=trust)
        self.durable: bool = durable
        self.hidden: bool = hidden
        self.task: Callable[[], list[Published]] | None = task
        self.size: int = size if transaction is None or transaction.spool is not None else transaction.size
        self.commit: Commit | None = None
        self.error: PenstockError | None = None
        self.outdated: Callable[[], InvalidChange | None] | None = outdated
        self.expect: Expectation | None = expect
        self.after = after
        self.stage: CommitStage = CommitStage.OUTSIDE
        self.asleep: bool = False
        # No Event: its methods are written in Python, and an interrupt inside one may leave it locked for ever.
        self._roused = threading.Lock()
        self._roused.acquire()

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.stage is CommitStage.DONE

    def wait(self) -> None:
        """Blocks until `rouse`; returns at once if that was called since the last wait."""
        self._roused.acquire()

    def rouse(self) -> None:
        """Wakes the entry's thread to look at its state again; a second call has no effect."""
        try:
            self._roused.release()
        except RuntimeError:  # it was woken before
            return

    def appoint(self) -> None:
        """Starts the leadership of the entry on the thread that leads for it; the caller holds the lock of the queue."""
        self.rouse()

    def refuse(self, error: LogError) -> None:
        """Sets the error of the entry's group as its outcome, before another leader looks at it as a predecessor."""
        self.commit, self.error = None, error

    def finish(self) -> None:
        """Notes that the outcome is known, and lets the entry's thread return."""
        self.stage = CommitStage.DONE
        self.rouse()

    def is_outdated(self) -> bool:
        """Whether the transaction may no longer be written, according to ``outdated``; sets ``error`` then."""
        if self.outdated is not None:
            self.error = self.outdated()
        return self.error is not None

    def is_behind_a_refusal(self) -> bool:
        """Whether the predecessor was refused; sets ``error`` then."""
        after, self.after = self.after, None
        if after is not None and after.error is not None:
            self.error = PredecessorFailed()
        return self.error is not None


class Repeated(NamedTuple):
    """A member of a group that is not written because of another commit.

    Either its producer has already committed its sequence or a later one, or a commit ahead of it in the group contradicts its
    expectation.

    Attributes:
        member: The queue entry; its ``error`` is already set if it is refused.
        ahead: The earlier entry of the same group that it repeats or follows, or None. If that one is not written, this
            entry fails with the same error.
        version: The version of the commit that it repeats; None means the version of ``ahead``, 0 an unknown version.
    """

    member: Pending
    ahead: Pending | None
    version: int | None


def sift(group: list[Pending], wal: Wal) -> tuple[list[Repeated], list[Pending]]:
    """Separates the repetitions of producers from new transactions, in queue order, so that racing retries are found too.

    An outdated transaction is neither: its ``error`` is set. So is one whose expectation fails, but only after it is known
    not to be a repetition: a retry must get the outcome of its first attempt. A repetition of a producer's newest sequence gets
    an ``error`` if it has another content than the first transaction.

    Raises:
        LogFailed: If earlier transactions could not be synced, which reading them requires.
    """
    repeated: list[Repeated] = []
    fresh: list[Pending] = []
    newest: dict[bytes, tuple[Pending, int]] = {}
    ahead_of: GroupAhead | None = None  # the members of fresh, from the first expectation on
    for member in group:
        transaction = member.transaction
        if transaction is None:
            member.commit = Commit(0, duplicate=False, changes=0, committed_at=0)
            continue
        producer = None if transaction.producer == NO_PRODUCER else transaction.producer_id
        if producer is not None and (again := _repeats(member, transaction, producer, newest, fresh, wal)):
            repeated.append(again)
            continue
        if member.after is not None and member.is_behind_a_refusal():
            continue
        if member.outdated is not None and member.is_outdated():
            continue  # after the search for what it repeats, and before a later entry can repeat it
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


def answer(repeated: Iterable[Repeated], log_id: UUID) -> None:
    """Sets the outcomes of repetitions, once those of the transactions ahead of them in their group are set."""
    for member, ahead, version in repeated:
        if ahead is not None and ahead.commit is None:
            # The transaction that it repeats, contradicts or follows was not written after all.
            member.error = ahead.error
            continue
        if member.error is not None:
            continue
        original = ahead.commit.version if ahead and ahead.commit and version is None else version
        member.commit = Commit(original or 0, duplicate=True, changes=0, committed_at=0)
        assert member.transaction is not None
        _log_repeated(member.transaction, original or 0, log_id)


def _log_repeated(transaction: Transaction, version: int, log_id: UUID) -> None:
    """Logs each change that is ignored because its producer has committed it before."""

    def changes() -> Iterator[tuple[str, bytes | None]]:
        for sealed in transaction.payloads if transaction.spool is None else ():
            payload = inflate(sealed.data, sealed.raw) if sealed.flags & COMPRESSED else sealed.data
            columns, _ = decode_payload(payload, sealed.count)
            for row, key in enumerate(columns.key):
                yield columns.entity_types[0 if columns.type_ids is None else columns.type_ids[row]], key

    where = f"as version {version}" if version else "or a later one"
    why = f"ignored, as producer {transaction.producer_id} has committed sequence {transaction.sequence} before, {where}"
    log_changes(logging.INFO, why, log_id, transaction.count, changes)


def _repeats(
    member: Pending,
    transaction: Transaction,
    producer: UUID,
    newest: dict[bytes, tuple[Pending, int]],
    fresh: list[Pending],
    wal: Wal,
) -> Repeated | None:
    """Returns what a transaction of a producer repeats or follows, in its group or in the log; None if it is new."""
    sequence = transaction.sequence
    ahead = newest.get(transaction.producer)
    if ahead is not None:
        if sequence > ahead[1]:
            return None
        again = Repeated(member, ahead[0], None if sequence == ahead[1] else 0)
    else:
        known = wal.producer(producer)
        if known is None or sequence > known.sequence:
            return None
        again = Repeated(member, None, known.version if sequence == known.sequence else 0)
    if again.version != 0 and not member.trust:
        member.error = _conflict(transaction, again, fresh, wal)
    return again


def _conflict(
    transaction: Transaction, again: Repeated, fresh: list[Pending], wal: Wal
) -> PenstockError | None:
    """Returns why a transaction is no repetition of the one with its sequence; None if it is one, as far as that is kept."""
    try:
        if again.ahead is None:
            version = again.version or 0
            other = stored_differs(transaction, wal, version)
        else:
            assert again.ahead.transaction is not None
            version = wal.appended + 1 + fresh.index(again.ahead)
            other = differs(transaction, unsealed(again.ahead.transaction))
        if not other:
            return None
        return ProducerConflict(named_producer(transaction), transaction.sequence, version)
    except LogFailed:
        raise
    except PenstockError as error:
        return error.with_traceback(None)


def to_publish(transaction: Transaction, appended: Appended) -> Published:
    """Describes a written transaction to the publish gate. Blocks are made on demand; a spooled transaction has none."""
    blocks = None if transaction.spool is not None else partial(blocks_of, transaction, appended)
    fields = (appended.version, transaction.count + 1, blocks, transaction.bytes, appended.committed_at)
    return tuple.__new__(Published, fields)


def blocks_of(transaction: Transaction, appended: Appended) -> list[Block]:
    """Makes the blocks of a written transaction that is in memory."""
    rows = transaction.rows
    if rows is not None:  # as `Block.of`; inlined for each commit that matches a subscription
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

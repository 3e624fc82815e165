"""The server side of ``penstock.v1+json`` as a machine: messages in, effects out.

The machine does no I/O, awaits nothing and has no clock: bytes, events and the time come in as arguments, and effects come
out, in order. The driver subscribes, cancels, and writes the messages.
"""

import math
from collections.abc import Callable, Container, Iterable
from typing import Any, ClassVar

from publishers.commits.group_commit import Commit
from publishers.errors import PenstockError
from publishers.fanout.batch import Batch
from transports.codec.again import AgainRequest
from transports.codec.appends import AppendRequest, appended
from transports.codec.envelope import Init, Ping, pong
from transports.codec.events import EventEncoder
from transports.codec.groups import JoinRequest
from transports.codec.messages import (
    Abort,
    Acknowledge,
    Again,
    Append,
    Ask,
    BeginParts,
    Call,
    CommitParts,
    Complete,
    Join,
    Message,
    Part,
    Request,
    Subscribe,
    SubscribeRequest,
    encode,
    parse,
)
from transports.errors import (
    CloseCode,
    GoingAway,
    InvalidDemand,
    InvalidRequest,
    NoTransaction,
    TransactionIdle,
    Violation,
    close_reason,
)
from transports.limits import BATCH_EVENTS, CREDITS_MAX, Limits
from transports.operations.operation import LogOperation
from transports.operations.table import read_operation
from transports.problems import Problem, describe
from transports.protocol.appends import AppendEntry, AppendWindow, Write
from transports.protocol.connection import Authenticate, Demand, Effect, Send, ServerConnection
from transports.protocol.consumers import GROUP_CALLS, ConsumerEntry, DemandDeliveries, JoinGroup
from transports.protocol.parts import (
    TRANSACTION_IDLE,
    TRANSACTIONS,
    BeginSpool,
    DropSpool,
    OpenTransactions,
    Spool,
    TransactionEntry,
    WriteSpool,
)
from transports.protocol.states import ConnectionPhase, EntryStage, PhaseEvent, advance
from transports.protocol.subscriptions import (
    AckSlot,
    AskRows,
    Open,
    Operate,
    OrderEntry,
    SubscriptionEntry,
)

__all__ = ["ServerSession"]


def _nobody(_code: str) -> None:
    """Counts nothing."""


def _nbytes(text: bytes | str) -> int:
    """The bytes of a message that was parsed."""
    return len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode())


class ServerSession(ServerConnection[SubscriptionEntry | OrderEntry | ConsumerEntry]):
    """The server side of one connection.

    Attributes:
        window: Its appends that are not answered yet.
        transactions: Its transactions in parts that are not committed yet.
        refused: Called with the error code of each refused append.

    Args:
        limits: Bounds of the connection.
        server: Name and version that the client receives.
        now: The time in seconds, of any monotonic clock.
    """

    _late: ClassVar[tuple[type, ...]] = (
        *(Subscribe, Request, Complete, Acknowledge, Again, Ask, Append, Join, Call),
        *(BeginParts, Part, CommitParts, Abort),
    )
    _free: ClassVar[tuple[type, ...]] = (Append, Acknowledge, Call)

    def __init__(self, limits: Limits, *, server: str, now: float) -> None:
        super().__init__(limits, now=now)
        self.window: AppendWindow = AppendWindow(limits)
        self.transactions: OpenTransactions = OpenTransactions(limits)
        self.refused: Callable[[str], None] = _nobody
        self._server = server
        self._checkpoints = 0

    # Events of the client.

    def _take(self, text: bytes | str, now: float) -> list[Effect]:
        message = parse(text)
        self._admit(message, now)
        match message:
            case Init():
                return [Authenticate(message.payload or {})]
            case Ping():
                return [Send(pong(message.payload))]
            case Subscribe():
                return self._subscribe(message, now)
            case Request():
                return self._request(message)
            case Acknowledge():
                return self._acknowledge(message)
            case Again():
                return self._again(message)
            case Ask():
                return self._ask(message)
            case Join():
                return self._join(message)
            case Call():
                return self._call(message)
            case Complete():
                return self._forget(self.entries.get(message.id))
            case _:
                return self._write(message, _nbytes(text), now)

    def _write(self, message: Message, nbytes: int, now: float) -> list[Effect]:
        match message:
            case Append():
                return self._append(message, nbytes)
            case BeginParts():
                return self._begin(message, nbytes, now)
            case Part():
                return self._part(message, nbytes, now)
            case CommitParts():
                return self._commit(message, nbytes)
            case Abort():
                return self._drop(self.transactions.find(message.id))
            case _:
                return []

    def _subscribe(self, message: Subscribe, now: float) -> list[Effect]:
        self._check_free(message.id, self.transactions)

        def made() -> tuple[SubscriptionEntry, Effect]:
            request = SubscribeRequest.of(message.payload, self.limits)
            entry = SubscriptionEntry(message.id, request.heartbeat, now)
            return entry, Open(entry, request)

        return self._enter(message.id, made)

    def _ask(self, message: Ask) -> list[Effect]:
        self._check_free(message.id, self.transactions)

        def made() -> tuple[OrderEntry, Effect]:
            entry = OrderEntry(message.id, b"")
            return entry, Operate(entry, read_operation(str(message.__struct_config__.tag), message.payload))

        return self._enter(message.id, made)

    def _join(self, message: Join) -> list[Effect]:
        self._check_free(message.id, self.transactions)

        def made() -> tuple[ConsumerEntry, Effect]:
            entry = ConsumerEntry(message.id)
            return entry, JoinGroup(entry, JoinRequest.of(message.payload))

        return self._enter(message.id, made)

    def _call(self, message: Call) -> list[Effect]:
        entry = self.entries.get(message.id)
        if not isinstance(entry, ConsumerEntry) or entry.stage is not EntryStage.ACTIVE:
            self._spend()
            return []  # the consumer has ended meanwhile
        try:
            return [entry.call(message)]
        except PenstockError as error:
            self._spend()  # a call that is refused at once counts as a control message
            problem = describe(error)
            self.errors[problem.code] += 1
            return [entry.answer(message.n, problem)]

    def _request(self, message: Request) -> list[Effect]:
        entry = self.entries.get(message.id)
        if entry is None or isinstance(entry, OrderEntry):
            return []
        if type(message.n) is not int or not 1 <= message.n <= CREDITS_MAX:
            return self._end(entry, describe(InvalidDemand("n", message.n, 1, CREDITS_MAX)))
        if isinstance(entry, ConsumerEntry):
            return [DemandDeliveries(entry, message.n)]
        return [Demand(entry, message.n)]

    def _acknowledge(self, message: Acknowledge) -> list[Effect]:
        entry = self.entries.get(message.id)
        if not isinstance(entry, SubscriptionEntry) or entry.stage is not EntryStage.ACTIVE:
            self._spend()
            return []  # the subscription has ended meanwhile
        if not message.durable or entry.storing:
            self._spend()
        # The next durable one is free of charge once this one is answered.
        entry.storing = entry.storing or message.durable
        return [AckSlot(entry, message.cursor, message.n, message.durable)]

    def _again(self, message: Again) -> list[Effect]:
        entry = self.entries.get(message.id)
        if not isinstance(entry, SubscriptionEntry):
            return []  # the subscription has ended meanwhile
        try:
            if entry.stage is not EntryStage.ACTIVE:
                raise InvalidRequest("id", message.id, "that of a subscription for which subscribed was sent")
            return [AskRows(entry, AgainRequest.of(message.payload))]
        except PenstockError as error:
            return self._end(entry, describe(error))

    def _append(self, message: Append, nbytes: int) -> list[Effect]:
        self._check_free(message.id, self.entries, self.transactions)
        entry = self.window.take(message.id, nbytes)
        try:
            if self.phase is ConnectionPhase.DRAINING:
                raise GoingAway
            request = AppendRequest.of(message.payload.fields())
            self.window.admit(entry, request)
        except PenstockError as error:
            self._spend()  # an append that is refused at once counts as a control message
            return self.append_failed(entry, describe(error))
        return [Write(entry, request, bytes(message.payload.changes))]

    # Transactions in parts.

    def _begin(self, message: BeginParts, nbytes: int, now: float) -> list[Effect]:
        self._check_free(message.id, self.entries, self.transactions)
        try:
            if self.phase is ConnectionPhase.DRAINING:
                raise GoingAway
            entry = self.transactions.begin(message.id, AppendRequest.of(message.payload), now, nbytes)
        except PenstockError as error:
            problem = describe(error)
            self.refused(problem.code)
            return [self._refusal(message.id, problem)]
        return [BeginSpool(entry)]

    def _part(self, message: Part, nbytes: int, now: float) -> list[Effect]:
        entry = self.transactions.find(message.id)
        if entry is None:  # the transaction was refused, and the client does not know yet
            return []
        try:
            self.transactions.add(entry, nbytes, now)
        except PenstockError as error:
            return self.part_failed(entry, describe(error))
        return [Spool(entry, bytes(message.payload.changes))]

    def _commit(self, message: CommitParts, nbytes: int) -> list[Effect]:
        self._check_free(message.id, self.entries)
        transaction = self.transactions.find(message.id)
        entry = self.window.take(message.id, nbytes)
        try:
            if transaction is None:
                raise NoTransaction(message.id)
            if self.phase is ConnectionPhase.DRAINING:
                raise GoingAway
            request = transaction.request.behind(message.payload.first)
            self.window.admit(entry, request)
        except PenstockError as error:
            return [*self.append_failed(entry, describe(error)), *self._drop(transaction)]
        self.transactions.end(transaction)
        return [WriteSpool(entry, request, transaction)]

    def _drop(self, transaction: TransactionEntry | None) -> list[Effect]:
        if transaction is None or transaction.ended:
            return []
        self.transactions.end(transaction)
        return [DropSpool(transaction)]

    def _check_free(self, name: str, *others: Container[str]) -> None:
        taken: tuple[Container[str], ...] = (self.window, *others)
        for other in taken:
            if name in other:
                raise Violation(CloseCode.ID_IN_USE, self._in_use(name))

    def _end(self, entry: SubscriptionEntry | OrderEntry | ConsumerEntry, problem: Problem) -> list[Effect]:
        return [self._refusal(entry.id, problem), *self._forget(entry)]

    # Calls of the server.

    def _ack(self) -> bytes:
        limits = {
            "subscriptions": self.limits.subscriptions,
            "credits": CREDITS_MAX,
            "batchEvents": BATCH_EVENTS,
            "messageBytes": self.limits.message_bytes,
            "appends": self.limits.appends,
            "appendBytes": self.limits.append_bytes,
            "transactions": TRANSACTIONS,
            "transactionBytes": self.limits.transaction_bytes,
            "groupCalls": GROUP_CALLS,
        }
        keepalive = round(self.limits.keepalive * 1000)
        payload = {"server": self._server, "keepAliveMs": keepalive, "limits": limits}
        return encode({"type": "connection_ack", "payload": payload})

    @staticmethod
    def _error(name: str, problem: Problem) -> bytes:
        return encode({"type": "error", "id": name, "payload": problem.payload()})

    @staticmethod
    def _in_use(name: str) -> str:
        return f"id {name!r} is in use; choose another or complete it first"

    def subscribed(
        self, entry: SubscriptionEntry, *, resync: bool, now: float, **reply: object
    ) -> list[Effect]:
        """Confirms that the subscription is registered: from its cursor on, no change can be missed.

        Args:
            entry: The subscription.
            resync: Whether it begins by reading from the WAL.
            now: The time.
            **reply: ``log``, ``epoch``, ``cursor``, ``oldest``, ``head``, and ``slot`` if it opens one.
        """
        if entry.stage is not EntryStage.REQUESTED:
            return []
        entry.stage = EntryStage.ACTIVE
        # A subscription that begins in RESYNC gets a checkpoint at once.
        entry.resync = entry.changed = resync
        entry.reported = entry.checked = now
        return [Send(encode({"type": "subscribed", "id": entry.id, **reply}))]

    def next(self, entry: SubscriptionEntry, batch: Batch, encoder: EventEncoder, now: float) -> bytes | None:
        """Returns the ``next`` message for a batch; None if the subscription is not active."""
        if entry.stage is not EntryStage.ACTIVE:
            return None
        entry.reported = now
        entry.unsettled = not batch.boundary
        return encoder.next(entry.head, batch)

    def rows(
        self, entry: SubscriptionEntry, events: Iterable[bytes], cursor: str, now: float
    ) -> bytes | None:
        """Returns the ``next`` message for rows and the changes between them; None if the subscription is not active.

        Args:
            entry: The subscription.
            events: The rows and changes, each as JSON.
            cursor: The cursor behind them.
            now: The time.
        """
        if entry.stage is not EntryStage.ACTIVE:
            return None
        entry.reported, entry.unsettled = now, True
        return b'%s%s],"cursor":"%s","boundary":false}' % (entry.head, b",".join(events), cursor.encode())

    def snapshot(self, entry: SubscriptionEntry, kind: str, cursor: str, **reply: object) -> list[Effect]:
        """Reports that a snapshot begins or ends, or that a page of its rows has ended, with the cursor there."""
        if entry.stage is not EntryStage.ACTIVE:
            return []
        return [Send(encode({"type": kind, "id": entry.id, **reply, "cursor": cursor}))]

    def gap(self, entry: SubscriptionEntry, begin: str, end: str) -> list[Effect]:
        """Reports that the history between two cursors is missing; the next event lies behind it."""
        if entry.stage is not EntryStage.ACTIVE:
            return []
        return [Send(encode({"type": "gap", "id": entry.id, "begin": begin, "end": end}))]

    def state(self, entry: SubscriptionEntry, *, resync: bool) -> None:
        """Records whether the subscription reads from the WAL; the next checkpoint reports it."""
        if entry.stage is EntryStage.ACTIVE and entry.resync is not resync:
            entry.resync = resync
            entry.changed = True

    def acked(
        self, entry: SubscriptionEntry, cursor: str, n: int | None, problem: Problem | None = None
    ) -> list[Effect]:
        """Answers an acknowledgement: it is recorded, or durable if that was requested, or refused.

        Args:
            entry: The subscription.
            cursor: The next change that is not acknowledged.
            n: The number of the acknowledgement; None if it had none.
            problem: The reason of a refusal.
        """
        if entry.stage is not EntryStage.ACTIVE:
            return []
        entry.storing = False
        reply: dict[str, object] = {"type": "acked", "id": entry.id, "cursor": cursor}
        if n is not None:
            reply["n"] = n
        if problem is not None:
            self.errors[problem.code] += 1
            reply["error"] = problem.payload()
        return [Send(encode(reply))]

    def answered(self, entry: OrderEntry, operation: LogOperation[Any], answer: object) -> list[Effect]:
        """Answers an operation."""
        if entry.ended:
            return []
        message = {"type": operation.message, "id": entry.id, "payload": answer}
        return [Send(encode(message)), *self._forget(entry)]

    def appended(self, entry: AppendEntry, commit: Commit, cursor: str | None) -> list[Effect]:
        """Answers an append that has progressed as far as the client waits; ``cursor`` lies behind it, if known."""
        return self.window.answer(entry, appended(entry.id, commit, cursor))

    def append_failed(self, entry: AppendEntry, problem: Problem) -> list[Effect]:
        """Refuses an append, or reports that its outcome is unknown."""
        if entry.ended:
            return []
        self.errors[problem.code] += 1
        self.refused(problem.code)
        return self.window.refuse(entry, self._error(entry.id, problem))

    def spooled(self, transaction: TransactionEntry, parts: int) -> list[Effect]:
        """Reports that ``parts`` parts of a transaction are stored."""
        if not self.transactions.stored(transaction, parts):
            return []
        return [Send(encode({"type": "spooled", "id": transaction.id, "parts": parts}))]

    def part_failed(self, transaction: TransactionEntry, problem: Problem) -> list[Effect]:
        """Refuses a transaction that is not committed yet."""
        if transaction.ended:
            return []
        self.refused(problem.code)
        return [self._refusal(transaction.id, problem), *self._drop(transaction)]

    def failed(self, entry: SubscriptionEntry | OrderEntry | ConsumerEntry, problem: Problem) -> list[Effect]:
        """Ends a subscription, a consumer or a question with an error."""
        return [] if entry.ended else self._end(entry, problem)

    def left(self, entry: ConsumerEntry) -> list[Effect]:
        """Confirms that a consumer has left its group."""
        if entry.ended:
            return []
        return [Send(encode({"type": "complete", "id": entry.id})), *self._forget(entry)]

    def completed(self, entry: SubscriptionEntry, cursor: str) -> list[Effect]:
        """Completes a subscription."""
        if entry.stage is not EntryStage.ACTIVE:
            return []
        return [Send(encode({"type": "complete", "id": entry.id, "cursor": cursor})), *self._forget(entry)]

    # Timers.

    @property
    def _beat(self) -> float:
        first = min((entry.due() for entry in self.entries.values()), default=math.inf)
        return min(first, self.transactions.due)

    def tick(self, now: float) -> list[Effect]:
        """Does the work that is due: ends transactions that have been idle too long."""
        effects = super().tick(now)
        for transaction in self.transactions.overdue(now):
            effects += self.part_failed(transaction, describe(TransactionIdle(TRANSACTION_IDLE)))
        return effects

    def overdue(self, now: float) -> list[SubscriptionEntry]:
        """Returns the subscriptions whose checkpoint is due."""
        found = [entry for entry in self.entries.values() if entry.due() <= now]
        return [entry for entry in found if isinstance(entry, SubscriptionEntry)]

    def checkpoint(
        self, items: Iterable[tuple[SubscriptionEntry, str, str, int, bool]], now: float
    ) -> list[Effect]:
        """Returns one ``checkpoint`` message for several subscriptions.

        Args:
            items: For each subscription its cursor, the head and the live version of its log, and whether it is in RESYNC.
            now: The time.
        """
        effects = []
        for entry, cursor, head, live, resync in items:
            if entry.stage is EntryStage.ACTIVE:
                entry.reported = entry.checked = now
                entry.changed = entry.unsettled = False
                entry.resync = resync
                state = "RESYNC" if resync else "LIVE"
                effects.append({"id": entry.id, "cursor": cursor, "head": head, "live": live, "state": state})
        if not effects:
            return []
        self._checkpoints += 1
        due = self.due
        next_ms = 0 if math.isinf(due) else max(1, round((due - now) * 1000))
        return [
            Send(encode({"type": "checkpoint", "items": effects, "n": self._checkpoints, "nextMs": next_ms}))
        ]

    # End of the connection.

    def lost(self) -> list[Effect]:
        """Ends everything on the connection, which is gone."""
        self.window.clear()
        dropped = [DropSpool(transaction) for transaction in self.transactions.clear()]
        return [*dropped, *super().lost()]

    def goaway(self, deadline: float, reason: str) -> list[Effect]:
        """Refuses new subscriptions; running ones continue until the deadline, in seconds from now."""
        if self.phase is not ConnectionPhase.ACKNOWLEDGED:
            return []
        self.phase: ConnectionPhase = advance(self.phase, PhaseEvent.GOAWAY)
        message = {"type": "goaway", "deadlineMs": round(deadline * 1000), "reason": close_reason(reason)}
        return [Send(encode(message))]

    def stop(self) -> list[Effect]:
        """Ends every subscription with ``GOING_AWAY``, then closes with 1012."""
        if self.phase is ConnectionPhase.CLOSED:
            return []
        effects: list[Effect] = []
        for entry in list(self.entries.values()):
            effects += self._end(entry, describe(GoingAway()))
        return effects + self.close(CloseCode.RESTART, "the server is stopping")

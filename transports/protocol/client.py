"""The client side of ``penstock.v1+json`` as a machine: messages in, effects out.

The machine does no I/O, awaits nothing and has no clock. It outlives connections: on each new one it repeats unanswered
questions and resumes each subscription behind the last event that arrived.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from transports.codec import replies
from transports.codec.envelope import Ping, pong
from transports.codec.messages import encode
from transports.codec.replies import RemoteChange, RemoteDelivery, RemoteGap, RemoteSignal, Reply, read
from transports.codec.schemas import SchemaAnswer
from transports.codec.slots import SlotInfo
from transports.errors import CloseCode, RemoteError, Violation
from transports.protocol.client_appends import ClientAppends
from transports.protocol.client_consumers import ClientConsumer
from transports.protocol.client_subscription import ClientSubscription
from transports.protocol.connection import Effect, Send, WireEntry
from transports.protocol.states import ConnectionPhase, EntryStage, PhaseEvent, advance

__all__ = [
    "Acked",
    "Answered",
    "ClientQuestion",
    "ClientSession",
    "Deliver",
    "Ended",
    "Progress",
    "Retry",
]

# Errors that a reconnecting client treats as interruptions: it resumes the subscription.
_RESUMED: Final = frozenset(
    {
        "GOING_AWAY",
        "LOG_CLOSED",
        "CURSOR_AHEAD",
        "SLOW_CONSUMER",
        "SOURCE_FAILED",
        "STATE_UNUSABLE",
        "TOO_MANY_SNAPSHOTS",
    }
)
_Signalled = replies.SnapshotBeginReply | replies.ChunkEndReply | replies.SnapshotEndReply
_CLIENT: Final = "penstock-python/1.0"
_KEEPALIVE: Final = 12.0  # seconds, of a server that does not tell
_CROWDED: Final = 0.1  # seconds to wait for room at a server, if the client does not reconnect


class ClientQuestion(WireEntry):
    """An operation that the client has asked for.

    Attributes:
        kind: The type of its message.
        payload: The payload.
    """

    __slots__ = ("kind", "payload")

    def __init__(self, name: str, payload: Mapping[str, Any], kind: str = "schema") -> None:
        super().__init__(name, b"")
        self.kind: str = kind
        self.payload: Mapping[str, Any] = payload


class Deliver(Effect, frozen=True):
    """Buffer events, a gap or a snapshot signal; the cursor lies behind them."""

    entry: ClientSubscription
    events: Sequence[RemoteChange | RemoteDelivery | RemoteGap | RemoteSignal]
    cursor: str


class Progress(Effect, frozen=True):
    """Record the progress of a subscription."""

    entry: ClientSubscription
    item: replies.SubscribedReply | replies.JoinedReply | replies.Item


class Acked(Effect, frozen=True):
    """Report the outcome of the acknowledgements up to number ``n``; an error concerns number ``n`` alone."""

    entry: ClientSubscription
    n: int
    error: RemoteError | None


class Ended(Effect, frozen=True):
    """End a subscription behind its buffered events; the machine has forgotten it."""

    entry: ClientSubscription
    error: Exception | None


class Answered(Effect, frozen=True):
    """Answer a question; the machine has forgotten it."""

    entry: ClientQuestion
    answer: SchemaAnswer | list[SlotInfo] | dict[str, Any] | Exception | None


class Retry(Effect, frozen=True):
    """Call ``subscribe`` again after ``delay`` seconds."""

    entry: ClientSubscription
    error: RemoteError
    delay: float


class ClientSession:
    """The subscriptions, questions and appends of a client at one server.

    Attributes:
        phase: The phase of the connection; CLOSED while there is none.
        appends: The appends of the client.
        keepalive: The keep-alive time of the server in seconds, as it was last told.

    Args:
        delay: Returns the seconds until a subscription is retried, given the number of earlier attempts; None for no retry.
    """

    def __init__(self, delay: Callable[[int], float | None]) -> None:
        self.phase: ConnectionPhase = ConnectionPhase.CLOSED
        self._delay = delay
        self._ids = itertools.count(1)
        self._subscriptions: dict[str, ClientSubscription] = {}
        self._asked: set[str] = (
            set()
        )  # subscriptions that were requested on this connection and have not failed
        self._questions: dict[str, ClientQuestion] = {}
        self.appends: ClientAppends = ClientAppends(lambda attempt: delay(attempt) or _CROWDED)
        self.keepalive: float = _KEEPALIVE
        self._checkpoints = 0  # checkpoints of this connection, which the server numbers
        self._window = 1  # calls of a group consumer that the server accepts before it has answered them

    @property
    def ready(self) -> bool:
        """Whether the server has acknowledged this connection."""
        return self.phase in (ConnectionPhase.ACKNOWLEDGED, ConnectionPhase.DRAINING)

    def name(self) -> str:
        """Returns an id that no other entry has; from any thread."""
        return str(next(self._ids))

    # Requests of the client.

    def subscribe(self, entry: ClientSubscription) -> list[Effect]:
        """Subscribes now, or as soon as the server has acknowledged the connection."""
        if entry.stage is EntryStage.ENDED:
            return []
        self._subscriptions[entry.id] = entry
        if not self.ready or entry.id in self._asked:
            return []  # the new connection has subscribed it already, before the retry was due
        self._asked.add(entry.id)
        return self._say(entry.kind, entry, payload=entry.payload())

    def request(self, entry: ClientSubscription) -> list[Effect]:
        """Requests the outstanding demand; before the connection is ready, ``subscribe`` carries it instead."""
        if not self.ready or entry.id not in self._subscriptions:
            return []
        more = entry.unannounced()
        return self._say("request", entry, n=more) if more > 0 else []

    def ask_rows(self, entry: ClientSubscription) -> list[Effect]:
        """Requests more rows; if the subscription is not active yet, the request follows once it is."""
        if not self.ready or entry.id not in self._subscriptions:
            return []
        return [
            effect for payload in entry.unasked() for effect in self._say("again", entry, payload=payload)
        ]

    def acknowledge(self, entry: ClientSubscription) -> list[Effect]:
        """Sends acknowledgements of a slot that are not sent yet; if the slot is not open yet, they follow once it is."""
        if entry.slot is None or not self.ready or entry.id not in self._subscriptions:
            return []
        message = entry.slot.message(entry.id)
        return [] if message is None else [Send(encode(message))]

    def call(self, entry: ClientConsumer) -> list[Effect]:
        """Sends calls of a consumer that are not sent yet; if it has not joined yet, they follow once it has."""
        if not self.ready or entry.id not in self._subscriptions:
            return []
        return [Send(encode(message)) for message in entry.unsent()]

    def ask(self, entry: ClientQuestion) -> list[Effect]:
        """Sends a question now, or as soon as the server has acknowledged the connection."""
        self._questions[entry.id] = entry
        return self._say(entry.kind, entry, payload=entry.payload) if self.ready else []

    def cancel(self, entry: WireEntry) -> list[Effect]:
        """Cancels a subscription or a question; sends its last acknowledgements first."""
        effects = self.acknowledge(entry) if isinstance(entry, ClientSubscription) else []
        known = self._forget(entry)
        return [*effects, *self._say("complete", entry)] if known and self.ready else []

    # Events of the connection.

    def begin(self, token: str | None = None) -> list[Effect]:
        """Begins a new connection with ``connection_init``, which holds the token."""
        self.phase, self._checkpoints = advance(ConnectionPhase.OPENED, PhaseEvent.INIT), 0
        payload = {"client": _CLIENT} | ({} if token is None else {"token": token})
        return [Send(encode({"type": "connection_init", "payload": payload}))]

    def receive(self, text: bytes | str) -> list[Effect]:
        """Handles one message of the server.

        Raises:
            Violation: If the message breaks the protocol; the caller has to close the connection.
            ConnectionError: If a checkpoint number shows that a message was lost.
        """
        reply = read(text)
        if not self.ready:
            return self._acknowledged(reply)
        match reply:
            case Ping():
                return [Send(pong(reply.payload))]
            case replies.Next() | replies.Missing() | replies.SubscribedReply():
                entry = self._subscriptions.get(reply.id)
                return [] if entry is None else self._take(entry, reply)
            case replies.SnapshotBeginReply() | replies.ChunkEndReply() | replies.SnapshotEndReply():
                entry = self._subscriptions.get(reply.id)
                return [] if entry is None else self._in_snapshot(entry, reply)
            case replies.JoinedReply() | replies.DeliveriesReply() | replies.GroupReply():
                entry = self._subscriptions.get(reply.id)
                return self._consume(entry, reply) if isinstance(entry, ClientConsumer) else []
            case replies.AckedReply() | replies.AppendedReply() | replies.SpooledReply():
                return self._confirmed(reply)
            case replies.CheckpointReply():
                return self._checkpoint(reply)
            case replies.Failure():
                return self._failed(reply)
            case replies.Schema() | replies.SlotsReply() | replies.GroupsReply() if (
                question := self._questions.pop(reply.id, None)
            ):
                return [Answered(question, reply.payload)]
            case replies.Done() if (entry := self._subscriptions.get(reply.id)) is not None:
                self._forget(entry)
                return [Ended(entry, None)]
            case replies.Goaway() if self.phase is ConnectionPhase.ACKNOWLEDGED:
                self.phase = advance(self.phase, PhaseEvent.GOAWAY)
        return []

    def _acknowledged(self, reply: Reply) -> list[Effect]:
        if not isinstance(reply, replies.Ack):
            raise Violation(CloseCode.BAD_REQUEST, f"connection_ack was expected, not {type(reply).__name__}")
        self.phase = advance(self.phase, PhaseEvent.ACK)
        payload = reply.payload or {}
        told = payload.get("keepAliveMs")
        self.keepalive = told / 1000 if isinstance(told, int) and told > 0 else _KEEPALIVE
        limits = payload.get("limits")
        limits = limits if isinstance(limits, dict) else {}
        self._window = int(limits.get("groupCalls", 1))
        effects = self.appends.began(limits)
        effects += [effect for question in self._questions.values() for effect in self.ask(question)]
        return effects + [
            effect for entry in self._subscriptions.values() for effect in self.subscribe(entry)
        ]

    def _take(
        self, entry: ClientSubscription, reply: replies.Next | replies.Missing | replies.SubscribedReply
    ) -> list[Effect]:
        match reply:
            case replies.Next():
                changes = reply.changes()
                entry.attempts = 0
                entry.take(len(changes))
                entry.cursor = reply.cursor
                return [Deliver(entry, changes, reply.cursor)]
            case replies.Missing():
                gap = reply.gap()
                entry.cursor = reply.end
                return [Deliver(entry, [gap], reply.end)]
            case replies.SubscribedReply():
                entry.cursor = entry.cursor or reply.cursor
                if entry.slot is not None and reply.slot is not None:
                    entry.slot.opened(reply.slot)
                entry.subscribed = True
                return [Progress(entry, reply), *self.acknowledge(entry), *self.ask_rows(entry)]

    def _confirmed(
        self, reply: replies.AckedReply | replies.AppendedReply | replies.SpooledReply
    ) -> list[Effect]:
        if isinstance(reply, replies.AppendedReply):
            return self.appends.answered(reply)
        if isinstance(reply, replies.SpooledReply):
            return self.appends.spooled(reply)
        entry = self._subscriptions.get(reply.id)
        if entry is None or entry.slot is None:
            return []
        n, error = entry.slot.answered(reply), None
        if reply.error is not None:
            error = RemoteError.from_payload(reply.error)
        return [Acked(entry, n, error), *self.acknowledge(entry)]

    def _consume(
        self,
        entry: ClientConsumer,
        reply: replies.JoinedReply | replies.DeliveriesReply | replies.GroupReply,
    ) -> list[Effect]:
        match reply:
            case replies.JoinedReply():
                return [Progress(entry, reply), *entry.joined(reply, self._window), *self.call(entry)]
            case replies.DeliveriesReply():
                entry.attempts = 0
                deliveries = reply.deliveries(entry.generation or 0)
                entry.take(len(deliveries))
                return [Deliver(entry, deliveries, "")]
            case replies.GroupReply():
                return [*entry.answered(reply), *self.call(entry)]

    def _in_snapshot(self, entry: ClientSubscription, reply: _Signalled) -> list[Effect]:
        entry.cursor, entry.attempts = reply.cursor, 0
        if isinstance(reply, replies.SnapshotBeginReply):
            answer = reply.signal(entry.begun(reply.asked))
        else:
            answer = reply.signal()
        effects: list[Effect] = [Deliver(entry, [answer], reply.cursor)]
        if isinstance(reply, replies.SnapshotEndReply) and entry.ends_with_rows:
            # The completion follows. If it were lost, the client would have a cursor to resume at but nothing left to read.
            self._forget(entry)
            effects.append(Ended(entry, None))
        return effects

    def _checkpoint(self, reply: replies.CheckpointReply) -> list[Effect]:
        self._checkpoints += 1
        if reply.n != self._checkpoints:
            raise ConnectionError(
                f"checkpoint {reply.n} came, but {self._checkpoints} was to come: something was lost"
            )
        effects: list[Effect] = []
        for item in reply.items:
            if (entry := self._subscriptions.get(item.id)) is not None:
                entry.cursor, entry.attempts = item.cursor, 0
                effects.append(Progress(entry, item))
        return effects

    def _failed(self, reply: replies.Failure) -> list[Effect]:
        error = RemoteError.from_payload(reply.payload)
        entry, question = self._subscriptions.get(reply.id), self._questions.get(reply.id)
        if reply.id in self.appends:
            return self.appends.refused(reply.id, error)
        resumed = error.retryable and error.code in _RESUMED
        delay = self._delay(entry.attempts if entry else 0) if resumed else None
        if delay is not None and error.code == "GOING_AWAY":
            return []  # the connection ends next; the subscription resumes on the new one
        if question is not None:
            self._forget(question)
            return [Answered(question, error)]
        if entry is None:
            return []
        if delay is None:
            self._forget(entry)
            return [Ended(entry, error)]
        entry.attempts += 1
        self._asked.discard(entry.id)
        if isinstance(entry, ClientSubscription) and entry.slot is not None:
            entry.slot.lost()
        return [Retry(entry, error, delay)]

    # End of the connection.

    def lost(self) -> None:
        """Handles the loss of the connection; another one may follow."""
        self.phase = advance(self.phase, PhaseEvent.CLOSE)
        self._asked.clear()
        for entry in self._subscriptions.values():
            if entry.slot is not None:
                entry.slot.lost()
        self.appends.lost()

    def give_up(self, error: Exception) -> list[Effect]:
        """Ends everything with the error, because no connection will follow."""
        effects: list[Effect] = [Answered(question, error) for question in self._questions.values()]
        effects += [Ended(entry, error) for entry in self._subscriptions.values()]
        for entry in (*self._questions.values(), *self._subscriptions.values()):
            entry.stage = EntryStage.ENDED
        self._questions.clear()
        self._subscriptions.clear()
        return effects

    def _forget(self, entry: WireEntry) -> bool:
        """Forgets an entry; returns whether it was known."""
        entry.stage = EntryStage.ENDED
        self._asked.discard(entry.id)
        known = self._subscriptions.pop(entry.id, None) or self._questions.pop(entry.id, None)
        return known is not None

    @staticmethod
    def _say(kind: str, entry: WireEntry, **fields: object) -> list[Effect]:
        return [Send(encode({"type": kind, "id": entry.id, **fields}))]

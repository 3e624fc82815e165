"""The server's side of ``graphql-transport-ws`` as a machine: messages in, effects out.

It does no I/O, awaits nothing and knows no clock. Shapes are checked before anything else happens; an id is entered
before its operation starts and removed with any end, so a quick ``complete`` is not lost and ids may be used again; and
whatever is wrong with one operation is told to that operation only.
"""

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from publishers.errors import PenstockError
from transports.codec.envelope import Init, Ping, Pong, pong
from transports.errors import (
    CloseCode,
    InvalidDemand,
    TooManySubscriptions,
    Violation,
    close_reason,
    describe,
)
from transports.graphql.errors import graphql_error
from transports.graphql.fence import Fence
from transports.graphql.messages import (
    Complete,
    Message,
    Request,
    Subscribe,
    complete,
    credits_of,
    error,
    next_head,
    parse,
    requests_of,
)
from transports.limits import CREDITS_MAX, Limits

__all__ = [
    "Authenticate",
    "Cancel",
    "Close",
    "Demand",
    "Effect",
    "Entry",
    "GraphQLSession",
    "Open",
    "Phase",
    "Resume",
    "Send",
]

_ACK: Final = b'{"type":"connection_ack"}'
_BURST: Final = 2.0


class Phase(enum.Enum):
    """Where a connection is: opened -> greeted -> acknowledged -> closed."""

    OPENED = "opened"
    GREETED = "greeted"
    ACKNOWLEDGED = "acknowledged"
    CLOSED = "closed"


class _Refusal(NamedTuple):
    code: CloseCode
    why: str


_EARLY: Final = _Refusal(
    CloseCode.UNAUTHORIZED, "connection_init must be sent, and connection_ack awaited, first"
)
_AGAIN: Final = _Refusal(
    CloseCode.TOO_MANY_INITS, "connection_init must be sent once, and it was sent before"
)

# What a message does to the phase: it leads to a phase, or breaks the protocol. A complete for an operation that does
# not exist is no fault in any phase.
_TABLE: Final[Mapping[Phase, Mapping[type[Message], Phase | _Refusal]]] = {
    Phase.OPENED: {
        Init: Phase.GREETED,
        Ping: Phase.OPENED,
        Pong: Phase.OPENED,
        Subscribe: _EARLY,
        Complete: Phase.OPENED,
    },
    Phase.GREETED: {
        Init: _AGAIN,
        Ping: Phase.GREETED,
        Pong: Phase.GREETED,
        Subscribe: _EARLY,
        Complete: Phase.GREETED,
    },
    Phase.ACKNOWLEDGED: {
        Init: _AGAIN,
        Ping: Phase.ACKNOWLEDGED,
        Pong: Phase.ACKNOWLEDGED,
        Subscribe: Phase.ACKNOWLEDGED,
        Complete: Phase.ACKNOWLEDGED,
    },
}


class Entry:
    """One operation of a connection. Its identity, and not its id, is what the machine goes by.

    Attributes:
        id: What the client calls it.
        head: How each of its ``next`` messages begins.
        credits: How many events may be sent before the client requests more; None if it leaves that to the server.
        ended: Whether nothing may be sent for it any more.
    """

    __slots__ = ("credits", "ended", "head", "id")

    def __init__(self, operation: str, demand: int | None) -> None:
        self.id = operation
        self.head = next_head(operation)
        self.credits = demand
        self.ended = False


@dataclass(frozen=True, slots=True)
class Send:
    """Write one message."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Authenticate:
    """Judge who this is, and call ``acknowledge`` or ``refuse``."""

    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Open:
    """Start an operation."""

    entry: Entry
    request: Request


@dataclass(frozen=True, slots=True)
class Demand:
    """Request ``n`` more events."""

    entry: Entry
    n: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop an operation; the machine has forgotten the entry."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Resume:
    """Events may be sent again."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection."""

    code: CloseCode
    reason: str


Effect = Send | Authenticate | Open | Demand | Cancel | Resume | Close


class GraphQLSession:
    """One connection, as the server sees it.

    Args:
        limits: Bounds of the connection.
        now: The time; any clock that never goes back, in seconds.
    """

    def __init__(self, limits: Limits, *, now: float) -> None:
        self.limits = limits
        self.phase = Phase.OPENED
        self.entries: dict[str, Entry] = {}
        self._init_by = now + limits.init_timeout
        self._fence = Fence(limits.fence_events, limits.fence_width, limits.fence_timeout)
        self._tokens = _BURST * limits.messages_per_second
        self._refilled = now

    # From the client.

    def receive(self, text: bytes | str, now: float) -> list[Effect]:
        """What one message leads to."""
        if self.phase is Phase.CLOSED:
            return []
        try:
            message = parse(text)
            if isinstance(message, Pong) and self._fence.answered(message.payload):
                return [Resume()]  # it was asked for, so it does not count as the client's own
            self._meter(now)
            step = _TABLE[self.phase][type(message)]
            if isinstance(step, _Refusal):
                raise Violation(step.code, step.why)
            self.phase = step
            return self._act(message)
        except Violation as violation:
            return self.close(violation.close_code, str(violation))

    def _act(self, message: Message) -> list[Effect]:
        match message:
            case Init():
                return [Authenticate(message.payload or {})]
            case Ping():
                return [Send(pong(message.payload)), *self._request(requests_of(message))]
            case Subscribe():
                return self._subscribe(message)
            case Complete():
                return self._forget(self.entries.get(message.id))
            case _:
                return []

    def _meter(self, now: float) -> None:
        rate = self.limits.messages_per_second
        self._tokens = min(_BURST * rate, self._tokens + (now - self._refilled) * rate) - 1
        self._refilled = now
        if self._tokens < 0:
            raise Violation(CloseCode.FLOOD, f"more than {rate} messages a second")

    def _subscribe(self, message: Subscribe) -> list[Effect]:
        if message.id in self.entries:
            raise Violation(CloseCode.ID_IN_USE, f"Subscriber for {message.id} already exists")
        try:
            if len(self.entries) >= self.limits.subscriptions:
                raise TooManySubscriptions(self.limits.subscriptions)
            demand = credits_of(message.payload)
        except PenstockError as problem:
            return [Send(error(message.id, [graphql_error(describe(problem))]))]
        entry = self.entries[message.id] = Entry(message.id, demand)
        return [Open(entry, message.payload)]

    def _request(self, wanted: Mapping[str, int]) -> list[Effect]:
        effects: list[Effect] = []
        for name, n in wanted.items():
            entry = self.entries.get(name)
            if entry is not None and 1 <= n <= CREDITS_MAX:
                effects.append(Demand(entry, n))
            elif entry is not None:
                problem = describe(InvalidDemand("n", n, 1, CREDITS_MAX))
                effects += self.failed(entry, [graphql_error(problem)])
        return effects

    def _forget(self, entry: Entry | None) -> list[Effect]:
        if entry is None or entry.ended:
            return []
        entry.ended = True
        del self.entries[entry.id]
        return [Cancel(entry)]

    # From the server.

    def acknowledge(self) -> list[Effect]:
        """The client may start operations from now on."""
        if self.phase is not Phase.GREETED:
            return []
        self.phase = Phase.ACKNOWLEDGED
        return [Send(_ACK)]

    def refuse(self, why: str) -> list[Effect]:
        """The client may not connect."""
        return self.close(CloseCode.FORBIDDEN, why)

    @property
    def blocked(self) -> bool:
        """Whether no event may be sent until the client has answered."""
        return self._fence.shut

    def next(self, entry: Entry, payloads: Iterable[bytes], now: float) -> list[bytes]:
        """The messages for some payloads of an operation, with the pings that are due among them."""
        if entry.ended:
            return []
        messages = []
        for payload in payloads:
            messages.append(b"%s%s}" % (entry.head, payload))
            fence = self._fence.count(now)
            if fence is not None:
                messages.append(b'{"type":"ping","payload":{"fence":%d}}' % fence)
        return messages

    def result(self, entry: Entry, payload: bytes) -> list[Effect]:
        """The one result of a query, and its end."""
        if entry.ended:
            return []
        return [Send(b"%s%s}" % (entry.head, payload)), *self.completed(entry)]

    def failed(self, entry: Entry, errors: list[dict[str, Any]]) -> list[Effect]:
        """The operation ended with errors; no ``complete`` follows."""
        return [] if entry.ended else [Send(error(entry.id, errors)), *self._forget(entry)]

    def completed(self, entry: Entry) -> list[Effect]:
        """The operation came to its end."""
        return [] if entry.ended else [Send(complete(entry.id)), *self._forget(entry)]

    # By the time.

    @property
    def due(self) -> float:
        """When ``tick`` has something to do; infinite for never."""
        match self.phase:
            case Phase.OPENED | Phase.GREETED:
                return self._init_by
            case Phase.ACKNOWLEDGED:
                return self._fence.due
            case Phase.CLOSED:
                return math.inf

    def tick(self, now: float) -> list[Effect]:
        """What the passing of time leads to."""
        if self.phase in (Phase.OPENED, Phase.GREETED) and now >= self._init_by:
            return self.close(
                CloseCode.INIT_TIMEOUT, f"no connection_init within {self.limits.init_timeout:g} s"
            )
        return [Resume()] if self._fence.expire(now) else []

    # The end.

    def stop(self) -> list[Effect]:
        """The server stops: closes with 1012.

        Operations get no message of their own: a stock client takes ``error`` for the last word, while after the close
        it connects again and repeats what it had subscribed to.
        """
        return self.close(CloseCode.RESTART, "the server is stopping")

    def close(self, code: CloseCode, why: str) -> list[Effect]:
        """Closes the connection, and with it every operation."""
        if self.phase is Phase.CLOSED:
            return []
        return [*self.lost(), Close(code, close_reason(why))]

    def lost(self) -> list[Effect]:
        """The connection is gone."""
        self.phase = Phase.CLOSED
        effects: list[Effect] = []
        for entry in list(self.entries.values()):
            effects += self._forget(entry)
        return effects

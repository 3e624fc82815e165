"""The server's side of ``graphql-transport-ws`` as a machine: messages in, effects out.

It does no I/O, awaits nothing and knows no clock. Shapes are checked before anything else happens; an id is entered
before its operation starts and removed with any end, so a quick ``complete`` is not lost and ids may be used again; and
whatever is wrong with one operation is told to that operation only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from transports.codec.envelope import Init, Ping, Pong, pong
from transports.codec.graphql_ws import (
    GraphQLComplete,
    GraphQLRequest,
    GraphQLSubscribe,
    asked_by,
    complete,
    credits_of,
    error,
    graphql_error,
    next_head,
    parse,
)
from transports.errors import CloseCode, InvalidDemand
from transports.limits import CREDITS_MAX, Limits
from transports.problems import Problem, describe
from transports.protocol.connection import Authenticate, Demand, Effect, Send, ServerConnection, WireEntry
from transports.protocol.fence import Fence

__all__ = ["AskMore", "Execute", "GraphQLSession", "OperationEntry", "Resume"]

_REASONS: Final = {
    CloseCode.UNAUTHORIZED: "Unauthorized",
    CloseCode.FORBIDDEN: "Forbidden",
    CloseCode.INIT_TIMEOUT: "Connection initialisation timeout",
    CloseCode.TOO_MANY_INITS: "Too many initialisation requests",
}
"""What the protocol says with its close codes; clients show it, and some compare it."""


class OperationEntry(WireEntry):
    """One operation of a connection.

    Attributes:
        credits: How many events may be sent before the client requests more; None if it leaves that to the server.
        asked: Rows that were asked for once more before it was subscribed to anything, unchecked.
    """

    __slots__ = ("asked", "credits")

    def __init__(self, operation: str, demand: int | None) -> None:
        super().__init__(operation, next_head(operation))
        self.credits = demand
        self.asked: list[object] = []


class Execute(Effect, frozen=True):
    """Start an operation."""

    entry: OperationEntry
    request: GraphQLRequest


class AskMore(Effect, frozen=True):
    """Ask for rows of an operation once more; of which is still unchecked."""

    entry: OperationEntry
    payload: object


class Resume(Effect, frozen=True):
    """Events may be sent again."""


class GraphQLSession(ServerConnection[OperationEntry]):
    """One connection, as the server sees it.

    Args:
        limits: Bounds of the connection.
        now: The time; any clock that never goes back, in seconds.
    """

    _late: ClassVar[tuple[type, ...]] = (
        GraphQLSubscribe,
    )  # a complete for an operation that does not exist is no fault in any phase

    def __init__(self, limits: Limits, *, now: float) -> None:
        super().__init__(limits, now=now)
        self._fence = Fence(limits.fence_events, limits.fence_width, limits.fence_timeout)

    # From the client.

    def _take(self, text: bytes | str, now: float) -> list[Effect]:
        message = parse(text)
        if isinstance(message, Pong) and self._fence.answered(message.payload):
            return [Resume()]  # it was asked for, so it does not count as the client's own
        self._admit(message, now)
        match message:
            case Init():
                return [Authenticate(message.payload or {})]
            case Ping():
                return [Send(pong(message.payload)), *self._asked(message)]
            case GraphQLSubscribe():
                return self._subscribe(message)
            case GraphQLComplete():
                return self._forget(self.entries.get(message.id))
            case _:
                return []

    def _subscribe(self, message: GraphQLSubscribe) -> list[Effect]:
        def made() -> tuple[OperationEntry, Effect]:
            entry = OperationEntry(message.id, credits_of(message.payload))
            return entry, Execute(entry, message.payload)

        return self._enter(message.id, made)

    def _asked(self, message: Ping) -> list[Effect]:
        """What a ping asks for beside the answer."""
        wanted, again = asked_by(message)
        found = ((self.entries.get(name), asked) for name, asked in again.items())
        return [*self._request(wanted), *(AskMore(entry, asked) for entry, asked in found if entry)]

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

    # From the server.

    def _ack(self) -> bytes:
        return b'{"type":"connection_ack"}'

    @staticmethod
    def _error(name: str, problem: Problem) -> bytes:
        return error(name, [graphql_error(problem)])

    @staticmethod
    def _in_use(name: str) -> str:
        return f"Subscriber for {name} already exists"

    @property
    def blocked(self) -> bool:
        """Whether no event may be sent until the client has answered."""
        return self._fence.shut

    def next(self, entry: OperationEntry, payloads: Iterable[bytes], now: float) -> list[bytes]:
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

    def snapshot(self, entry: OperationEntry, told: Sequence[Mapping[str, object]]) -> list[Effect]:
        """Where rows of an operation begin and end, in a ping: the protocol has no other message that is no event."""
        payload = {"snapshot": {entry.id: told}}
        return [] if entry.ended else [Send(msgspec.json.encode({"type": "ping", "payload": payload}))]

    def result(self, entry: OperationEntry, payload: bytes) -> list[Effect]:
        """The one result of a query, and its end."""
        if entry.ended:
            return []
        return [Send(b"%s%s}" % (entry.head, payload)), *self.completed(entry)]

    def failed(self, entry: OperationEntry, errors: list[dict[str, Any]]) -> list[Effect]:
        """The operation ended with errors; no ``complete`` follows."""
        if entry.ended:
            return []
        # What graphql-core says of a request has no code.
        self.errors.update(one.get("extensions", {}).get("code", "INVALID_REQUEST") for one in errors)
        return [Send(error(entry.id, errors)), *self._forget(entry)]

    def completed(self, entry: OperationEntry) -> list[Effect]:
        """The operation came to its end."""
        return [] if entry.ended else [Send(complete(entry.id)), *self._forget(entry)]

    # By the time.

    @property
    def _beat(self) -> float:
        return self._fence.due

    def tick(self, now: float) -> list[Effect]:
        """What the passing of time leads to."""
        return super().tick(now) or ([Resume()] if self._fence.expire(now) else [])

    # The end.

    def close(self, code: CloseCode, why: str) -> list[Effect]:
        """Closes the connection, in the words of the protocol where it has some."""
        return super().close(code, _REASONS.get(code, why))

    def stop(self) -> list[Effect]:
        """The server stops: closes with 1012.

        Operations get no message of their own: a stock client takes ``error`` for the last word, while after the close
        it connects again and repeats what it had subscribed to.
        """
        return self.close(CloseCode.RESTART, "the server is stopping")

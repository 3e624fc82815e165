"""The server side of ``graphql-transport-ws`` as a machine: messages in, effects out.

The machine does no I/O, awaits nothing and has no clock. It checks the shape of a message first. It enters an id before the
operation starts and removes it with any end, so a quick ``complete`` is not lost and ids may be reused. An error of one
operation is reported to that operation only.
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
from transports.protocol.fence import FENCE_EVENTS, FENCE_TIMEOUT, FENCE_WIDTH, Fence

__all__ = ["AskMore", "Execute", "GraphQLSession", "OperationEntry", "Resume"]

_REASONS: Final = {
    CloseCode.UNAUTHORIZED: "Unauthorized",
    CloseCode.FORBIDDEN: "Forbidden",
    CloseCode.INIT_TIMEOUT: "Connection initialisation timeout",
    CloseCode.TOO_MANY_INITS: "Too many initialisation requests",
}
"""The close reasons that the protocol prescribes; clients show them, and some compare them."""


class OperationEntry(WireEntry):
    """One operation of a connection.

    Attributes:
        credits: The number of events that may be sent before the client requests more; None for no limit.
        nbytes: The size of its message.
        asked: Requests for rows, still unchecked, that arrived before the subscription began.
    """

    __slots__ = ("asked", "credits", "nbytes")

    def __init__(self, operation: str, demand: int | None, nbytes: int) -> None:
        super().__init__(operation, next_head(operation))
        self.credits: int | None = demand
        self.nbytes: int = nbytes
        self.asked: list[object] = []


class Execute(Effect, frozen=True):
    """Start an operation."""

    entry: OperationEntry
    request: GraphQLRequest


class AskMore(Effect, frozen=True):
    """Request more rows of an operation; the payload is unchecked."""

    entry: OperationEntry
    payload: object


class Resume(Effect, frozen=True):
    """Send events again: the fence has opened."""


class GraphQLSession(ServerConnection[OperationEntry]):
    """The server side of one connection.

    Args:
        limits: Bounds of the connection.
        now: The time in seconds, of any monotonic clock.
    """

    _late: ClassVar[tuple[type, ...]] = (
        GraphQLSubscribe,
    )  # in any phase, a complete for an unknown operation is no error

    def __init__(self, limits: Limits, *, now: float) -> None:
        super().__init__(limits, now=now)
        self._fence = Fence(FENCE_EVENTS, FENCE_WIDTH, FENCE_TIMEOUT)

    # Events of the client.

    def _take(self, text: bytes | str, now: float) -> list[Effect]:
        message = parse(text)
        if isinstance(message, Pong) and self._fence.answered(message.payload):
            return [Resume()]  # the server asked for this pong, so the rate limit does not count it
        self._admit(message, now)
        match message:
            case Init():
                return [Authenticate(message.payload or {})]
            case Ping():
                return [Send(pong(message.payload)), *self._asked(message)]
            case GraphQLSubscribe():
                return self._subscribe(message, len(text))
            case GraphQLComplete():
                return self._forget(self.entries.get(message.id))
            case _:
                return []

    def _subscribe(self, message: GraphQLSubscribe, nbytes: int) -> list[Effect]:
        def made() -> tuple[OperationEntry, Effect]:
            entry = OperationEntry(message.id, credits_of(message.payload), nbytes)
            return entry, Execute(entry, message.payload)

        return self._enter(message.id, made)

    def _asked(self, message: Ping) -> list[Effect]:
        """Returns the effects of a ping beside its pong: demand and requests for rows."""
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

    # Calls of the server.

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
        """Whether no event may be sent until the client has answered a ping."""
        return self._fence.shut

    def next(self, entry: OperationEntry, payloads: Iterable[bytes], now: float) -> list[bytes]:
        """Returns the messages for payloads of an operation, with the pings that are due between them."""
        if entry.ended:
            return []
        messages = []
        for payload in payloads:
            messages.append(b"%s%s}" % (entry.head, payload))
            fence = self._fence.count(now)
            if fence is not None:
                messages.append(b'{"type":"ping","payload":{"fence":%d}}' % fence)
        return messages

    def snapshot(self, entry: OperationEntry, rows: Sequence[Mapping[str, object]]) -> list[Effect]:
        """Returns a ping that reports the begin or end of rows: the protocol has no other message that is not an event."""
        payload = {"snapshot": {entry.id: rows}}
        return [] if entry.ended else [Send(msgspec.json.encode({"type": "ping", "payload": payload}))]

    def result(self, entry: OperationEntry, payload: bytes) -> list[Effect]:
        """Sends the single result of a query, and completes it."""
        if entry.ended:
            return []
        return [Send(b"%s%s}" % (entry.head, payload)), *self.completed(entry)]

    def failed(self, entry: OperationEntry, errors: list[dict[str, Any]]) -> list[Effect]:
        """Fails the operation with errors; no ``complete`` follows."""
        if entry.ended:
            return []
        # Errors of graphql-core have no code.
        self.errors.update(one.get("extensions", {}).get("code", "INVALID_REQUEST") for one in errors)
        return [Send(error(entry.id, errors)), *self._forget(entry)]

    def completed(self, entry: OperationEntry) -> list[Effect]:
        """Completes the operation."""
        return [] if entry.ended else [Send(complete(entry.id)), *self._forget(entry)]

    # Timers.

    @property
    def _beat(self) -> float:
        return self._fence.due

    def tick(self, now: float) -> list[Effect]:
        """Does the work that is due."""
        return super().tick(now) or ([Resume()] if self._fence.expire(now) else [])

    # End of the connection.

    def close(self, code: CloseCode, why: str) -> list[Effect]:
        """Closes the connection, with the reason that the protocol prescribes for the code, if any."""
        return super().close(code, _REASONS.get(code, why))

    def stop(self) -> list[Effect]:
        """Closes with 1012, because the server is stopping.

        Operations get no message of their own: a stock client treats ``error`` as final, but after this close code it
        reconnects and repeats its subscriptions.
        """
        return self.close(CloseCode.RESTART, "the server is stopping")

"""Messages of ``graphql-transport-ws``: read, checked and typed before anything acts on them.

Every shape is checked here, so that whatever a client sends ends in the right close code: what is no message of the
protocol is a ``Violation`` 4400. What is wrong with a document concerns its operation only, and is found later.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from transports.codec.envelope import Envelope, Init, Ping, Pong
from transports.codec.fields import checked_credits
from transports.problems import Problem

__all__ = [
    "GraphQLComplete",
    "GraphQLMessage",
    "GraphQLRequest",
    "GraphQLSubscribe",
    "asked_by",
    "complete",
    "credits_of",
    "error",
    "graphql_error",
    "next_head",
    "parse",
]

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class GraphQLRequest(msgspec.Struct, frozen=True, rename={"operation_name": "operationName"}):
    """What is to be executed; unchecked but for the types."""

    query: str
    operation_name: str | None = None
    variables: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class GraphQLSubscribe(msgspec.Struct, frozen=True):
    """``subscribe``: starts an operation of any kind."""

    id: _Id
    payload: GraphQLRequest


class GraphQLComplete(msgspec.Struct, frozen=True):
    """``complete``: the client wants nothing more for this id."""

    id: _Id


GraphQLMessage = Init | GraphQLSubscribe | GraphQLComplete | Ping | Pong

_envelope: Final[Envelope[GraphQLMessage]] = Envelope(
    {
        "connection_init": Init,
        "subscribe": GraphQLSubscribe,
        "complete": GraphQLComplete,
        "ping": Ping,
        "pong": Pong,
    }
)


def parse(text: bytes | str) -> GraphQLMessage:
    """Reads one message.

    Raises:
        Violation: 4400, with what was wrong and what would be right.
    """
    return _envelope.read(text)


def credits_of(request: GraphQLRequest) -> int | None:
    """How many events may be sent before the client asks for more; None if it leaves that to the server.

    Raises:
        InvalidRequest: If ``extensions.flow`` is not understood.
        InvalidDemand: If the credits are out of their range.
    """
    flow = (request.extensions or {}).get("flow")
    if flow is None:
        return None
    found = flow.get("credits") if isinstance(flow, dict) else None
    return checked_credits("extensions.flow.credits", found)


def asked_by(ping: Ping) -> tuple[Mapping[str, int], Mapping[str, object]]:
    """Of which operations a ping requests how many more events, and which rows once more, unchecked.

    What else it says is the client's own affair.
    """
    raw = bytes(ping.payload)
    if b'"request"' not in raw and b'"again"' not in raw:
        return {}, {}
    payload = msgspec.json.decode(raw)
    wanted, again = (_object(payload, name) for name in ("request", "again"))
    return {name: n for name, n in wanted.items() if isinstance(n, int) and not isinstance(n, bool)}, again


def _object(payload: object, name: str) -> dict[str, Any]:
    found = payload.get(name) if isinstance(payload, dict) else None
    return found if isinstance(found, dict) else {}


def next_head(operation: str) -> bytes:
    """How every ``next`` of an operation begins; only this part differs between operations that share payloads."""
    return b'{"id":%s,"type":"next","payload":' % msgspec.json.encode(operation)


def complete(operation: str) -> bytes:
    """The end of an operation."""
    return msgspec.json.encode({"id": operation, "type": "complete"})


def error(operation: str, errors: list[dict[str, Any]]) -> bytes:
    """The end of an operation that failed."""
    return msgspec.json.encode({"id": operation, "type": "error", "payload": errors})


def graphql_error(problem: Problem) -> dict[str, Any]:
    """What ended an operation, as it travels."""
    extensions = {"code": problem.code, "retryable": problem.retryable, **problem.data}
    return {"message": problem.message, "extensions": extensions}

"""Messages of ``graphql-transport-ws``: parsed, validated and typed before anything acts on them.

Every shape is validated here, so that any input ends in the right close code: what is not a message of the protocol is a
``Violation`` 4400. Errors in a document are found later and concern its operation only.
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
    """A request to execute; only the types are checked. ``query`` is None where the hash of a persisted query replaces it."""

    query: str | None = None
    operation_name: str | None = None
    variables: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.query is None and not is_persisted(self.extensions):
            raise ValueError("Object missing required field `query`")


class GraphQLSubscribe(msgspec.Struct, frozen=True, tag_field="type", tag="subscribe"):
    """``subscribe``: starts an operation of any kind."""

    id: _Id
    payload: GraphQLRequest


class GraphQLComplete(msgspec.Struct, frozen=True, tag_field="type", tag="complete"):
    """``complete``: the client cancels the operation of this id."""

    id: _Id


GraphQLMessage = Init | GraphQLSubscribe | GraphQLComplete | Ping | Pong

_envelope: Final[Envelope[GraphQLMessage]] = Envelope(Init, GraphQLSubscribe, GraphQLComplete, Ping, Pong)


def is_persisted(extensions: Mapping[str, Any] | None) -> bool:
    """Whether a request names a persisted query by its hash, as clients with Apollo's protocol do first."""
    return extensions is not None and "persistedQuery" in extensions


def parse(text: bytes | str) -> GraphQLMessage:
    """Parses one message.

    Raises:
        Violation: 4400, with the error and the expected form.
    """
    return _envelope.read(text)


def credits_of(request: GraphQLRequest) -> int | None:
    """Returns the number of events that may be sent before the client requests more; None for no limit.

    Raises:
        InvalidRequest: If ``extensions.flow`` is malformed.
        InvalidDemand: If the credits are out of range.
    """
    flow = (request.extensions or {}).get("flow")
    if flow is None:
        return None
    found = flow.get("credits") if isinstance(flow, dict) else None
    return checked_credits("extensions.flow.credits", found)


def asked_by(ping: Ping) -> tuple[Mapping[str, int], Mapping[str, object]]:
    """Returns the demand and the requests for rows in a ping, by operation; the latter are unchecked.

    Other content of the payload belongs to the client.
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
    """Returns the start of every ``next`` of an operation, the only part that differs between operations that share payloads."""
    return b'{"id":%s,"type":"next","payload":' % msgspec.json.encode(operation)


def complete(operation: str) -> bytes:
    """Returns the message that completes an operation."""
    return msgspec.json.encode({"id": operation, "type": "complete"})


def error(operation: str, errors: list[dict[str, Any]]) -> bytes:
    """Returns the message that fails an operation."""
    return msgspec.json.encode({"id": operation, "type": "error", "payload": errors})


def graphql_error(problem: Problem) -> dict[str, Any]:
    """Returns the GraphQL error of a problem."""
    extensions = {"code": problem.code, "retryable": problem.retryable, **problem.data}
    return {"message": problem.message, "extensions": extensions}

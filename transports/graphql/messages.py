"""Messages of ``graphql-transport-ws``: read, checked and typed before anything acts on them.

Every shape is checked here, so that whatever a client sends ends in the right close code: what is no message of the
protocol is a ``Violation`` 4400. What is wrong with a document concerns its operation only, and is found later.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from transports.errors import CloseCode, InvalidDemand, InvalidRequest, Violation
from transports.limits import CREDITS_MAX

__all__ = [
    "Complete",
    "Init",
    "Message",
    "Ping",
    "Pong",
    "Request",
    "Subscribe",
    "complete",
    "credits_of",
    "error",
    "next_head",
    "parse",
    "pong",
    "requests_of",
]

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Init(msgspec.Struct, frozen=True):
    """``connection_init``: first, and once."""

    payload: dict[str, Any] | None = None


class Request(msgspec.Struct, frozen=True, rename={"operation_name": "operationName"}):
    """What is to be executed; unchecked but for the types."""

    query: str
    operation_name: str | None = None
    variables: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class Subscribe(msgspec.Struct, frozen=True):
    """``subscribe``: starts an operation of any kind."""

    id: _Id
    payload: Request


class Complete(msgspec.Struct, frozen=True):
    """``complete``: the client wants nothing more for this id."""

    id: _Id


class Ping(msgspec.Struct, frozen=True):
    """``ping``: to be answered with the same payload."""

    payload: msgspec.Raw = msgspec.Raw()


class Pong(msgspec.Struct, frozen=True):
    """``pong``: legal without having been asked for."""

    payload: Any = None


Message = Init | Subscribe | Complete | Ping | Pong


class _Envelope(msgspec.Struct):
    type: str


_envelope: Final = msgspec.json.Decoder(_Envelope)
_decoders: Final[Mapping[str, msgspec.json.Decoder[Any]]] = {
    "connection_init": msgspec.json.Decoder(Init),
    "subscribe": msgspec.json.Decoder(Subscribe),
    "complete": msgspec.json.Decoder(Complete),
    "ping": msgspec.json.Decoder(Ping),
    "pong": msgspec.json.Decoder(Pong),
}


def parse(text: bytes | str) -> Message:
    """Reads one message.

    Raises:
        Violation: 4400, with what was wrong and what would be right.
    """
    try:
        kind = _envelope.decode(text).type
        decoder = _decoders.get(kind)
        if decoder is None:
            known = ", ".join(_decoders)
            raise Violation(CloseCode.BAD_REQUEST, f"type is {kind!r:.40}, but must be one of: {known}")
        message: Message = decoder.decode(text)
    except msgspec.ValidationError as error:
        raise Violation(CloseCode.BAD_REQUEST, f"invalid message: {error}") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Violation(CloseCode.BAD_REQUEST, f"a message must be one JSON object: {error}") from None
    except RecursionError:
        raise Violation(CloseCode.BAD_REQUEST, "the message is nested too deeply") from None
    return message


def credits_of(request: Request) -> int | None:
    """How many events may be sent before the client asks for more; None if it leaves that to the server.

    Raises:
        InvalidRequest: If ``extensions.flow`` is not understood.
        InvalidDemand: If the credits are out of their range.
    """
    flow = (request.extensions or {}).get("flow")
    if flow is None:
        return None
    found = flow.get("credits") if isinstance(flow, dict) else None
    if isinstance(found, bool) or not isinstance(found, int):
        raise InvalidRequest("extensions.flow.credits", found, f"a whole number from 0 to {CREDITS_MAX}")
    if not 0 <= found <= CREDITS_MAX:
        raise InvalidDemand("extensions.flow.credits", found, 0, CREDITS_MAX)
    return found


def requests_of(ping: Ping) -> Mapping[str, int]:
    """Of which operations a ping requests how many more events; what else it says is the client's own affair."""
    raw = bytes(ping.payload)
    if b'"request"' not in raw:
        return {}
    payload = msgspec.json.decode(raw)
    found = payload.get("request") if isinstance(payload, dict) else None
    if not isinstance(found, dict):
        return {}
    return {name: n for name, n in found.items() if isinstance(n, int) and not isinstance(n, bool)}


def next_head(operation: str) -> bytes:
    """How every ``next`` of an operation begins; only this part differs between operations that share payloads."""
    return b'{"id":%s,"type":"next","payload":' % msgspec.json.encode(operation)


def complete(operation: str) -> bytes:
    """The end of an operation."""
    return msgspec.json.encode({"id": operation, "type": "complete"})


def error(operation: str, errors: list[dict[str, Any]]) -> bytes:
    """The end of an operation that failed."""
    return msgspec.json.encode({"id": operation, "type": "error", "payload": errors})


def pong(payload: msgspec.Raw) -> bytes:
    """The answer to a ping, with its payload."""
    raw = bytes(payload)
    return b'{"type":"pong","payload":%s}' % raw if raw else b'{"type":"pong"}'

"""The messages that both protocols share: the typed envelope, the greeting, and pings."""

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from transports.errors import CloseCode, Violation

__all__ = ["Envelope", "Init", "Ping", "Pong", "pong"]

_Message = TypeVar("_Message")


class Init(msgspec.Struct, frozen=True):
    """``connection_init``: the first message, sent once."""

    payload: dict[str, Any] | None = None


class Ping(msgspec.Struct, frozen=True, tag_field="type", tag="ping"):
    """``ping``: the answer carries the same payload."""

    payload: msgspec.Raw = msgspec.Raw()


class Pong(msgspec.Struct, frozen=True, tag_field="type", tag="pong"):
    """``pong``: legal also without a ping."""

    payload: Any = None


class _Typed(msgspec.Struct):
    type: str


_typed: Final = msgspec.json.Decoder(_Typed)


class Envelope(Generic[_Message]):
    """Parses the messages of one protocol.

    Args:
        types: The message types, by their ``type``.
    """

    def __init__(self, types: Mapping[str, type[_Message]]) -> None:
        self._decoders = {name: msgspec.json.Decoder(message) for name, message in types.items()}

    def read(self, text: bytes | str) -> _Message:
        """Parses one message.

        Raises:
            Violation: 4400, with the error and the expected form.
        """
        try:
            kind = _typed.decode(text).type
            decoder = self._decoders.get(kind)
            if decoder is None:
                known = ", ".join(self._decoders)
                raise Violation(CloseCode.BAD_REQUEST, f"type is {kind!r:.40}, but must be one of: {known}")
            return decoder.decode(text)
        except msgspec.ValidationError as error:
            raise Violation(CloseCode.BAD_REQUEST, f"invalid message: {error}") from None
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Violation(CloseCode.BAD_REQUEST, f"a message must be one JSON object: {error}") from None
        except RecursionError:
            raise Violation(CloseCode.BAD_REQUEST, "the message is nested too deeply") from None


def pong(payload: msgspec.Raw) -> bytes:
    """Returns the answer to a ping, with its payload."""
    raw = bytes(payload)
    return b'{"type":"pong","payload":%s}' % raw if raw else b'{"type":"pong"}'

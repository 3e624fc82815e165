"""The messages that both protocols share: the typed envelope, the greeting, and pings."""

import re
from typing import Any, Final, Generic, TypeVar, Union

import msgspec

from transports.errors import CloseCode, Violation

__all__ = ["Envelope", "Init", "Ping", "Pong", "pong"]

_UNKNOWN: Final = re.compile(r"Invalid value (.*) - at `\$\.type`", re.DOTALL)
_Message = TypeVar("_Message", bound=msgspec.Struct)


class Init(msgspec.Struct, frozen=True, tag_field="type", tag="connection_init"):
    """``connection_init``: the first message, sent once."""

    payload: dict[str, Any] | None = None


class Ping(msgspec.Struct, frozen=True, tag_field="type", tag="ping"):
    """``ping``: the answer carries the same payload."""

    payload: msgspec.Raw = msgspec.Raw()


class Pong(msgspec.Struct, frozen=True, tag_field="type", tag="pong"):
    """``pong``: legal also without a ping."""

    payload: Any = None


class Envelope(Generic[_Message]):
    """Reads the messages of one protocol.

    Args:
        *types: The message types, each with its ``type`` as tag.
    """

    def __init__(self, *types: type[_Message]) -> None:
        self._known = [str(one.__struct_config__.tag) for one in types]
        union: Any = Union[types]  # noqa: UP007 - of a tuple
        self._decoder: msgspec.json.Decoder[_Message] = msgspec.json.Decoder(union)

    def read(self, text: bytes | str) -> _Message:
        """Reads one message.

        Raises:
            Violation: 4400, with the error and the expected form.
        """
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError as error:
            raise Violation(CloseCode.BAD_REQUEST, self._invalid(str(error))) from None
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Violation(CloseCode.BAD_REQUEST, f"a message must be one JSON object: {error}") from None
        except RecursionError:
            raise Violation(CloseCode.BAD_REQUEST, "the message is nested too deeply") from None

    def _invalid(self, why: str) -> str:
        if (found := _UNKNOWN.fullmatch(why)) is not None:
            return f"type is {found[1]:.40}, but must be one of: {', '.join(self._known)}"
        return f"invalid message: {why}"


def pong(payload: msgspec.Raw) -> bytes:
    """Returns the answer to a ping, with its payload."""
    raw = bytes(payload)
    return b'{"type":"pong","payload":%s}' % raw if raw else b'{"type":"pong"}'

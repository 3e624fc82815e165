"""Replies of the Redis protocol, versions 2 and 3."""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["Encoded", "RespError", "SimpleString", "encode_reply", "shown"]

_LINES: Final = str.maketrans("\r\n", "  ")


class RespError(Exception):
    """An error reply.

    Args:
        code: The word with which it begins, such as ``ERR``.
        why: The error and the expected form.
    """

    def __init__(self, code: str, why: str) -> None:
        super().__init__(f"{code} {why}")
        self.code = code


class SimpleString(str):
    """A simple string reply, such as ``OK``."""

    __slots__ = ()


class Encoded(bytes):
    """A reply, or a part of one, that is already encoded."""

    __slots__ = ()


def shown(given: bytes, most: int = 40) -> str:
    """Returns the beginning of an argument for an error: in quotes, and in ASCII."""
    return repr(given[:most])[1:]


def encode_reply(reply: Any, version: int) -> bytes:
    """Encodes a reply.

    Args:
        reply: None, a whole number, text, bytes, a ``SimpleString``, a ``RespError``, an ``Encoded``, or a list or mapping
            of these.
        version: The version of the protocol, 2 or 3. In version 2 a mapping is a list of names and values, and null an empty
            bulk string.
    """
    out: list[bytes] = []
    _encode(reply, version, out)
    return b"".join(out)


def _encode(reply: Any, version: int, out: list[bytes]) -> None:
    if reply is None:
        out.append(b"_\r\n" if version == 3 else b"$-1\r\n")
    elif isinstance(reply, bool):
        out.append((b"#t\r\n" if reply else b"#f\r\n") if version == 3 else b":%d\r\n" % reply)
    elif isinstance(reply, int):
        out.append(b":%d\r\n" % reply)
    elif isinstance(reply, SimpleString):
        out.append(b"+%b\r\n" % reply.encode())
    elif isinstance(reply, RespError):
        out.append(b"-%b\r\n" % str(reply).translate(_LINES).encode("utf-8", "replace"))
    elif isinstance(reply, Encoded):
        out.append(reply)
    elif isinstance(reply, str | bytes):
        raw = reply.encode("utf-8", "surrogateescape") if isinstance(reply, str) else reply
        out += (b"$%d\r\n" % len(raw), raw, b"\r\n")
    elif isinstance(reply, Mapping):
        out.append(b"%%%d\r\n" % len(reply) if version == 3 else b"*%d\r\n" % (2 * len(reply)))
        for name, value in reply.items():
            _encode(name, version, out)
            _encode(value, version, out)
    else:
        out.append(b"*%d\r\n" % len(reply))
        for each in reply:
            _encode(each, version, out)

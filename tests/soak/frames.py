"""WebSocket frames as cheap as they can be, for thousands of clients in one process (RFC 6455 5.2)."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["Frames", "frame", "greet", "said"]

_UPGRADE: Final = (
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_TEXT: Final = 1
_CLOSE: Final = 8
_PING: Final = 9


def frame(opcode: int, data: bytes = b"", *, fin: bool = True) -> bytes:
    """A frame of a client, masked with nothing."""
    size = len(data)
    if size < 126:
        length = bytes((0x80 | size,))
    elif size < 65_536:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return bytes((opcode | (0x80 if fin else 0),)) + length + bytes(4) + data


def said(**message: Any) -> bytes:
    """A message of a client."""
    return frame(_TEXT, json.dumps(message).encode())


class Frames:
    """What a server sends, taken apart."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._answers = b""

    def answers(self) -> bytes:
        """The pongs that are due."""
        answers, self._answers = self._answers, b""
        return answers

    def texts(self, data: bytes) -> Iterator[bytes]:
        """The whole text messages that there are now.

        Raises:
            EOFError: If the server closes.
        """
        held = self._data
        held += data
        at = 0
        while len(held) - at >= 2:
            opcode, size, head = held[at] & 15, held[at + 1], 2
            if size >= 126:
                head = 4 if size == 126 else 10
                if len(held) - at < head:
                    break
                size = int.from_bytes(held[at + 2 : at + head], "big")
            if len(held) - at < head + size:
                break
            content = bytes(held[at + head : at + head + size])
            at += head + size
            if opcode == _TEXT:
                yield content
            elif opcode == _PING:
                self._answers += frame(10, content)
            elif opcode == _CLOSE:
                raise EOFError(int.from_bytes(content[:2], "big"))
        del held[:at]


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str = "guest") -> Frames:
    """Opens a WebSocket on a connection and waits until it is acknowledged; answers what takes the frames apart from then on.

    Raises:
        EOFError: If the server closes.
    """
    writer.write(_UPGRADE)
    await reader.readuntil(b"\r\n\r\n")
    writer.write(said(type="connection_init", payload={"token": token}))
    frames = Frames()
    while data := await reader.read(1 << 16):
        if any(frames.texts(data)):
            return frames
    raise EOFError

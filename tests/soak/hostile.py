"""What hostile clients do; each attack is one connection, which the server may cut off."""

import asyncio
import json
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.soak.frames import frame, greet, said

__all__ = ["ATTACKS"]


@asynccontextmanager
async def _dialled(port: int, *, upgraded: bool = True) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if upgraded:
            await greet(reader, writer)
        yield reader, writer
    finally:
        writer.close()


async def _told(port: int, data: bytes) -> None:
    """Sends something on a connection that was let in, and reads what comes of it."""
    async with _dialled(port) as (reader, writer):
        for at in range(0, len(data), 1 << 16):
            writer.write(data[at : at + (1 << 16)])
            await writer.drain()
        async with asyncio.timeout(1):
            while await reader.read(1 << 16):
                pass


def _sends(data: bytes) -> Callable[[int], Awaitable[None]]:
    return lambda port: _told(port, data)


def _subscribes(criteria: list[dict[str, Any]], times: int = 1) -> Callable[[int], Awaitable[None]]:
    wish = {"criteria": criteria, "credits": 100}
    return _sends(b"".join(said(type="subscribe", id=str(n), payload=wish) for n in range(times)))


async def _reset(port: int) -> None:
    """Subscribes to everything and is gone without a word, in the middle of it."""
    async with _dialled(port) as (reader, writer):
        wish = {"criteria": [], "credits": 10_000, "start": "earliest"}
        writer.write(said(type="subscribe", id="a", payload=wish))
        await reader.read(4096)
        taken = writer.get_extra_info("socket")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


async def _never_finished(port: int) -> None:
    """The head of a request, a byte at a time."""
    async with _dialled(port, upgraded=False) as (_, writer):
        for byte in b"GET /statistics HTTP/1.1\r\nhost: localhost\r\nx: ":
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.05)


async def _posted(port: int, path: str, body: bytes) -> None:
    async with _dialled(port, upgraded=False) as (reader, writer):
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        async with asyncio.timeout(2):
            await reader.read(1 << 16)


def _queries(text: str) -> Callable[[int], Awaitable[None]]:
    return lambda port: _posted(port, "/graphql", json.dumps({"query": text}).encode())


_GLOBS: Final = [f"*{n}*?*{n}" for n in range(400)]
_chance: Final = random.Random(5)

ATTACKS: Final[dict[str, Callable[[int], Awaitable[None]]]] = {
    "empty pings": _sends(frame(9) * 20_000),
    "a message in fragments of a byte": _sends(
        frame(1, b'"', fin=False) + frame(0, b"x", fin=False) * 20_000
    ),
    "noise": _sends(_chance.randbytes(50_000)),
    "no JSON": _sends(frame(1, b"{" * 1_000)),
    "deep JSON": _sends(frame(1, b"[" * 100_000)),
    "a message that is too long": _sends(frame(1, b'"' + b"x" * (2 << 20) + b'"')),
    "an unknown type": _sends(said(type="launch")),
    "costly globs": _subscribes([{"key_globs": _GLOBS}], 20),
    "many keys": _subscribes([{"keys": [str(n) for n in range(20_000)]}], 5),
    "many subscriptions": _subscribes([{"entity_types": ["order"]}], 1_000),
    "the whole log again and again": _subscribes([], 100),
    "gone in the middle": _reset,
    "a head without an end": _never_finished,
    "a deep query": _queries(
        "{ __schema { types " + "{ fields { type " * 40 + "{ name }" + "} }" * 40 + "} }"
    ),
    "a query with a thousand aliases": _queries(
        "{ " + " ".join(f"a{n}: __typename" for n in range(1_000)) + " }"
    ),
}

"""Strangers and guests at the door of a server, in a process of their own: each attacks as fast as it is let.

``begin`` lets them come; ``made`` tells how often each kind was begun.
"""

import asyncio
import contextlib
import itertools
import json
import random
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.soak.asking import obey
from tests.soak.frames import greet, said

__all__ = ["KINDS"]

DRIP: Final = 0.1  # seconds between two bytes of a body
CHUNKS: Final = b"1\r\nx\r\n" * 10_000
PATHS: Final = ("/", "/changes", "/graphql", "/health", "/nothing")
ROWS: Final = [{"entity_type": "storm", "key": "1", "body": {}}]


@dataclass
class Door:
    """What attackers know of a server.

    Attributes:
        port: Of HTTP and WebSockets.
        resp: Of the Redis protocol.
        token: Of a client that may append.
        place: A cursor at the beginning of the log.
        key: A key of an order that was changed since.
        address: From which they come.
        made: How often each kind was begun.
    """

    port: int
    resp: int
    token: str
    place: str
    key: str
    address: str = "127.0.0.2"
    made: Counter[str] = field(default_factory=Counter)


@contextlib.asynccontextmanager
async def _dialled(door: Door, *, resp: bool = False, held: int = 1 << 16) -> AsyncIterator[Any]:
    """A connection, of which this side holds so many bytes."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, held)
    taken.setblocking(False)
    taken.bind((door.address, 0))
    await asyncio.get_running_loop().sock_connect(taken, ("127.0.0.1", door.resp if resp else door.port))
    reader, writer = await asyncio.open_connection(sock=taken, limit=held)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _some(reader: asyncio.StreamReader) -> bytes:
    data = await reader.read(1 << 16)
    if not data:
        raise EOFError
    return data


async def _until_closed(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def _be_silent(door: Door, number: int) -> None:
    async with _dialled(door, resp=not number % 2) as (reader, _):
        await _until_closed(reader)


async def _drip(door: Door, number: int) -> None:
    """A body that comes a byte at a time, to a path for all or to one that needs the token."""
    path = "/changes" if number % 2 else "/graphql"
    kind = "application/x-ndjson" if number % 4 == 1 else "application/json"
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {door.token}\r\ncontent-type: {kind}\r\ncontent-length: 500000\r\n\r\n"
    async with _dialled(door) as (reader, writer):
        writer.write(head.encode())
        ended = asyncio.create_task(_until_closed(reader))
        try:
            while not ended.done():
                writer.write(b" ")
                await writer.drain()
                await asyncio.wait([ended], timeout=DRIP)
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)


async def _flood(door: Door, number: int) -> None:
    """A body in chunks of one byte, without a token."""
    head = f"POST {PATHS[number % len(PATHS)]} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    async with _dialled(door) as (reader, writer):
        writer.write(head.encode())
        for _ in range(20):
            writer.write(CHUNKS)
            await writer.drain()
        await _until_closed(reader)


async def _storm(door: Door, number: int) -> None:
    """Appends that expect what is not so, which is found only by a look through the whole history."""
    expect = {"cursor": door.place, "keys": [{"entity_type": "order", "key": door.key}]}
    async with _dialled(door) as (reader, writer):
        frames = await greet(reader, writer, door.token)
        while True:
            payload = {"changes": ROWS, "expect": expect, "first": True}
            writer.write(said(type="append", id=f"{number}", payload=payload))
            while not any(frames.texts(await _some(reader))):
                pass


async def _leave_unread(door: Door, number: int) -> None:
    """As many snapshots as a connection may have, of which nothing is read."""
    wish = {"criteria": [], "start": "state", "content": "BODY", "credits": 2**31 - 1}
    async with _dialled(door, held=4096) as (reader, writer):
        await greet(reader, writer, door.token)
        for each in range(10):
            writer.write(said(type="subscribe", id=f"{number}-{each}", payload=wish))
        while not writer.is_closing():
            await asyncio.sleep(1)
            writer.write(said(type="ping"))
            await writer.drain()


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in words)


BOMBS: Final[dict[str, bytes]] = {
    "names": _command(b"COMMAND", b"INFO", *[b"PING"] * 9_000) * 4,
    "nothing": b"*0\r\n" * 50_000,
    "blank lines": b"\r\n" * 100_000,
    "never finished": b"*2\r\n$4\r\nECHO\r\n$260000\r\n" + b"x" * 250_000,
    "never read": _command(b"CDCPOLL", b"0", b"100") * 100,
    "tables": _command(b"COMMAND") * 2_000,
    "guesses": _command(b"AUTH", b"nobody") * 100,
}


async def _bomb(door: Door, number: int) -> None:
    name = list(BOMBS)[number % len(BOMBS)]
    async with _dialled(door, resp=True, held=4096) as (reader, writer):
        writer.write(_command(b"AUTH", door.token.encode()) if name != "guesses" else b"")
        writer.write(BOMBS[name])
        await writer.drain()
        if name.startswith("never"):
            while not writer.is_closing():
                await asyncio.sleep(1)
                writer.write(b"" if name == "never finished" else _command(b"PING"))
                await writer.drain()
        else:
            writer.write(_command(b"QUIT"))
            await _until_closed(reader)


KINDS: Final[dict[str, Callable[[Door, int], Awaitable[None]]]] = {
    "silent": _be_silent,
    "drips": _drip,
    "floods": _flood,
    "storms": _storm,
    "unread": _leave_unread,
    "bombs": _bomb,
}


class Attackers:
    """All of them.

    Args:
        many: How many connections of each kind.
        rest: Seconds on average between the end of a connection and the next one.
        door: The arguments of `Door`.
    """

    def __init__(self, many: dict[str, int], rest: float, door: dict[str, Any]) -> None:
        self._many = many
        self._rest = rest
        self._door = Door(**door)
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> dict[str, Any]:
        """Lets them come."""
        for kind, count in self._many.items():
            self._tasks += [asyncio.create_task(self._attack(kind, number)) for number in range(count)]
        return {}

    async def made(self) -> dict[str, int]:
        """How often each kind was begun."""
        return dict(self._door.made)

    async def _attack(self, kind: str, number: int) -> None:
        for turn in itertools.count():
            await asyncio.sleep(random.expovariate(1 / self._rest))
            self._door.made[kind] += 1
            with contextlib.suppress(OSError, EOFError):
                await KINDS[kind](self._door, number + turn)


if __name__ == "__main__":
    asyncio.run(obey(Attackers(**json.loads(sys.argv[1]))))

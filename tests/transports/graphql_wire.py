"""A client that speaks ``graphql-transport-ws`` by hand, and an engine without a server."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection

from publishers import ChangeLog
from transports import Limits
from transports.graphql.execution import Engine

DEADLINE = 120.0
EVERYTHING = "subscription ($since: Cursor) { onChange(since: $since) { cursor version index key body } }"


class Wire:
    """A connection on which messages are JSON objects."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.early: deque[dict[str, Any]] = deque()  # what came for others before an answer

    async def send(self, **message: Any) -> None:
        await self.socket.send(json.dumps(message))

    async def receive(self) -> dict[str, Any]:
        if self.early:
            return self.early.popleft()
        async with asyncio.timeout(DEADLINE):
            return json.loads(await self.socket.recv())

    async def init(self, **payload: Any) -> None:
        await self.send(type="connection_init", payload=payload)
        assert await self.receive() == {"type": "connection_ack"}

    async def subscribe(self, query: str = EVERYTHING, name: str = "a", **variables: Any) -> None:
        await self.send(type="subscribe", id=name, payload={"query": query, "variables": variables})

    async def settled(self) -> None:
        """What was sent before has been handled: messages are handled in order, and queries one after the other."""
        await self.subscribe("{ __typename }", "settled")
        assert (await self.receive())["type"] == "next"
        assert await self.receive() == {"id": "settled", "type": "complete"}

    async def next(self, name: str = "a") -> Any:
        """The data of the next event; pings are answered in between."""
        while True:
            message = await self.receive()
            if message["type"] != "ping":
                assert (message["type"], message["id"]) == ("next", name), message
                return message["payload"]["data"]
            await self.send(type="pong", payload=message["payload"])

    async def answer(self, query: str, name: str = "say", **variables: Any) -> Any:
        """The data that a query or a mutation is answered with, or the ``extensions`` of its error."""
        await self.subscribe(query, name, **variables)
        found, others = [], []
        while len(found) < 2:
            message = await self.receive()
            (found if message.get("id") == name else others).append(message)
        self.early.extend(others)
        payload = found[0]["payload"]
        assert [one["type"] for one in found] == ["next", "complete"], found
        return payload["errors"][0]["extensions"] if "errors" in payload else payload["data"]

    async def events(self, count: int, name: str = "a") -> list[dict[str, Any]]:
        return [(await self.next(name))["onChange"] for _ in range(count)]

    async def fail(self, query: str, name: str = "a", **variables: Any) -> list[dict[str, Any]]:
        """Subscribes in vain; returns the errors."""
        await self.subscribe(query, name, **variables)
        message = await self.receive()
        assert (message["type"], message["id"]) == ("error", name), message
        return message["payload"]

    async def nothing_comes(self) -> None:
        await self.send(type="ping", payload={"n": 1})
        assert await self.receive() == {"type": "pong", "payload": {"n": 1}}

    async def closed(self) -> tuple[int, str]:
        async with asyncio.timeout(DEADLINE):
            try:
                while True:
                    await self.socket.recv()
            except websockets.ConnectionClosed as error:
                return (1006, "") if error.rcvd is None else (error.rcvd.code, error.rcvd.reason)


@pytest.fixture
def graphql() -> Callable[..., Any]:
    """Connects to the GraphQL of a server by hand, without the handshake of the protocol."""

    @asynccontextmanager
    async def connect(
        server: Any, subprotocols: tuple[str, ...] = ("graphql-transport-ws",), **options: Any
    ) -> AsyncIterator[Wire]:
        async with websockets.connect(
            server.graphql_url.replace("http:", "ws:"),
            proxy=None,
            compression=None,
            subprotocols=list(subprotocols) or None,
            max_size=None,
            open_timeout=DEADLINE,
            close_timeout=1,
            **options,
        ) as socket:
            yield Wire(socket)

    return connect


@pytest.fixture
def engine(log: ChangeLog) -> Engine:
    return Engine({"shop": log}, Limits())

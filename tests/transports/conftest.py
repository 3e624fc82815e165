"""A log, a server on a free port, and a client that speaks the protocol by hand."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import websockets
from websockets.asyncio.client import ClientConnection

from publishers.log.changelog import ChangeLog
from publishers.log.start import Places
from publishers.mutations.mutation import upsert
from tests.harness.constants import without_bounds
from tests.harness.ports import free_port
from tests.transports.graphql_wire import engine, graphql  # noqa: F401 - fixtures
from transports import Limits, Server, serve

DEADLINE = 120.0


class Wire:
    """A connection on which messages are JSON objects."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, **message: Any) -> None:
        await self.socket.send(json.dumps(message))

    async def raw(self, text: str | bytes) -> None:
        # A server that refuses a message may do so before all of it was sent.
        with contextlib.suppress(websockets.ConnectionClosed):
            await self.socket.send(text)

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE):
            return json.loads(await self.socket.recv())

    async def expect(self, kind: str) -> dict[str, Any]:
        """The next message of a type; checkpoints in between are passed over, unless one is asked for."""
        while True:
            message = await self.receive()
            if message["type"] == kind:
                return message
            assert message["type"] == "checkpoint", message

    async def init(self, **payload: Any) -> dict[str, Any]:
        await self.send(type="connection_init", payload=payload)
        return await self.expect("connection_ack")

    async def subscribe(self, name: str = "a", **payload: Any) -> dict[str, Any]:
        await self.send(type="subscribe", id=name, payload={"criteria": [], "credits": 0} | payload)
        return await self.expect("subscribed")

    async def fail(self, name: str = "a", **payload: Any) -> dict[str, Any]:
        """Subscribes in vain; returns the payload of the error."""
        await self.send(type="subscribe", id=name, payload={"criteria": [], "credits": 0} | payload)
        message = await self.expect("error")
        assert message["id"] == name
        return message["payload"]

    async def events(self, count: int, name: str = "a") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while len(found) < count:
            message = await self.expect("next")
            assert message["id"] == name
            found += message["events"]
        assert len(found) == count
        return found

    async def nothing_comes(self) -> None:
        """Nothing but checkpoints, whose time may come at any time: what was on its way before the answer to a ping comes first."""
        await self.send(type="ping", payload={"n": 1})
        assert await self.expect("pong") == {"type": "pong", "payload": {"n": 1}}

    async def closed(self) -> tuple[int, str]:
        """Reads until the end, and returns code and reason."""
        async with asyncio.timeout(DEADLINE):
            try:
                while True:
                    await self.socket.recv()
            except websockets.ConnectionClosed as error:
                return (1006, "") if error.rcvd is None else (error.rcvd.code, error.rcvd.reason)


@contextlib.contextmanager
def uvicorn_runs(application: Any, **options: Any) -> Iterator[tuple[uvicorn.Server, int]]:
    """A server of others, on a listener that was made elsewhere; yields the server and its port."""
    ready = threading.Event()

    class Listening(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready.set()

    config = uvicorn.Config(application, log_config=None, timeout_graceful_shutdown=2, **options)
    server = Listening(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        thread.start()
        assert ready.wait(DEADLINE)
        try:
            yield server, listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(DEADLINE)
            assert not thread.is_alive()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ChangeLog]:
    with ChangeLog.open(tmp_path / "shop") as log:
        yield log


@pytest.fixture
def fill(log: ChangeLog) -> Callable[..., int]:
    """Commits transactions of some orders each, and returns the last version."""

    def fill(versions: int, changes: int = 1, body: str = "x", entity_type: str = "order") -> int:
        version = 0
        for number in range(versions):
            version = log.commit(
                [upsert(entity_type, f"{number}-{place}", {"value": body}) for place in range(changes)]
            ).version
        return version

    return fill


@pytest.fixture
def serving(log: ChangeLog) -> Iterator[Callable[..., Server]]:
    """Serves the log; bounds of the connections are keyword arguments."""
    servers: list[Server] = []

    def start(
        port: int | None = None,
        origins: tuple[str, ...] = (),
        authenticate: Any = None,
        pages: Any = None,
        authorise: Any = None,
        served: Any = None,
        spark_queries: Any = None,
        **limits: Any,
    ) -> Server:
        server = serve(
            log if served is None else served,
            port=free_port() if port is None else port,
            limits=Limits(**without_bounds(limits)),
            origins=origins,
            authenticate=authenticate,
            authorise=authorise,
            pages=pages,
            spark_queries=spark_queries,
        )
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


class Search:
    """The search for a start, which waits until the test lets it go on.

    Attributes:
        sought: What was searched for.
        go_on: Set it, and each search goes on.
    """

    def __init__(self) -> None:
        self.sought: list[Any] = []
        self.go_on = threading.Event()


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Search]:
    """Makes every search from now on wait that is for something of a kind."""

    def hold(kind: type = object) -> Search:
        search, find = Search(), Places.find

        def slowly(self: Places, since: Any, **named: Any) -> Any:
            if isinstance(since, kind):
                search.sought.append(since)
                assert search.go_on.wait(DEADLINE)
            return find(self, since, **named)

        monkeypatch.setattr(Places, "find", slowly)
        return search

    return hold


@pytest.fixture
def dial() -> Callable[..., Any]:
    """Connects by hand, without the handshake of the protocol."""

    @asynccontextmanager
    async def dial(url: str, subprotocols: list[str] | None = None, **options: Any) -> AsyncIterator[Wire]:
        async with websockets.connect(
            url,
            proxy=None,
            compression=None,
            subprotocols=subprotocols,
            max_size=None,
            open_timeout=DEADLINE,
            close_timeout=1,
            **options,
        ) as socket:
            yield Wire(socket)

    return dial


@pytest.fixture
def until() -> Callable[..., Any]:
    """Waits for a condition, with a deadline."""

    async def until(condition: Callable[[], Any], what: str = "the condition") -> Any:
        end = time.monotonic() + DEADLINE
        while not (value := condition()):
            assert time.monotonic() < end, f"{what} did not come true in {DEADLINE} s"
            await asyncio.sleep(0.005)
        return value

    return until

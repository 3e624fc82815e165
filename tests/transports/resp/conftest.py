"""A server of the Redis protocol on a free port, and stock clients of it."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.harness.constants import without_bounds
from transports import Limits
from transports.resp.server import RespServer, serve_resp

DEADLINE = 60.0


@pytest.fixture
def resp(log: Any) -> Iterator[Callable[..., RespServer]]:
    """Serves the log; bounds are keyword arguments."""
    servers: list[RespServer] = []

    def start(
        served: Any = None, authenticate: Any = None, authorise: Any = None, tls: Any = None, **limits: Any
    ) -> RespServer:
        server = serve_resp(
            log if served is None else served,
            limits=Limits(**without_bounds(limits)),
            authenticate=authenticate,
            authorise=authorise,
            tls=tls,
        )
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def stock() -> Iterator[Callable[..., redis.Redis]]:
    """Makes stock clients of a server."""
    clients: list[redis.Redis] = []

    def connect(server: RespServer, **options: Any) -> redis.Redis:
        client = redis.Redis(port=server.port, **({"socket_timeout": DEADLINE} | options))
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()


class RawClient:
    """Bytes, as they are written and as they come."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)

    def send(self, *words: bytes | str, times: int = 1) -> None:
        """Sends a command, or the same several times at once."""
        raw = [word.encode() if isinstance(word, str) else word for word in words]
        command = b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in raw)
        self.write(command * times)

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, count: int) -> bytes:
        """So many bytes, or fewer if the connection ends before."""
        found = b""
        while len(found) < count and (more := self.socket.recv(count - len(found))):
            found += more
        return found

    def line(self) -> bytes:
        """The next line, without its end; empty if the connection has ended."""
        found = b""
        while not found.endswith(b"\r\n") and (more := self.socket.recv(1)):
            found += more
        return found.removesuffix(b"\r\n")

    def rest(self) -> bytes:
        """Everything until the server closes."""
        found = b""
        try:
            while more := self.socket.recv(65536):
                found += more
        except ConnectionResetError:
            pass
        return found

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def raw() -> Iterator[Callable[[RespServer], RawClient]]:
    """Connects without a library."""
    clients: list[RawClient] = []

    def connect(server: RespServer) -> RawClient:
        client = RawClient(server.port)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()

"""Small writes are sent at once: Nagle's algorithm is off wherever we make or take a connection."""

import asyncio
import socket

import pytest

from tests.harness.inside import uvicorn_of
from tests.transports.conftest import uvicorn_runs
from transports import connect
from transports.server.asgi import Application
from transports.server.http_protocol import HttpProtocol
from transports.server.ws_protocol import LinkProtocol
from transports.tcp.sockets import send_at_once, writer_of


def at_once(transport):
    """Whether the option is set on the socket of a transport."""
    return transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def accepted(server, until):
    """The transport of the one connection that a server has."""
    (protocol,) = await until(lambda: server.server_state.connections)
    return protocol.transport


async def test_a_web_socket_that_is_accepted_sends_at_once(serving, dial, until):
    server = serving()
    async with dial(server.url) as wire:
        await wire.init()
        assert at_once(await accepted(uvicorn_of(server), until))


async def test_so_does_a_connection_for_http(serving, until):
    server = serving()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    assert at_once(await accepted(uvicorn_of(server), until))
    writer.close()
    await writer.wait_closed()


async def test_a_web_socket_sends_at_once_whoever_made_the_listener(log, dial, until):
    with uvicorn_runs(Application(log), ws=LinkProtocol) as (server, port):
        async with dial(f"ws://127.0.0.1:{port}/ws") as wire:
            await wire.init()
            assert at_once(await accepted(server, until))


async def test_so_does_a_connection_for_http_whoever_made_the_listener(log, until):
    with uvicorn_runs(Application(log), http=HttpProtocol) as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        assert at_once(await accepted(server, until))
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("protocol", [socket.IPPROTO_TCP, 0])
async def test_the_client_sends_at_once_whatever_made_its_socket(serving, monkeypatch, until, protocol):
    """What speaks to a SOCKS proxy makes sockets of its own, for which asyncio does nothing."""
    server = serving()
    loop = asyncio.get_running_loop()

    async def look_up(host, port, **_named):
        return [(socket.AF_INET, socket.SOCK_STREAM, protocol, "", (host, port))]

    monkeypatch.setattr(loop, "_ensure_resolved", lambda address, **named: look_up(*address, **named))
    made = []
    create = loop.create_connection

    async def creating(*arguments, **named):
        transport, connection = await create(*arguments, **named)
        made.append(transport)
        return transport, connection

    monkeypatch.setattr(loop, "create_connection", creating)
    async with connect(server.url):
        (transport,) = made
        assert transport.get_extra_info("socket").proto == protocol
        assert at_once(transport)


async def test_a_transport_that_is_none_of_tcp_is_left_as_it_is():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        _, writer = await asyncio.open_unix_connection(sock=ours)
        send_at_once(writer.transport)
        writer.close()
        await writer.wait_closed()
    send_at_once(asyncio.Transport())


class Ends(asyncio.Protocol):
    """One end of a connection, which counts what goes through its transport."""

    def connection_made(self, transport):
        self.transport, self.passed = transport, []
        self.write = writer_of(transport)
        self.gone = asyncio.get_running_loop().create_future()

    def connection_lost(self, error):
        self.gone.set_result(error)


@pytest.fixture
async def ends():
    """Our end, and a socket at the other one that blocks."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    _, end = await asyncio.get_running_loop().create_connection(Ends, sock=ours)
    real = end.transport.write
    end.transport.write = lambda data: end.passed.append(len(data)) or real(data)
    yield end, theirs
    end.transport.abort()
    theirs.close()


async def test_a_write_gives_the_interpreter_up_only_for_what_the_kernel_does_not_take(ends):
    """F147: a loop that writes to a thousand clients waits for none of the busy threads between two of them."""
    end, theirs = ends
    end.write(b"one")
    end.write(b"")
    assert (end.passed, theirs.recv(9)) == ([0], b"one")
    sent = bytes(range(256)) * 20_000
    end.write(sent)
    assert 0 < end.passed[1] < len(sent)
    end.write(b"behind")  # the transport has unsent bytes, so the order is its business
    assert end.passed[2] == len(b"behind")
    got = b""
    while len(got) < len(sent) + len(b"behind"):
        got += await asyncio.to_thread(theirs.recv, 1 << 20)
    assert got == sent + b"behind"


async def test_an_error_of_a_write_and_a_closed_transport_are_left_to_the_transport(ends):
    end, theirs = ends
    theirs.close()
    end.write(b"to nobody")
    assert isinstance(await end.gone, OSError)
    end.write(b"behind the end")
    assert end.passed == [len(b"to nobody"), len(b"behind the end")]


async def test_a_transport_that_is_not_asyncios_own_writes_itself():
    class Other(asyncio.Transport):
        def write(self, data):
            raise AssertionError(data)

    other = Other()
    assert writer_of(other) == other.write


def test_asyncio_has_the_private_name_by_which_its_transport_is_known():
    """CPython 3.11 to 3.14."""
    assert issubclass(asyncio.selector_events._SelectorSocketTransport, asyncio.Transport)

"""The protocol class over real sockets, with an application of the test."""

import asyncio
import contextlib
import socket
from contextlib import asynccontextmanager
from http import HTTPStatus
from types import SimpleNamespace

import pytest
import websockets
from websockets.frames import Close, Frame, Opcode

from tests.harness.constants import without_bounds
from tests.harness.inside import receiver_of
from transports.errors import CloseCode
from transports.limits import HIGH_WATER, Limits
from transports.server.frames import frame_head
from transports.server.link import LINK
from transports.server.ws_protocol import LinkProtocol


class Recorder:
    """A receiver that remembers, and may answer."""

    def __init__(self):
        self.texts, self.drains, self.losses, self.stops = [], 0, 0, 0
        self.answer = lambda text: None

    def received(self, text):
        self.texts.append(text)
        self.answer(text)

    def drained(self):
        self.drains += 1

    def lost(self):
        self.losses += 1

    def stop(self):
        self.stops += 1


class Host:
    """What uvicorn is to the protocol class."""

    def __init__(self, app, **limits):
        self.protocols = []
        self.state = SimpleNamespace(connections=set(), tasks=set())
        config = SimpleNamespace(loaded_app=app, root_path="", asgi_version="3.0")

        class Protocol(LinkProtocol):
            limits = Limits()

        Protocol.limits = Limits(**without_bounds(limits))
        self.make = lambda: self.protocols.append(Protocol(config, self.state, {})) or self.protocols[-1]


@asynccontextmanager
async def hosting(app, **limits):
    host = Host(app, **limits)
    server = await asyncio.get_running_loop().create_server(host.make, "127.0.0.1", 0)
    host.address = server.sockets[0].getsockname()
    host.url = f"ws://127.0.0.1:{host.address[1]}/ws"
    try:
        yield host
    finally:
        server.close()
        for protocol in host.protocols:
            with contextlib.suppress(AttributeError):
                protocol.abort()
        await server.wait_closed()
        await asyncio.gather(*host.state.tasks, return_exceptions=True)


def taking(recorder, subprotocol=None, scopes=None):
    async def app(scope, receive, send):
        if scopes is not None:
            scopes.append(scope)
        link = scope["extensions"][LINK]
        link.attach(recorder, subprotocol)
        await link.closed()

    return app


def dial(url, **options):
    bounds = {"max_size": None, "open_timeout": 60, "close_timeout": 1}
    return websockets.connect(url, proxy=None, compression=None, **bounds, **options)


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65535, 65536, 300_000])
async def test_frames_of_every_length_are_read_by_a_stock_client(length, until):
    recorder = Recorder()
    async with hosting(taking(recorder)) as host, dial(host.url) as client:
        await until(lambda: receiver_of(host.protocols[0]))
        link = host.protocols[0]
        link.write(b"a" * length)
        link.write(b"next")
        link.flush()
        assert await client.recv() == "a" * length
        assert await client.recv() == "next"
    assert frame_head(5) == b"\x81\x05"


async def test_what_is_written_in_a_turn_goes_in_one_write(until):
    recorder = Recorder()
    async with hosting(taking(recorder)) as host, dial(host.url) as client:
        link = host.protocols[0]
        await until(lambda: receiver_of(link))
        writes, real = [], link._write
        link._write = lambda data: writes.append(data) or real(data)
        for number in range(10):
            link.write(b"%d" % number)
        assert link.unsent == 30
        link.flush()
        link.flush()
        assert len(writes) == 1
        assert [await client.recv() for _ in range(10)] == [str(number) for number in range(10)]


async def test_texts_fragments_and_binary_messages_arrive_whole(until):
    recorder, scopes = Recorder(), []
    async with (
        hosting(taking(recorder, "x", scopes)) as host,
        dial(host.url + "?q=1", subprotocols=["x", "y"], additional_headers={"X-Test": "ü"}) as client,
    ):
        assert client.subprotocol == "x"
        await client.send("téxt")
        await client.send(b"binary")
        await client.send(["frag", "men", "", "ted"])
        await until(lambda: len(recorder.texts) == 3)
        assert recorder.texts == ["téxt", b"binary", "fragmented"]
    assert scopes[0]["subprotocols"] == ["x", "y"]
    assert scopes[0]["query_string"] == b"q=1"
    assert (scopes[0]["path"], scopes[0]["scheme"]) == ("/ws", "ws")
    assert (b"x-test", "ü".encode("latin-1")) in scopes[0]["headers"] or scopes[0]["headers"]
    await until(lambda: recorder.losses == 1)


async def closes(client):
    async with asyncio.timeout(60):
        try:
            while True:
                await client.recv()
        except websockets.ConnectionClosed as error:
            return error.rcvd.code if error.rcvd else 1006


async def test_close_sends_what_was_queued_then_code_and_cut_reason(until):
    recorder = Recorder()
    async with hosting(taking(recorder)) as host, dial(host.url) as client:
        await until(lambda: host.protocols and receiver_of(host.protocols[0]))
        host.protocols[0].write(b"last")
        host.protocols[0].close(CloseCode.RESTART, "ü" * 100)
        assert await client.recv() == "last"
        with pytest.raises(websockets.ConnectionClosed) as caught:
            await client.recv()
        assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1012, "ü" * 61)
        assert recorder.losses == 1
        await until(lambda: not host.state.connections)
    assert recorder.losses == 1


async def test_what_comes_right_before_the_close_frame_is_received(until):
    """F88: a client may say its last word, such as an acknowledgement, and leave."""
    recorder = Recorder()
    async with hosting(taking(recorder)) as host, dial(host.url) as client:
        frames = [Frame(Opcode.TEXT, text).serialize(mask=True) for text in (b"one", b"two")]
        end = Frame(Opcode.CLOSE, Close(1000, "").serialize()).serialize(mask=True)
        client.transport.write(b"".join([*frames, end, Frame(Opcode.TEXT, b"three").serialize(mask=True)]))
        await until(lambda: recorder.losses == 1)
        assert recorder.texts == ["one", "two"]


async def test_a_message_above_the_limit_is_closed_with_1009(until):
    recorder = Recorder()
    async with hosting(taking(recorder), message_bytes=1000) as host, dial(host.url) as client:
        await client.send("a" * 1000)
        await until(lambda: recorder.texts)
        await client.send(["b" * 600, "b" * 600])
        assert await closes(client) == 1009
        assert recorder.texts == ["a" * 1000]
        assert recorder.losses == 1


async def test_text_that_is_not_utf_8_is_closed_with_1007():
    recorder = Recorder()
    async with hosting(taking(recorder)) as host, dial(host.url) as client:
        await client.send(b"\xff\xfe", text=True)
        assert await closes(client) == 1007


async def test_a_broken_frame_is_closed_with_1002(until):
    recorder = Recorder()
    async with hosting(taking(recorder)) as host, dial(host.url) as client:
        client.transport.write(b"\xff\xff\xff\xff")
        assert await closes(client) == 1002
        await until(lambda: recorder.losses == 1)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("", 400),
        ("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 12\r\n", 426),
        ("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", 426),
    ],
)
async def test_a_request_that_is_no_handshake_gets_an_http_error(headers, status):
    """A version that is not 13 is told which one there is (RFC 6455 4.2.2)."""
    request = f"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{headers}\r\n"
    async with hosting(taking(Recorder())) as host:
        reader, writer = await asyncio.open_connection(*host.address)
        writer.write(request.encode())
        first, *told = (await reader.read()).decode().lower().split("\r\n")
        assert int(first.split()[1]) == status
        assert {"sec-websocket-version: 13", "upgrade: websocket"} <= {*told} or status == 400
        writer.close()
        await writer.wait_closed()


async def test_an_application_that_does_not_attach_refuses_the_upgrade():
    async def refuses(scope, receive, send):
        scope["extensions"][LINK].refuse(HTTPStatus.FORBIDDEN, "not you")

    async def crashes(scope, receive, send):
        raise RuntimeError("broken")

    for app, status in ((refuses, 403), (crashes, 500)):
        async with hosting(app) as host:
            with pytest.raises(websockets.InvalidStatus) as caught:
                async with dial(host.url):
                    pass
            assert caught.value.response.status_code == status


async def test_an_upgrade_that_was_accepted_and_closed_is_not_refused_any_more():
    """T15: an application that closes and returns; an HTTP response went behind the close frame."""
    outcome = asyncio.get_running_loop().create_future()

    async def app(scope, receive, send):
        link = scope["extensions"][LINK]
        link.attach(Recorder(), None)
        link.close(CloseCode.BAD_REQUEST, "no")
        link.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "late")
        outcome.set_result(link._conn.eof_sent)

    async with hosting(app) as host, dial(host.url) as socket:
        with pytest.raises(websockets.ConnectionClosed) as caught:
            await socket.recv()
        assert caught.value.rcvd.code == CloseCode.BAD_REQUEST
        assert await outcome is False, "nothing is said behind the close frame"


async def test_an_application_that_has_taken_the_link_cannot_speak_plain_asgi_as_well(until):
    """Middleware around it, say."""
    recorder, told = Recorder(), []

    async def app(scope, receive, send):
        scope["extensions"][LINK].attach(recorder, None)
        with pytest.raises(RuntimeError, match="has taken"):
            await send({"type": "websocket.send", "text": "x"})
        told.append(await receive())

    async with hosting(app) as host:
        async with dial(host.url) as socket:
            await socket.send("to the recorder")
            await until(lambda: recorder.texts == ["to the recorder"])
        await until(lambda: told == [{"type": "websocket.disconnect", "code": 1006}])


async def test_a_client_that_answers_pings_stays_and_one_that_does_not_is_cut_off(until):
    """E61."""
    recorder = Recorder()
    async with hosting(taking(recorder), keepalive=60.0) as host:
        async with dial(host.url, ping_interval=None) as client:
            link = host.protocols[0]
            await until(lambda: receiver_of(link))
            for _ in range(3):
                link._ping()  # as the timer does
                await until(lambda: not link._pinged)
            assert recorder.losses == 0
            # Now it is deaf.
            client.protocol.send_frame = lambda frame: None
            link._ping()
            assert recorder.losses == 0
            link._ping()
            assert await closes(client) == 1006
        assert recorder.losses == 1


async def stalled(address):
    """A client that shakes hands and then reads nothing, behind a small receive buffer."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, address)
    request = (
        b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    await loop.sock_sendall(raw, request)
    answer = await loop.sock_recv(raw, 20)
    assert b"101" in answer
    return raw


async def test_a_client_that_takes_nothing_is_aborted_by_the_watchdog(until):
    recorder = Recorder()
    async with hosting(taking(recorder), stall_timeout=0.2, keepalive=60.0) as host:
        raw = await stalled(host.address)
        link = host.protocols[0]
        await until(lambda: receiver_of(link))
        while not link.paused:
            link.write(b"x" * 30_000)
            link.flush()
        assert link.unsent <= HIGH_WATER + 30_010
        await until(lambda: recorder.losses == 1)
        await until(lambda: not host.state.connections)
        raw.close()


async def test_a_client_that_takes_little_but_steadily_is_kept(until):
    recorder = Recorder()
    async with hosting(taking(recorder), stall_timeout=0.4, keepalive=60.0) as host:
        raw = await stalled(host.address)
        link = host.protocols[0]
        await until(lambda: receiver_of(link))
        while not link.paused:
            link.write(b"x" * 30_000)
            link.flush()
        loop = asyncio.get_running_loop()
        started = loop.time()
        # Three times as long as one that takes nothing would be kept.
        while loop.time() - started < 1.2:
            await loop.sock_recv(raw, 65536)
            await asyncio.sleep(0)
            while not link.paused:
                link.write(b"x" * 30_000)
                link.flush()
        assert recorder.losses == 0
        raw.close()


async def test_draining_is_told_and_ends_the_pause(until):
    recorder = Recorder()
    async with hosting(taking(recorder), keepalive=60.0) as host:
        raw = await stalled(host.address)
        link = host.protocols[0]
        await until(lambda: receiver_of(link))
        while not link.paused:
            link.write(b"x" * 30_000)
            link.flush()
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            while not recorder.drains:
                await loop.sock_recv(raw, 65536)
        assert not link.paused
        raw.close()


async def test_a_client_that_asks_and_never_reads_is_not_read_either(until):
    recorder = Recorder()
    async with (
        hosting(taking(recorder), keepalive=60.0, stall_timeout=60.0) as host,
        dial(host.url) as client,
    ):
        link = host.protocols[0]
        await until(lambda: receiver_of(link))

        def answer(text):
            link.write(b"y" * 20_000)
            link.flush()

        recorder.answer = answer
        client.transport.pause_reading()
        sent = 0
        with contextlib.suppress(TimeoutError):
            while link._reading and sent < 5000:
                async with asyncio.timeout(60):
                    await client.send("more" * 20)
                    sent += 1
        await until(lambda: not link._reading)
        assert link.unsent <= link.limits.window_bytes + 20_010
        client.transport.resume_reading()
        for _ in range(sent):
            await client.recv()
        await until(lambda: link._reading)
        assert len(recorder.texts) == sent


async def test_shutdown_asks_the_receiver_to_stop(until):
    recorder = Recorder()
    async with hosting(taking(recorder)) as host, dial(host.url):
        await until(lambda: host.protocols and receiver_of(host.protocols[0]))
        host.protocols[0].shutdown()
        assert recorder.stops == 1

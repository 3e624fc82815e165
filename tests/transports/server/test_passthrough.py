"""WebSockets of the application around ours, under our protocol class."""

import asyncio
import logging
import threading
from contextlib import contextmanager

import pytest
import websockets

from tests.transports.conftest import uvicorn_runs
from transports import LinkProtocol
from transports.server.asgi import Application
from transports.server.link import LINK


@contextmanager
def around(log, host):
    """Our application at ``/live``, and another one everywhere else, which is given scope, receive and send."""
    ours = Application(log)

    async def both(scope, receive, send):
        if scope["type"] == "websocket":
            below = scope["path"].startswith("/live/")
            await (ours if below else host)({**scope, "root_path": "/live" if below else ""}, receive, send)

    with uvicorn_runs(both, ws=LinkProtocol, lifespan="off") as (server, port):
        yield f"ws://127.0.0.1:{port}", server


async def echo(scope, receive, send):
    assert (await receive())["type"] == "websocket.connect"
    offered = scope["subprotocols"]
    headers = [(b"x-mine", b"yes")]
    await send(
        {"type": "websocket.accept", "subprotocol": offered[0] if offered else None, "headers": headers}
    )
    while (message := await receive())["type"] == "websocket.receive":
        if message.get("text") == "enough":
            await send({"type": "websocket.close", "code": 4001, "reason": "as you say"})
            return
        await send({**message, "type": "websocket.send"})


async def test_an_application_that_speaks_plain_asgi_is_served_beside_ours(log, dial, fill):
    with around(log, echo) as (url, _):
        async with dial(f"{url}/echo", ["first", "second"]) as theirs, dial(f"{url}/live/ws") as ours:
            assert theirs.socket.subprotocol == "first"
            assert theirs.socket.response.headers["x-mine"] == "yes"
            for message in ("a text", b"bytes", "x" * 100_000):
                await theirs.raw(message)
                assert await theirs.socket.recv() == message
            await ours.init()
            await ours.subscribe(credits=2)
            fill(1)
            await ours.events(2)
            await theirs.raw("enough")
            assert await theirs.closed() == (4001, "as you say")


async def test_a_client_that_leaves_is_told_to_the_application(log, dial, until):
    ended = []

    async def host(scope, receive, send):
        await echo(scope, receive, send)
        ended.append(scope["path"])

    with around(log, host) as (url, server):
        async with dial(f"{url}/a"):
            pass
        async with dial(f"{url}/b") as wire:
            wire.socket.transport.abort()
        await until(lambda: sorted(ended) == ["/a", "/b"])
        await until(lambda: not server.server_state.connections)
        await until(lambda: not server.server_state.tasks)


async def test_a_client_that_is_gone_before_the_application_begins_is_told_as_well(log, until):
    begin, ended = threading.Event(), []

    async def host(scope, receive, send):
        await asyncio.to_thread(begin.wait, 60)
        ended.append([(await receive())["type"], (await receive())["type"]])

    with around(log, host) as (url, server):
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        await until(lambda: server.server_state.tasks)
        writer.close()
        await writer.wait_closed()
        await until(lambda: not server.server_state.connections)
        begin.set()
        await until(lambda: ended == [["websocket.connect", "websocket.disconnect"]])
        await until(lambda: not server.server_state.connections and not server.server_state.tasks)


async def declines(scope, receive, send):
    await send({"type": "websocket.close"})


async def refuses(scope, receive, send):
    await receive()
    assert "websocket.http.response" in scope["extensions"]
    await send({"type": "websocket.http.response.start", "status": 418, "headers": []})
    await send({"type": "websocket.http.response.body", "body": b"a teapot"})


async def fails(scope, receive, send):
    await receive()
    raise RuntimeError("broken")


async def forgets(scope, receive, send):
    await receive()


@pytest.mark.parametrize(
    ("host", "status"), [(declines, 403), (refuses, 418), (fails, 500), (forgets, 500)], ids=lambda one: one
)
async def test_an_upgrade_that_the_application_does_not_accept_gets_its_status(log, dial, host, status):
    with around(log, host) as (url, _):
        with pytest.raises(websockets.InvalidStatus) as caught:
            async with dial(url):
                pass
        assert caught.value.response.status_code == status


async def test_what_the_application_raises_is_logged_once(log, dial, caplog):
    async def host(scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        raise RuntimeError("broken")

    with caplog.at_level(logging.ERROR), around(log, host) as (url, _):
        async with dial(url) as wire:
            await wire.closed()
    raised = [record for record in caplog.records if record.exc_info]
    assert [str(record.exc_info[1]) for record in raised] == ["broken"]


async def test_a_server_that_stops_closes_what_it_lent(log, dial, until):
    with around(log, echo) as (url, server):
        async with dial(url) as wire:
            await wire.raw("here")
            assert await wire.socket.recv() == "here"
            server.should_exit = True
            assert (await wire.closed())[0] == 1012


async def test_receiving_and_sending_at_the_same_time_take_one_loan(log, dial):
    async def host(scope, receive, send):
        connect, _ = await asyncio.gather(receive(), send({"type": "websocket.accept"}))
        await send({"type": "websocket.send", "text": connect["type"]})
        await receive()

    with around(log, host) as (url, _):
        async with dial(url) as wire:
            assert await wire.socket.recv() == "websocket.connect"


async def test_middleware_that_speaks_first_makes_ours_speak_plain_asgi_too(log, dial, fill):
    """What receives the first message and gives it back leaves no link to attach to."""
    ours = Application(log)

    async def middleware(scope, receive, send):
        first = [await receive()]
        assert LINK not in scope["extensions"]

        async def again():
            return first.pop() if first else await receive()

        await ours(scope, again, send)

    with uvicorn_runs(middleware, ws=LinkProtocol, lifespan="off") as (_, port):
        async with dial(f"ws://127.0.0.1:{port}/ws") as wire:
            await wire.init()
            await wire.subscribe(credits=2)
            fill(1)
            await wire.events(2)

"""The application mounted under a server that knows nothing of us: uvicorn with its own protocol classes."""

import asyncio
import json
import logging
from contextlib import contextmanager

import anyio
import pytest

from tests.harness.constants import without_bounds
from tests.harness.inside import connections_of, link_of, loop_of
from tests.transports.conftest import uvicorn_runs
from transports import LinkProtocol
from transports.limits import Limits
from transports.server.asgi import Application


@contextmanager
def foreign(log, ws="websockets-sansio", **limits):
    application = Application(log, limits=Limits(**without_bounds(limits)))
    with uvicorn_runs(application, ws=ws) as (server, port):
        yield f"ws://127.0.0.1:{port}/ws", application, server


async def test_the_protocol_is_as_correct_there(log, dial, fill):
    with foreign(log) as (url, _, _):
        async with dial(url, subprotocols=["penstock.v1+json"]) as wire:
            assert wire.socket.subprotocol == "penstock.v1+json"
            await wire.init()
            await wire.subscribe(credits=3, content="BODY")
            fill(2, changes=2)
            await wire.events(3)
            await wire.nothing_comes()
            await wire.send(type="request", id="a", n=3)
            await wire.events(3)
            await wire.raw(b'{"type":"ping"}')
            await wire.expect("pong")
            await wire.send(type="bogus")
            assert (await wire.closed())[0] == 4400


async def test_it_is_said_once_that_the_bounds_are_the_hosts(log, dial, caplog):
    with caplog.at_level(logging.WARNING, "penstock.transports"), foreign(log) as (url, _, _):
        for _ in range(3):
            async with dial(url) as wire:
                await wire.init()
    assert len([record for record in caplog.records if "LinkProtocol" in record.getMessage()]) == 1


async def test_refusals_and_closes_reach_the_client(log, dial):
    import websockets

    with foreign(log, message_bytes=1000) as (url, _, _):
        with pytest.raises(websockets.InvalidStatus):
            async with dial(url.replace("/ws", "/other")):
                pass
        with pytest.raises(websockets.InvalidStatus):
            async with dial(url, additional_headers={"Origin": "https://evil.example"}):
                pass
        with pytest.raises(websockets.InvalidStatus):
            async with dial(url, subprotocols=["other"]):
                pass
        async with dial(url) as wire:
            await wire.raw("x" * 1001)
            assert (await wire.closed())[0] == 1009
        async with dial(url) as wire:  # in bytes, not in characters
            await wire.raw("\N{SNOWMAN}" * 334)
            assert (await wire.closed())[0] == 1009


async def test_a_stalled_client_stops_its_own_subscription_only(log, dial, fill, until):
    with foreign(log) as (url, application, _):
        async with dial(url) as good, dial(url) as stuck:
            await good.init(), await stuck.init()
            await good.subscribe(credits=10**6)
            await stuck.subscribe(credits=10**6, content="BODY")
            stuck.socket.transport.pause_reading()
            links = [link_of(connection) for connection in connections_of(application)]
            for _ in range(8):
                fill(10, changes=50, body="z" * 2000)
                await good.events(10 * 51)
            await until(lambda: any(link.paused for link in links))
            assert max(link.unsent for link in links) <= 256 * 1024
            stuck.socket.transport.resume_reading()
            assert len(await stuck.events(8 * 10 * 51)) == 8 * 10 * 51


async def test_a_vanished_client_leaves_nothing_behind(log, dial, until):
    with foreign(log) as (url, application, _):
        async with dial(url) as wire:
            await wire.init()
            await wire.subscribe()
            wire.socket.transport.abort()
        await until(lambda: not log.statistics().publishers)
        await until(lambda: application.connections == 0)


async def test_an_application_that_stops_tells_its_subscriptions(log, dial, until):
    with foreign(log) as (url, application, _):
        async with dial(url) as wire:
            await wire.init()
            await wire.subscribe()
            (connection,) = connections_of(application)
            loop_of(connection).call_soon_threadsafe(application.stop)
            assert (await wire.expect("error"))["payload"]["code"] == "GOING_AWAY"
            assert (await wire.closed())[0] == 1012
        await until(lambda: application.connections == 0)


class Host:
    """A server of others: what it hands to the application, and what it was sent."""

    def __init__(self, *messages, path="/ws"):
        self.coming = asyncio.Queue()  # noqa: TID251 - of a test
        for message in messages:
            self.coming.put_nowait(message)
        self.sent = []
        self.scope = {
            "type": "websocket",
            "path": path,
            "headers": [],
            "subprotocols": [],
            "query_string": b"",
        }

    async def send(self, message):
        self.sent.append(message)

    async def run(self, application):
        await application(self.scope, self.coming.get, self.send)


def says(**message):
    return {"type": "websocket.receive", "text": json.dumps(message)}


CONNECT = {"type": "websocket.connect"}
INIT = says(type="connection_init", payload={})
SUBSCRIBE = says(type="subscribe", id="a", payload={"criteria": [{}], "credits": 9})
POINTS = {"before it accepts": (), "accepted": (CONNECT,), "subscribed": (CONNECT, INIT, SUBSCRIBE)}


async def cancelled_twice(running, there):
    task = asyncio.ensure_future(running)
    await there()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])
    assert task.cancelled()


async def left_by_a_scope(running, there):
    async with anyio.create_task_group() as group:

        async def run():
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                await running

        scopes = []
        group.start_soon(run)
        await there()
        scopes[0].cancel()


@pytest.mark.parametrize("leave", [cancelled_twice, left_by_a_scope])
@pytest.mark.parametrize("messages", POINTS.values(), ids=POINTS)
async def test_a_connection_that_its_host_cancels_leaves_nothing_behind(log, until, messages, leave):
    application = Application(log)
    host = Host(*messages)

    async def there():
        await until(lambda: application.connections == 1 and host.coming.empty())
        await until(lambda: log.statistics().subscription_count == (SUBSCRIBE in messages))

    await leave(host.run(application), there)
    assert application.connections == 0
    await until(lambda: log.statistics().subscription_count == 0)


async def test_a_connection_of_our_own_protocol_class_ends_with_its_application_too(log, dial, until):
    application, tasks = Application(log), []

    async def around(scope, receive, send):
        tasks.append((asyncio.current_task(), asyncio.get_running_loop()))
        await application(scope, receive, send)

    with uvicorn_runs(around, ws=LinkProtocol, lifespan="off") as (_, port):
        async with dial(f"ws://127.0.0.1:{port}/ws") as wire:
            await wire.init()
            await wire.subscribe()
            ((task, loop),) = tasks
            loop.call_soon_threadsafe(task.cancel)
            await wire.closed()
        await until(lambda: application.connections == 0)
    await until(lambda: log.statistics().subscription_count == 0)

"""How requests, subscriptions and connections of the wire protocol end: refused, cut off, or with the server."""

import asyncio
import contextlib
import os

import pytest
import websockets

from publishers import Position
from publishers.mutations.mutation import upsert
from tests.harness.inside import connections_of, link_of
from tests.transports.principals import knowing


async def test_one_stalled_client_is_cut_off_and_its_neighbours_go_on(serving, dial, fill, log, until):
    """E59, E61: in bounded time, although its write buffer is full."""
    server = serving(stall_timeout=1.0, keepalive=60.0)
    open_files = len(os.listdir("/proc/self/fd"))
    async with dial(server.url) as good, dial(server.url) as stuck:
        await good.init(), await stuck.init()
        await good.subscribe(credits=10**6)
        await stuck.subscribe(credits=10**6, content="BODY")
        stuck.socket.transport.pause_reading()
        # On a thread: one that writes where the good client reads would make it stand still as well.
        filling = asyncio.create_task(asyncio.to_thread(fill, 40, changes=50, body="z" * 2000))
        await good.events(40 * 51)
        await filling
        await until(lambda: server.application.connections == 1)
        # Two sockets here and two there, and nothing kept open for the one that stood still.
        assert len(os.listdir("/proc/self/fd")) <= open_files + 4 + 2
        await until(lambda: len(log.statistics().publishers) == 1)
        fill(1)
        await good.events(2)
        stuck.socket.transport.resume_reading()
        code, _ = await stuck.closed()
        assert code == 1006


async def test_unsent_bytes_of_a_stalled_client_are_bounded(serving, dial, fill, log, until):
    """E59: what is held for it on the server does not grow."""
    server = serving(stall_timeout=60.0, keepalive=60.0)
    async with dial(server.url) as stuck:
        await stuck.init()
        for name in "abcdefgh":
            await stuck.subscribe(name, credits=10**6, content="BODY")
        stuck.socket.transport.pause_reading()
        (connection,) = connections_of(server.application)
        highest = 0
        for _ in range(20):
            fill(5, changes=50, body="z" * 2000)
            await until(lambda: link_of(connection).paused)
            highest = max(highest, link_of(connection).unsent)
        assert highest <= 256 * 1024
        stuck.socket.transport.resume_reading()


@pytest.mark.parametrize(
    ("payload", "code", "path"),
    [
        ({"criteria": [{"colour": ["red"]}]}, "INVALID_CRITERIA", "criteria[0].colour"),
        ({"criteria": "all"}, "INVALID_CRITERIA", "criteria"),
        ({"criteria": [{"areas": ["DATUM"]}]}, "INVALID_CRITERIA", "criteria[0].areas"),
        ({"content": "SOME"}, "INVALID_REQUEST", "content"),
        ({"onLag": "conflate"}, "INVALID_REQUEST", "onLag"),
        ({"start": {"time": "yesterday"}}, "INVALID_REQUEST", "start.time"),
        ({"credits": -1}, "INVALID_DEMAND", None),
        ({"credits": 2**70}, "INVALID_DEMAND", None),
        ({"credits": "many"}, "INVALID_REQUEST", "credits"),
        ({"log": "other"}, "LOG_NOT_FOUND", "log"),
        ({"since": "nonsense"}, "CURSOR_INVALID", None),
        ({"since": "0" * 32 + ":1:1:0"}, "CURSOR_FOREIGN", None),
        ({"since": "0" * 500_000}, "CURSOR_INVALID", None),
    ],
)
async def test_a_wrong_wish_is_told_and_breaks_nothing_else(serving, dial, fill, payload, code, path):
    async with dial(serving().url) as wire:
        await wire.init()
        await wire.subscribe("good", credits=10)
        problem = await wire.fail("bad", **payload)
        assert (problem["code"], problem["retryable"], problem.get("path")) == (code, False, path)
        assert len(problem["message"]) < 700
        fill(1)
        await wire.events(2, "good")
        await wire.subscribe("bad", credits=1)


async def test_cursors_beyond_the_end_are_refused_with_the_head_and_of_other_histories_without_an_end(
    serving, dial, fill, log
):
    """F144."""
    fill(2)
    async with dial(serving().url) as wire:
        await wire.init()
        head = str(log.token(log.head))
        problem = await wire.fail(since=str(log.token(Position(99))))
        assert (problem["code"], problem["retryable"], problem["head"]) == ("CURSOR_AHEAD", True, head)
        for since in (f"{log.log_id.hex}:1:2:0", f"{log.log_id.hex}:9.AAAAAAAAAAE:2:0"):
            problem = await wire.fail(since=since)
            assert (problem["code"], problem["retryable"]) == ("CURSOR_FORKED", False)
            assert (problem["epoch"], problem["end"]) == (int(since[33]), None)
        problem = await wire.fail(start={"version": 99})
        assert problem["code"] == "CURSOR_AHEAD"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", 4400),
        ("[1,2]", 4400),
        ('{"type":"bogus"}', 4400),
        ('{"type":"request","id":"a"}', 4400),
        ('{"type":"subscribe","id":"a","payload":{}}', 4409),
        ('{"type":"connection_init"}', 4429),
        (b"\xff\x00", 4400),
        ("x" * (2**20 + 1), 1009),
    ],
)
async def test_a_broken_message_closes_that_connection_and_no_other(serving, dial, fill, text, code):
    server = serving()
    async with dial(server.url) as good, dial(server.url) as bad:
        await good.init(), await bad.init()
        await good.subscribe(credits=10)
        await bad.subscribe(credits=10)
        await bad.raw(text)
        received, reason = await bad.closed()
        assert received == code
        assert reason or code == 1009
        fill(1)
        await good.events(2)


async def test_subscribe_before_init_4401_and_no_init_4408(serving, dial):
    async with dial(serving().url) as wire:
        await wire.send(type="subscribe", id="a", payload={})
        assert (await wire.closed())[0] == 4401
    async with dial(serving(init_timeout=0.05).url) as wire:
        assert (await wire.closed())[0] == 4408


async def test_wrong_demand_ends_that_subscription_only(serving, dial, fill):
    async with dial(serving().url) as wire:
        await wire.init()
        await wire.subscribe("good", credits=10)
        for name, n in (("a", 0), ("b", -1), ("c", 2**70), ("d", "text"), ("e", None)):
            await wire.subscribe(name, credits=1)
            await wire.send(type="request", id=name, n=n)
            error = await wire.expect("error")
            assert (error["id"], error["payload"]["code"]) == (name, "INVALID_DEMAND")
        fill(1)
        await wire.events(2, "good")


async def test_a_flood_is_closed_with_4490(serving, dial):
    async with dial(serving(messages_per_second=20).url) as wire:
        await wire.init()
        with contextlib.suppress(websockets.ConnectionClosed):
            for _ in range(200):
                await wire.send(type="pong")
        assert (await wire.closed())[0] == 4490


async def test_too_many_subscriptions_and_too_many_connections(serving, dial):
    server = serving(subscriptions=1, connections=1)
    async with dial(server.url) as wire:
        await wire.init()
        await wire.subscribe("a")
        assert (await wire.fail("b"))["code"] == "TOO_MANY_SUBSCRIPTIONS"
        async with dial(server.url, subprotocols=["penstock.v1+json"]) as second:
            assert second.socket.subprotocol == "penstock.v1+json"
            assert (await second.closed())[0] == 1013


async def test_tokens_are_judged_from_header_or_init(serving, dial):
    server = serving(authenticate=knowing("open sesame"))
    async with dial(server.url) as wire:
        await wire.init(token="open sesame")
    async with dial(server.url, additional_headers={"Authorization": "Bearer open sesame"}) as wire:
        await wire.init()
    for payload in ({}, {"token": "wrong"}, {"token": 7}):
        async with dial(server.url) as wire:
            await wire.send(type="connection_init", payload=payload)
            assert (await wire.closed())[0] == 4403


async def test_an_error_inside_closes_with_4500_and_an_id_but_no_internals(
    serving, dial, monkeypatch, caplog
):
    def broken(token):
        raise RuntimeError("a secret")

    server = serving(authenticate=broken)
    async with dial(server.url) as wire:
        await wire.send(type="connection_init", payload={})
        code, reason = await wire.closed()
        assert code == 4500
        assert "secret" not in reason
        assert reason.split()[-1] in caplog.text


async def test_a_stopping_server_tells_every_subscription_and_closes_with_1012(
    serving, dial, fill, log, until
):
    server = serving()
    async with dial(server.url) as wire, dial(server.url) as idle:
        await wire.init()
        await wire.subscribe("a", credits=10)
        await wire.subscribe("b")
        fill(1)
        await wire.events(2)
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        for name in "ab":
            error = await wire.expect("error")
            assert (error["id"], error["payload"]["code"]) == (name, "GOING_AWAY")
            assert error["payload"]["retryable"] is True
        assert (await wire.closed())[0] == 1012
        assert (await idle.closed())[0] == 1012
        await stopping
    assert not log.statistics().publishers
    with pytest.raises(ConnectionRefusedError):
        async with dial(server.url):
            pass


async def test_goaway_lets_subscriptions_go_on(serving, dial, fill):
    server = serving()
    async with dial(server.url) as wire:
        await wire.init()
        await wire.subscribe("a", credits=10)
        stopping = asyncio.create_task(asyncio.to_thread(server.stop, 60.0))
        assert (await wire.expect("goaway"))["deadlineMs"] == 60_000
        assert (await wire.fail("b"))["code"] == "GOING_AWAY"
        fill(1)
        await wire.events(2)
    await stopping  # which waits no longer than for the last connection


async def test_goaway_lets_subscriptions_go_on_no_longer_than_until_the_deadline(serving, dial):
    server = serving()
    async with dial(server.url) as wire:
        await wire.init()
        await wire.subscribe("a", credits=10)
        stopping = asyncio.create_task(asyncio.to_thread(server.stop, 0.05))
        assert (await wire.expect("goaway"))["deadlineMs"] == 50
        assert (await wire.expect("error"))["payload"]["code"] == "GOING_AWAY"
        assert (await wire.closed())[0] == 1012
        await stopping


async def test_a_stopping_server_does_not_wait_for_a_stalled_client(serving, dial, fill, log, until):
    server = serving(stall_timeout=60.0, keepalive=60.0, close_timeout=0.3)
    async with dial(server.url) as stuck:
        await stuck.init()
        await stuck.subscribe(credits=10**6, content="BODY")
        stuck.socket.transport.pause_reading()
        (connection,) = connections_of(server.application)
        while not link_of(connection).paused:
            fill(5, changes=50, body="z" * 2000)
        async with asyncio.timeout(60):
            await asyncio.to_thread(server.stop)
        assert not log.statistics().publishers
        stuck.socket.transport.resume_reading()


async def test_a_closing_log_completes_who_has_everything(serving, dial, fill, log):
    async with dial(serving().url) as wire:
        await wire.init()
        await wire.subscribe("done", credits=10)
        await wire.subscribe("behind", credits=1, heartbeatMs=0)
        fill(2)
        got = {"done": 0, "behind": 0}
        while got != {"done": 4, "behind": 1}:
            message = await wire.expect("next")
            got[message["id"]] += len(message["events"])
        messages = {}
        closing = asyncio.create_task(asyncio.to_thread(log.close))
        while len(messages) < 2:
            message = await wire.receive()
            if message["type"] in ("complete", "error"):
                messages[message["id"]] = message
        await closing
        assert messages["done"]["type"] == "complete"
        assert messages["done"]["cursor"].endswith(":3:0")
        assert messages["behind"]["payload"]["code"] == "LOG_CLOSED"
        assert messages["behind"]["payload"]["cursor"].endswith(":1:1")
        assert messages["behind"]["payload"]["retryable"] is True


async def test_on_lag_fail_ends_with_lagged_and_the_cursor(tmp_path, dial):
    from publishers.log.changelog import ChangeLog
    from transports import serve

    with ChangeLog.open(tmp_path / "small", ring_events=8) as log, serve(log) as server:
        async with dial(server.url) as wire:
            await wire.init()
            await wire.subscribe("a", credits=1, onLag="fail", heartbeatMs=0)
            await wire.subscribe("b", credits=1, onLag="resync", heartbeatMs=0)
            log.commit([upsert("order", "first", {})])
            # Each has what it asked for; else it would lag already at the first event.
            assert {(await wire.expect("next"))["id"] for _ in "ab"} == {"a", "b"}
            for number in range(30):
                log.commit([upsert("order", str(number), {})])
            problem = None
            state = None
            while problem is None or state is None:
                message = await wire.receive()
                if message["type"] == "error":
                    problem = message["payload"]
                    assert message["id"] == "a"
                elif message["type"] == "checkpoint":
                    state = next((item["state"] for item in message["items"] if item["id"] == "b"), None)
            assert (problem["code"], problem["retryable"]) == ("LAGGED", True)
            assert problem["cursor"].endswith(":1:1")
            assert problem["missed"] > 0
            assert state == "RESYNC"

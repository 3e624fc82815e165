"""One payer that asks for the processor on many connections, beside another that has one thing to ask."""

import asyncio
import contextlib
from collections import Counter

import pytest

from tests.attacks.raw_http import Client, head
from tests.transports.principals import knowing
from tests.transports.resp.conftest import raw, resp  # noqa: F401 - fixtures of the neighbours
from transports import Grant, LogAction
from transports.tcp.shares import SHARES, Shares

WRITERS = Grant({LogAction.READ, LogAction.WRITE})
SHARE = 0.01
BURST = SHARE * 1.0
TURN = 0.5
"""Seconds of a turn on a busy machine at most; what a payer takes beyond its share is one turn."""


@pytest.fixture
def charged(monkeypatch):
    """What each payer is charged, while loops are late."""
    found, spend = Counter(), SHARES.spend

    def noted(payer, seconds):
        found[payer] += seconds
        spend(payer, seconds)

    monkeypatch.setattr(SHARES, "spend", noted, raising=False)
    monkeypatch.setattr(Shares, "late", property(lambda _self: 1.0))
    return found


def change(number):
    return {"entity_type": "order", "key": str(number), "body": {"n": number}}


async def test_a_principal_beyond_its_share_is_not_read_while_loops_are_late(
    serving, dial, log, until, charged, monkeypatch
):
    """F147: ten connections that append as fast as they are let take what one payer may; another is served meanwhile."""
    server = serving(authenticate=knowing("ann", "eve"), authorise=WRITERS, late_share=SHARE)
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        ann = await stack.enter_async_context(dial(server.url))
        await ann.init(token="ann")
        SHARES.spend("ben", 1e9)  # somebody else has asked for something all the time
        eves = [await stack.enter_async_context(dial(server.url)) for _ in range(10)]
        for eve in eves:
            await eve.init(token="eve")
        began, held = loop.time(), SHARES.held
        for eve in eves:
            for number in range(100):
                await eve.send(type="append", id=str(number), payload={"changes": [change(number)]})
        await until(lambda: SHARES.held > held + 5)
        for number in range(20):
            await ann.send(type="append", id=str(number), payload={"changes": [change(number)]})
            assert (await ann.expect("appended"))["id"] == str(number)
        taken, lasted = charged["eve"], loop.time() - began
        assert BURST < taken <= BURST + SHARE * lasted + TURN
        assert log.head.version < 1_000
        monkeypatch.undo()  # loops are in time again
        for eve in eves:
            for number in range(100):
                assert (await eve.expect("appended"))["id"] == str(number)


async def test_so_is_an_address_without_a_name(serving, charged, until, monkeypatch):
    """F147: over HTTP, from the first byte on."""
    server = serving(late_share=SHARE)
    SHARES.spend(("127.0.0.1",), 9.0)
    SHARES.spend("ann", 9.0)
    held = SHARES.held
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    client = Client(reader, writer)
    assert await client.send(head("/health", method="GET"))
    await until(lambda: SHARES.held > held)
    assert not client.answered
    monkeypatch.undo()
    status, *_ = await client.answer()
    assert status == 200
    writer.close()
    await writer.wait_closed()


async def test_so_is_it_at_the_redis_port(resp, charged, until, monkeypatch):  # noqa: F811 - the fixture
    """F147: nothing of what it sends is parsed."""
    port = resp(late_share=SHARE).port
    SHARES.spend(("127.0.0.1",), 9.0)
    SHARES.spend("ann", 9.0)
    held = SHARES.held
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"PING\r\n")
    await until(lambda: SHARES.held > held)
    assert not reader._buffer
    monkeypatch.undo()
    assert await reader.readline() == b"+PONG\r\n"
    writer.close()
    await writer.wait_closed()


async def test_its_connections_that_read_nothing_are_aborted_in_time_all_the_same(
    resp,  # noqa: F811 - the fixture
    raw,  # noqa: F811 - likewise
    log,
    fill,
    charged,
    until,
):
    """F147: what a payer holds is let go by the clock, also while nothing is read from it: bytes that are unsent have their bound."""
    fill(20, body="x" * 50_000)
    server = resp(late_share=SHARE, stall_timeout=0.5)
    for _ in range(3):
        raw(server).send("CDCPOLL", "0", "100", times=4)
    await until(lambda: len(server.figures()["ended"]) or server.figures()["unsentBytes"] > 2_000_000)
    SHARES.spend(("127.0.0.1",), 1e9)  # it owes for twenty seconds
    SHARES.spend("ann", 9.0)
    held = SHARES.held
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"PING\r\n")
    await until(lambda: server.figures()["ended"].get("STALLED") == 3)
    assert server.figures()["unsentBytes"] == 0
    await until(lambda: SHARES.held > held + 5)
    assert not reader._buffer  # it is held all the time
    writer.close()
    await writer.wait_closed()


async def test_time_does_not_run_out_for_one_that_the_server_does_not_read(
    resp,  # noqa: F811 - the fixture
    serving,
    dial,
    charged,
    until,
    monkeypatch,
):
    """F147: of many honest clients behind one address those that wait for their turn are not cut off, only to come again."""
    limits = {"late_share": SHARE, "request_timeout": 0.3, "init_timeout": 0.3}
    server = serving(**limits)
    redis = resp(authenticate=knowing("ann"), authorise=WRITERS, **limits)
    loop = asyncio.get_running_loop()
    async with dial(server.url) as greeted:
        SHARES.spend(("127.0.0.1",), 1e9)
        SHARES.spend("ann", 9.0)
        began, held = loop.time(), SHARES.held
        await greeted.send(type="connection_init", payload={})
        streams = [await asyncio.open_connection("127.0.0.1", port) for port in (server.port, redis.port)]
        asked = Client(*streams[0])
        assert await asked.send(head("/health", method="GET"))
        streams[1][1].write(b"AUTH ann\r\n")
        await until(lambda: SHARES.held > held + 20 and loop.time() > began + 1.0)
        monkeypatch.undo()  # loops are in time again
        await greeted.expect("connection_ack")
        status, *_ = await asked.answer()
        assert status == 200
        assert await streams[1][0].readline() == b"+OK\r\n"
        for _, writer in streams:
            writer.close()
            await writer.wait_closed()


async def test_one_that_was_held_before_its_upgrade_is_read_afterwards(serving, dial, charged, until):
    """F147: also if its payer is within its share by then, so that nothing else reads on."""
    server = serving(late_share=SHARE)
    SHARES.spend(("127.0.0.1",), 1e9)
    SHARES.spend("ann", 9.0)
    held = SHARES.held

    async def greet():
        async with dial(server.url) as wire:
            await wire.init()

    greeting = asyncio.create_task(greet())
    await until(lambda: SHARES.held > held)
    vars(SHARES).update(vars(Shares()))
    async with asyncio.timeout(60):
        await greeting

"""Appends that mean harm, beside a writer and a reader that mean well: bounded memory, and nobody else is disturbed."""

import asyncio
import contextlib
import json
from collections import Counter
from weakref import WeakSet

import pytest
import websockets

from flow.clock import SYSTEM_CLOCK
from publishers import ChangeLog, upsert
from publishers.wal.read.reader import Reader
from tests.harness.inside import appending_of
from tests.publishers.support import Held, wait_until
from tests.transports.principals import knowing
from tests.transports.server.test_appending import WRITERS, change
from tests.transports.server.test_spool import send_parts
from transports import connect as remote_log

PAD = "x" * 1000


@pytest.fixture
def server(serving):
    """Takes appends from everybody, and not many of them."""
    return serving(
        authorise=WRITERS,
        message_bytes=20_000,
        appends=8,
        append_bytes=40_000,
        appending_bytes=200_000,
        transaction_bytes=100_000,
        spooled_bytes=16 * 2**20,
        producers=4,
    )


async def mean_well(server, log, dial):
    """A writer and a reader who get what they want."""
    place = log.head.version
    async with remote_log(server.url) as remote, dial(server.url) as wire:
        await wire.init()
        await wire.subscribe(credits=10)
        commit = await remote.commit_async([upsert("order", "good", {"n": 1})])
        assert commit.version >= place
        events = await wire.events(2)
        assert [one.get("key") for one in events] == [None, "good"]


def appending(server):
    return appending_of(server.application)


def still(server):
    """Nothing is taken any more."""
    told = appending(server)
    return not (
        told.unanswered.taken
        or told.spooled.taken
        or told.memory.taken
        or told.transactions
        or told.figures.unanswered
    )


async def send_until_closed(wire, messages):
    """Sends until the server has enough; answers the close code, None if it has not."""
    try:
        for message in messages:
            await wire.socket.send(message)
        async with asyncio.timeout(60):
            while True:
                await wire.socket.recv()
    except websockets.ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else None


def said(kind, name, **payload):
    return json.dumps({"type": kind, "id": name, "payload": payload})


async def test_a_flood_of_unanswered_appends_is_ended(server, dial, log, monkeypatch):
    """F147: the log stands still, and a client sends on; it is closed, and what it took is given back."""
    held = Held(log, monkeypatch)
    with contextlib.ExitStack() as stack:
        stack.callback(held.go.set)
        async with dial(server.url) as wire:
            await wire.init()
            flood = (said("append", str(n), changes=[change(n, pad=PAD)]) for n in range(1000))
            assert await send_until_closed(wire, flood) == 4490
        assert appending(server).unanswered.taken <= 40_000
    await asyncio.to_thread(wait_until, lambda: still(server))
    await mean_well(server, log, dial)


async def test_parts_that_are_never_committed_take_no_more_than_their_bounds(server, dial, log):
    """F147: of a connection, of a transaction and of the server; they are gone with their connections."""
    refused = set()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(4):
            wire = await stack.enter_async_context(dial(server.url))
            await wire.init()
            for name in "abcd":
                await send_parts(wire, name, *[range(60)] * 8)
            for name in "efghij":
                await wire.send(type="begin", id=name)
            await wire.send(type="ping")
            while (message := await wire.receive())["type"] != "pong":
                assert message["type"] in ("spooled", "error")
                refused |= {message["payload"]["option"]} if message["type"] == "error" else set()
        told = appending(server)
        assert 0 < told.spooled.taken <= 8 * 2**20
        assert told.memory.taken <= 200_000
        assert told.transactions <= 16
        await mean_well(server, log, dial)
    assert "transactions" in refused
    assert refused <= {
        "transactions",
        "append_bytes",
        "appending_bytes",
        "spooled_bytes",
        "principal_spooled_bytes",
    }
    await asyncio.to_thread(wait_until, lambda: still(server))


async def test_a_transaction_that_grows_without_end_is_refused(server, dial, log):
    """F147: what came of it is dropped at once, and what still comes is not kept."""
    async with dial(server.url) as wire:
        await wire.init()
        await wire.send(type="begin", id="t")
        for number in range(1, 20):
            await wire.send(type="part", id="t", payload={"changes": [change(number, pad=PAD * 9)]})
            if (message := await wire.receive())["type"] == "error":
                break
        assert message["payload"]["option"] == "transaction_bytes"
        await asyncio.to_thread(wait_until, lambda: still(server))
        await wire.send(type="part", id="t", payload={"changes": [change(1, pad=PAD)]})
        await wire.send(type="commit", id="t")
        assert (await wire.expect("error"))["payload"]["code"] == "NO_TRANSACTION"
    assert log.head.version == 1


HALVES = {
    "half a message": '{"type":"append","id":"a","payload":{"changes":[{"entity_type":',
    "a part of nothing": '{"type":"part","id":"a"}',
    "an append without an id": '{"type":"append","payload":{"changes":[]}}',
    "nested too deeply": '{"type":"append","id":"a","payload":{"meta":' + "[" * 9000,
    "an id of 65 characters": said("begin", "x" * 65),
    "a number for an id": '{"type":"commit","id":7}',
}


@pytest.mark.parametrize("text", HALVES.values(), ids=HALVES)
async def test_half_messages_cost_their_connection_only(server, dial, log, text):
    """F147: 4400, and nothing was written."""
    async with dial(server.url) as wire:
        await wire.init()
        assert await send_until_closed(wire, [said("begin", "t"), text]) == 4400
    await asyncio.to_thread(wait_until, lambda: still(server))
    assert log.head.version == 1
    await mean_well(server, log, dial)


WRONG = {
    "a huge key": ({"changes": [change("k" * 15_000)]}, "TRANSACTION_TOO_LARGE"),
    "a sequence below none": ({"producer": "etl", "sequence": -1}, "INVALID_REQUEST"),
    "a sequence beyond all": ({"producer": "etl", "sequence": 2**63}, "INVALID_REQUEST"),
    "a sequence of digits": ({"producer": "etl", "sequence": "7"}, "INVALID_REQUEST"),
    "a sequence that is no whole number": ({"producer": "etl", "sequence": 1.5}, "INVALID_REQUEST"),
    "a producer of 10,000 characters": ({"producer": "p" * 10_000, "sequence": 1}, "INVALID_REQUEST"),
    "an expectation of keys without end": (
        {"expect": {"cursor": "x", "keys": [{"entity_type": "order", "key": str(n)} for n in range(300)]}},
        "CURSOR_INVALID",
    ),
    "changes that are none": ({"changes": [[[[]]]] * 1000}, "INVALID_CHANGE"),
}


@pytest.mark.parametrize(("payload", "code"), WRONG.values(), ids=WRONG)
async def test_what_is_wrong_is_refused_with_its_code(server, dial, log, payload, code):
    """F147: nothing is written, and the connection goes on."""
    async with dial(server.url) as wire:
        await wire.init()
        await wire.send(type="append", id="a", payload={"changes": [change(1)], **payload})
        assert (await wire.expect("error"))["payload"]["code"] == code
        assert log.head.version == 1
        await wire.send(type="append", id="a", payload={"changes": [change(1)], "first": True})
        assert (await wire.expect("appended"))["version"] == 1
    await asyncio.to_thread(wait_until, lambda: still(server))


async def test_a_storm_of_expectations_scans_what_its_principal_may_and_keeps_nothing(
    serving, dial, log, monkeypatch
):
    """F145: 20 connections that each expect a key of the whole history, over and over, beside others who expect something."""
    place = str(log.token(log.head))
    for number in range(30):
        log.commit([upsert("order", f"{number}-{n}", {"pad": PAD}) for n in range(20)])
    alive, made = WeakSet(), Reader.__init__
    monkeypatch.setattr(Reader, "__init__", lambda self, *given: (made(self, *given), alive.add(self))[0])
    server = serving(
        authenticate=knowing("ann", "eve"),
        authorise=WRITERS,
        expect_bytes_per_second=1_000_000,
        append_threads=4,
    )
    expect = {"cursor": place, "keys": [{"entity_type": "order", "key": "none"}]}
    began = SYSTEM_CLOCK.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        codes = Counter()

        async def storm():
            wire = await stack.enter_async_context(dial(server.url))
            await wire.init(token="eve")
            for number in range(20):
                await wire.send(
                    type="append",
                    id=str(number),
                    payload={"changes": [change(1)], "expect": expect, "first": not number},
                )
            for _ in range(20):
                message = await wire.receive()
                codes[message.get("payload", {}).get("code", "appended")] += 1

        await asyncio.gather(*(storm() for _ in range(20)))
        async with dial(server.url) as wire:
            await wire.init(token="ann")
            await wire.send(type="append", id="a", payload={"changes": [change(1)], "expect": expect})
            assert (await wire.expect("appended"))["version"]
    lasted = SYSTEM_CLOCK.monotonic() - began
    assert set(codes) <= {"appended", "TOO_COSTLY", "PREDECESSOR_FAILED"}
    scanned = appending(server).scanned
    one = 31 * 25_000  # what ann has scanned
    assert scanned.spent <= 2_000_000 + lasted * 1_000_000 + 30_000 + one
    assert scanned.refused >= 10
    await asyncio.to_thread(wait_until, lambda: still(server) and not alive)


async def test_names_of_producers_do_not_push_out_those_of_others(server, dial, log):
    """F147: a client has so many, and a commit of this process is remembered."""
    log.commit([upsert("order", "1", {})], producer=("own", 7))
    async with dial(server.url) as wire:
        await wire.init()
        codes = []
        for number in range(20):
            await wire.send(
                type="append",
                id="a",
                payload={"changes": [change(1)], "producer": f"p{number}", "sequence": 1, "first": True},
            )
            message = await wire.receive()
            codes.append(message.get("payload", {}).get("code", "appended"))
        assert codes == ["appended"] * 4 + ["TOO_MANY_PRODUCERS"] * 16
        await wire.send(type="append", id="a", payload={"changes": [change(1)], "first": True})
        assert (await wire.expect("appended"))["version"] == 6
    assert log.produced("own").sequence == 7


async def test_connections_without_end_neither_are_refused_nor_push_out_names(serving, dial, tmp_path):
    """F147: a principal that connects again and again costs a bounded table, and each may repeat what was not answered."""
    with ChangeLog.open(tmp_path / "few", sync="os", producers=50) as log:
        server = serving(served=log, authenticate=knowing("ann", "eve"), authorise=WRITERS, producers=4)

        async def append(wire, name):
            payload = {"changes": [change(1)], "producer": name, "sequence": 1, "first": True}
            await wire.send(type="append", id="a", payload=payload)
            return (await wire.expect("appended"))["duplicate"]

        drawn = [f"connection-{number:032x}" for number in range(200)]
        async with dial(server.url) as ann, dial(server.url) as eve:
            await ann.init(token="ann")
            await eve.init(token="eve")
            assert not await append(ann, "etl")
            assert not await append(ann, drawn[0])
            assert not await append(eve, "etl")
            for name in drawn:
                assert not await append(eve, name)
                assert await append(eve, name)
            assert [await append(ann, name) for name in ("etl", drawn[0])] == [True, True]
            assert await append(eve, "etl")
            async with remote_log(server.url, token="eve") as late:
                assert (await late.commit_async([upsert("order", "good", {})])).version
        assert log.statistics().producers == 2 + 50

"""The protocol over real sockets: a stock client against a served log."""

import asyncio
import json
import random

import pytest
import websockets

from publishers.mutations.mutation import upsert


async def test_the_handshake_and_the_first_events(serving, dial, fill, log):
    async with dial(serving().url, subprotocols=["penstock.v1+json"]) as wire:
        assert wire.socket.subprotocol == "penstock.v1+json"
        ack = await wire.init(client="test/1")
        assert ack["payload"]["limits"]["subscriptions"] == 100
        told = await wire.subscribe(credits=2, content="BODY")
        head = str(log.token(log.head))
        assert told == {
            "type": "subscribed",
            "id": "a",
            "log": "shop",
            "epoch": log.epoch,
            "cursor": head,
            "oldest": str(log.token(log.oldest)),
            "head": head,
        }
        fill(1, changes=2)
        leading, first = await wire.events(2)
        assert (leading["operation"], first["body"]) == ("TRANSACTION", {"value": "x"})
        await wire.nothing_comes()
        await wire.send(type="request", id="a", n=1)
        message = await wire.expect("next")
        assert message["boundary"] is True
        assert message["cursor"] == message["events"][0]["cursor"] == str(log.token(log.head))


async def test_a_client_that_offers_no_sub_protocol_gets_ours(serving, dial):
    async with dial(serving().url) as wire:
        assert wire.socket.subprotocol is None
        await wire.init()


@pytest.mark.parametrize("offered", [["graphql-ws"], ["a", "b"]])
async def test_a_client_that_offers_only_others_is_refused(serving, dial, offered):
    """E55."""
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with dial(serving().url, subprotocols=offered):
            pass
    assert caught.value.response.status_code == 400
    assert b"penstock.v1+json" in caught.value.response.body


async def test_no_event_before_subscribed_and_none_missed_after_it(serving, dial, log):
    """A writer that never pauses: what comes begins exactly at the cursor that was told."""
    server = serving()
    stop = asyncio.Event()

    async def write():
        number = 0
        while not stop.is_set():
            number += 1
            await log.commit_async([upsert("order", str(number), {"n": number})])

    writer = asyncio.create_task(write())
    try:
        async with dial(server.url) as wire:
            await wire.init()
            for turn in range(10):
                told = await wire.subscribe(f"s{turn}", credits=10)
                first = (await wire.expect("next"))["events"][0]
                version = int(told["cursor"].split(":")[2])
                assert (first["version"], first["index"]) == (version, 0)
                await wire.send(type="complete", id=f"s{turn}")
                await drain_until_pong(wire)
    finally:
        stop.set()
        await writer


async def drain_until_pong(wire):
    await wire.send(type="ping")
    while (await wire.receive())["type"] != "pong":
        pass


async def test_zero_credits_bring_nothing_but_life(serving, dial, fill, until):
    """E61: the server pings, and a client that answers stays."""
    async with dial(serving(keepalive=1.0).url, ping_interval=None) as wire:
        await wire.init()
        await wire.subscribe(credits=0, heartbeatMs=0)
        pings, send = [], wire.socket.protocol.send_frame
        wire.socket.protocol.send_frame = lambda frame: pings.append(frame) or send(frame)
        fill(5)
        # Longer than the ping interval: the client answers, and stays.
        reader = asyncio.create_task(wire.receive())
        await until(lambda: len(pings) >= 2)
        assert not reader.done()
        await wire.send(type="request", id="a", n=1)
        assert (await reader)["events"][0]["version"] == 1


async def test_credits_add_up_and_saturate(serving, dial, fill):
    """F67: sums near the maximum."""
    async with dial(serving().url) as wire:
        await wire.init()
        await wire.subscribe(credits=2**31 - 1)
        for _ in range(5):
            await wire.send(type="request", id="a", n=2**31 - 1)
        fill(30, changes=3)
        await wire.events(120)


@pytest.mark.parametrize("seed", range(6))
async def test_delivered_never_exceeds_requested(serving, dial, log, seed):
    """F67: the property of rules 1.1 and 3.8, on the wire, with several subscriptions and random requests."""
    chance = random.Random(seed)
    names = [f"s{number}" for number in range(chance.randint(1, 4))]
    requested, delivered, order = (
        dict.fromkeys(names, 0),
        dict.fromkeys(names, 0),
        {name: [] for name in names},
    )
    total = 0

    def take(message):
        if message["type"] == "next":
            name = message["id"]
            delivered[name] += len(message["events"])
            order[name] += [(event["version"], event["index"]) for event in message["events"]]
        assert all(delivered[name] <= requested[name] for name in names)

    async with dial(serving().url) as wire:
        await wire.init()
        for name in names:
            requested[name] = chance.randint(0, 5)
            await wire.subscribe(name, credits=requested[name], batch={"maxEvents": chance.randint(1, 40)})
        for _ in range(60):
            if chance.random() < 0.5:
                size = chance.randint(1, 12)
                log.commit([upsert("order", str(n), {"n": n}) for n in range(size)])
                total += size + 1
            else:
                name = chance.choice(names)
                n = chance.choice([1, 2, 7, 30])
                requested[name] += n
                await wire.send(type="request", id=name, n=n)
            if chance.random() < 0.2:
                await wire.send(type="ping")
                while (message := await wire.receive())["type"] != "pong":
                    take(message)
        for name in names:
            requested[name] += total
            await wire.send(type="request", id=name, n=total)
        while any(delivered[name] < total for name in names):
            take(await wire.receive())
    assert all(order[name] == sorted(set(order[name])) for name in names)


async def test_two_views_never_share_bytes(serving, dial, fill):
    async with dial(serving().url) as one, dial(serving().url) as two:
        await one.init(), await two.init()
        await one.subscribe(credits=100, content="HEADER")
        await one.subscribe("b", credits=100, content="BODY")
        await two.subscribe(credits=100, content="BODY")
        fill(1, changes=3, body="secret")
        header, body = [], []
        while len(header) < 4 or len(body) < 4:
            message = await one.expect("next")
            (header if message["id"] == "a" else body).extend(message["events"])
        assert "secret" not in json.dumps(header)
        assert [event.get("body") for event in body[1:]] == [{"value": "secret"}] * 3
        assert await two.events(4) == body
        strip = [{k: v for k, v in event.items() if k != "body"} for event in body]
        assert strip == header


async def test_criteria_choose_and_a_checkpoint_tells_progress_without_events(serving, dial, fill, log):
    """F131."""
    async with dial(serving().url) as wire:
        await wire.init()
        await wire.subscribe(credits=5, criteria=[{"entity_types": ["rare"]}], heartbeatMs=30)
        fill(3)
        head = str(log.token(log.head))
        while True:
            (item,) = (await wire.expect("checkpoint"))["items"]
            if item["cursor"] == head:
                break
        assert item == {"id": "a", "cursor": head, "head": head, "live": 3, "state": "LIVE"}
        fill(1, entity_type="rare")
        (event,) = await wire.events(1)
        assert event["entity_type"] == "rare"


async def test_a_batch_without_boundary_is_followed_by_a_checkpoint_that_finishes_the_transaction(
    serving, dial, log
):
    async with dial(serving(resync_checkpoint=0.05).url) as wire:
        await wire.init()
        await wire.subscribe(credits=5, criteria=[{"keys": ["first"]}], heartbeatMs=0)
        big = [upsert("order", "first", {})] + [
            upsert("order", f"k{n}", {"x": "y" * 1000}) for n in range(3000)
        ]
        log.commit(big)
        message = await wire.expect("next")
        if not message["boundary"]:
            (item,) = (await wire.expect("checkpoint"))["items"]
            assert item["cursor"] == str(log.token(log.head))


async def test_history_is_read_and_the_turn_to_live_is_told(serving, dial, fill, log):
    fill(50, changes=4)
    async with dial(serving().url) as wire:
        await wire.init()
        await wire.subscribe(credits=1000, start="earliest", heartbeatMs=0)
        events = []
        states = []
        while len(events) < 250 or "LIVE" not in states:
            message = await wire.receive()
            if message["type"] == "next":
                events += message["events"]
            else:
                states += [item["state"] for item in message["items"]]
        assert [(e["version"], e["index"]) for e in events] == [
            (v, i) for v in range(1, 51) for i in range(5)
        ]
        assert states[-1] == "LIVE"
        fill(1)
        await wire.events(2)


async def test_every_start_and_until(serving, dial, fill, log):
    fill(5)
    async with dial(serving().url) as wire:
        await wire.init()
        for start, since, first in (
            ("earliest", None, 1),
            ({"version": 3}, None, 3),
            (None, str(log.token(log.oldest)), 1),
        ):
            payload = {"start": start} if start else {"since": since}
            await wire.subscribe(credits=100, until=4, **payload)
            events = []
            while (message := await wire.receive())["type"] != "complete":
                events += message.get("events", [])
            assert (events[0]["version"], events[-1]["version"]) == (first, 4)
            assert message["cursor"].endswith(":5:0")


async def test_cancel_while_blocked_releases_and_falls_silent(serving, dial, fill, log, until):
    async with dial(serving().url) as wire:
        await wire.init()
        await wire.subscribe(credits=1, criteria=[{"entity_types": ["order"]}])
        fill(3)
        await wire.events(1)
        assert len(log.statistics().publishers) == 1
        await wire.send(type="complete", id="a")
        await wire.send(type="request", id="a", n=5)
        await wire.nothing_comes()
        await until(lambda: not log.statistics().publishers)
        # The id is free again.
        await wire.subscribe(credits=1, start="earliest")
        await wire.events(1)


async def test_a_vanished_client_leaves_nothing_behind(serving, dial, fill, log, until):
    server = serving()
    async with dial(server.url) as wire:
        await wire.init()
        for name in "abc":
            await wire.subscribe(name, credits=1)
        wire.socket.transport.abort()
    await until(lambda: not log.statistics().publishers)
    await until(lambda: server.application.connections == 0)


async def test_linger_puts_more_events_into_one_message(serving, dial, log):
    async with dial(serving().url) as wire:
        await wire.init()
        await wire.subscribe(credits=1000, batch={"lingerMs": 1000})
        for number in range(100):
            log.commit([upsert("order", str(number), {})])
        sizes = []
        while sum(sizes) < 200:
            sizes.append(len((await wire.expect("next"))["events"]))
        # How many commits fit into the time is the disk's affair.
        assert len(sizes) < 20

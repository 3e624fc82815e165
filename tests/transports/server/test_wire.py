"""The protocol over real sockets: a stock client against a served log."""

import asyncio
import contextlib
import json
import os
import random

import pytest
import websockets

from publishers import Position
from publishers.mutations.mutation import upsert
from tests.transports.principals import knowing


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


async def test_resume_from_any_cursor_has_neither_gap_nor_duplicate(serving, dial, fill):
    """F131."""
    fill(4, changes=3)
    async with dial(serving().url) as wire:
        await wire.init()
        await wire.subscribe(credits=100, start="earliest")
        events = await wire.events(16)
        for place, event in enumerate(events[:-1]):
            await wire.subscribe(f"r{place}", credits=1, since=event["cursor"])
            (following,) = await wire.events(1, f"r{place}")
            assert following == events[place + 1]


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
        (connection,) = server.application._connections
        highest = 0
        for _ in range(20):
            fill(5, changes=50, body="z" * 2000)
            await until(lambda: connection._link.paused)
            highest = max(highest, connection._link.unsent)
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
        (connection,) = server.application._connections
        while not connection._link.paused:
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

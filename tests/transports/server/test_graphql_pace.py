"""Clients of GraphQL over a WebSocket that read slowly, or nothing, and what subscribers cost together."""

import asyncio
import logging
import types

from tests.harness.inside import connections_of, graphql_of, link_of, outbound_of
from tests.transports.server.test_graphql_driver import KEYS, positions


async def test_subscribers_with_the_same_document_cost_one_execution(serving, graphql, fill, log):
    server = serving()
    async with graphql(server) as one, graphql(server) as two:
        for wire in (one, two):
            await wire.init()
            for name in ("a", "b"):
                await wire.subscribe(KEYS, name)
            await wire.settled()
        engine = graphql_of(server.application).engine
        before = engine.encodings
        fill(1, changes=50)
        for wire in (one, two):
            seen = {"a": [], "b": []}
            while min(map(len, seen.values())) < 51:
                message = await wire.receive()
                if message["type"] == "ping":
                    await wire.send(type="pong")
                else:
                    seen[message["id"]].append(message["payload"]["data"]["onChange"])
            assert seen["a"] == seen["b"]
        assert engine.encodings - before == 51


async def test_no_more_events_are_under_way_than_were_answered_for(serving, graphql, fill):
    async with graphql(serving(fence_events=10, fence_width=2)) as wire:
        await wire.init()
        await wire.subscribe(KEYS)
        await wire.settled()
        fill(1, changes=199)
        pings, events = [], 0
        while events < 200:
            message = await wire.receive()
            if message["type"] == "next":
                events += 1
                continue
            pings.append(message["payload"]["fence"])
            if len(pings) % 2 == 0:
                # Nothing more comes until the pings are answered: an answer to a ping of our own is next.
                assert events == 10 * len(pings)
                await wire.nothing_comes()
                await wire.send(type="pong", payload={"fence": pings[-1]})
        assert pings == list(range(1, len(pings) + 1))


async def test_a_client_that_answers_no_pings_is_served_by_its_socket_alone(serving, graphql, fill):
    async with graphql(serving(fence_events=10, fence_width=1, fence_timeout=0.05)) as wire:
        await wire.init()
        await wire.subscribe(KEYS)
        await wire.settled()
        fill(1, changes=99)
        kinds = [(await wire.receive())["type"] for _ in range(101)]
        assert kinds.count("ping") == 1
        assert kinds.count("next") == 100


async def test_a_client_that_wants_to_sets_its_own_pace(serving, graphql, fill):
    async with graphql(serving()) as wire:
        await wire.init()
        payload = {"query": KEYS, "extensions": {"flow": {"credits": 2}}}
        await wire.send(type="subscribe", id="a", payload=payload)
        await wire.settled()
        fill(5)
        events = await wire.events(2)
        await wire.nothing_comes()
        for n in (3, 5):
            await wire.send(type="ping", payload={"request": {"a": n}})
            assert (await wire.receive())["type"] == "pong"
            events += await wire.events(n)
            await wire.nothing_comes()
        assert positions(events) == [(version, index) for version in range(1, 6) for index in range(2)]


async def test_unsent_bytes_of_a_stalled_client_are_bounded(serving, graphql, fill, until):
    """E59: what is held for it on the server does not grow."""
    server = serving(stall_timeout=60.0, keepalive=60.0, fence_events=10**6)
    async with graphql(server) as stuck:
        await stuck.init()
        for name in "abcdefgh":
            await stuck.subscribe(name=name)
        await stuck.settled()
        stuck.socket.transport.pause_reading()
        (connection,) = connections_of(server.application)
        highest = 0
        for _ in range(10):
            fill(5, changes=50, body="z" * 2000)
            await until(lambda: link_of(connection).paused)
            highest = max(highest, link_of(connection).unsent)
        assert highest <= 256 * 1024
        stuck.socket.transport.resume_reading()


async def test_one_stalled_client_is_cut_off_and_its_neighbours_go_on(
    serving, graphql, fill, log, until, caplog
):
    """E59: in bounded time, although its write buffer is full."""
    server = serving(stall_timeout=1.0, keepalive=60.0, fence_events=10**6)
    with caplog.at_level(logging.INFO, "penstock.transports"):
        async with graphql(server) as good, graphql(server) as stuck:
            await good.init(), await stuck.init()
            await good.subscribe(KEYS)
            await stuck.subscribe()
            await good.settled(), await stuck.settled()
            stuck.socket.transport.pause_reading()
            # On a thread: one that writes where the good client reads would make it stand still as well.
            filling = asyncio.create_task(asyncio.to_thread(fill, 20, changes=50, body="z" * 4000))
            await good.events(20 * 51)
            await filling
            await until(lambda: server.application.connections == 1)
            fill(1)
            await good.events(2)
            stuck.socket.transport.resume_reading()
            assert (await stuck.closed())[0] == 1006
    assert "connection aborted" in caplog.text


async def test_a_reader_that_stood_still_gets_everything_later(serving, graphql, fill, log):
    server = serving(stall_timeout=60.0, keepalive=60.0)
    async with graphql(server) as slow:
        await slow.init()
        await slow.subscribe()
        await slow.settled()
        slow.socket.transport.pause_reading()
        fill(30, changes=50, body="z" * 2000)
        slow.socket.transport.resume_reading()
        events = await slow.events(30 * 51)
        assert positions(events) == [(version, index) for version in range(1, 31) for index in range(51)]


async def test_queries_of_a_client_that_reads_nothing_are_not_run(serving, graphql, fill, until):
    server = serving(stall_timeout=60.0, keepalive=60.0, high_water=1024, window_bytes=256 * 1024)
    fill(1, changes=900, body="z" * 2000)
    async with graphql(server) as stuck:
        await stuck.init()
        (connection,) = connections_of(server.application)
        stuck.socket.transport.pause_reading()
        for number in range(40):
            await stuck.subscribe("{ history(limit: 1000) { changes { body } } }", str(number))
        # How many fit into the buffers of the kernel is the machine's affair.
        await until(lambda: link_of(connection).paused and connection._asking is None and connection._queries)
        stuck.socket.transport.resume_reading()


async def test_a_connection_that_is_lost_leaves_nothing_behind(serving, graphql, fill, log, until):
    server = serving()
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe(KEYS)
        await wire.subscribe("{ history { changes { key } } }", "q")
        wire.socket.transport.abort()
    await until(lambda: server.application.connections == 0)
    await until(lambda: not log.statistics().publishers)


async def test_queries_that_were_taken_back_leave_nothing_behind(serving, graphql, fill, until):
    fill(1, body="x" * 1000)
    server = serving(high_water=1, window_bytes=200_000, messages_per_second=100_000, fence_timeout=20.0)
    async with graphql(server) as wire:
        await wire.init()
        (connection,) = connections_of(server.application)
        # The gate of its deliveries is shut, as it is for a client that does not read.
        outbound_of(connection)._link = types.SimpleNamespace(
            payer=None, paused=True, unsent=0, flush=lambda: None
        )
        for _ in range(1500):
            await wire.subscribe("{ __typename }", "q")
            await wire.send(type="complete", id="q")
        await wire.subscribe("{ __typename }", "last")
        await wire.nothing_comes()
        assert len(connection._queries) == 1
        assert len(outbound_of(connection)._ready) + len(outbound_of(connection)._arrived) <= 1

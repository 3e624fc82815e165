"""npm ``graphql-ws`` and Python ``gql``, unmodified, and the audits of ``graphql-http``."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from publishers import ChangeLog, Content, Criterion, Position, upsert
from tests.clients.conftest import EXAMPLES, running
from tests.clients.runtimes import HERE
from tests.harness.constants import set_bounds
from tests.harness.inside import housekeeping_of
from tests.harness.ports import free_port
from transports import Grant, Limits, LogAction, Principal, serve

AWAY = 10.0 if int(os.environ.get("PENSTOCK_KILLS", "0")) else 0.0
"""Seconds without a server, at one of the restarts; `make servers` sets the variable."""


def socket_url(server):
    return server.graphql_url.replace("http:", "ws:")


def positions(lines):
    return [(int(line["version"]), line["index"]) for line in lines]


def everything(versions, changes, first=1):
    return [(version, index) for version in range(first, first + versions) for index in range(changes + 1)]


async def test_a_client_receives_the_exact_sequence(log, fill, follow):
    """F130."""
    oldest = str(log.token(log.oldest))
    fill(20, 4)
    with serve(log) as server:
        async with follow(socket_url(server), oldest) as client:
            lines = await client.lines(100)
            fill(100, 4)  # and goes on with what is committed meanwhile
            lines += await client.lines(500)
    assert positions(lines) == everything(120, 4)
    assert [line["body"] for line in lines[1:5]] == [{"total": place} for place in range(4)]
    assert [line["operation"] for line in lines[:2]] == ["TRANSACTION", "UPSERT"]


async def test_every_stock_client_gets_each_change_once_over_three_restarts(log, fill, node, until):
    """F130: npm graphql-ws, Apollo, urql, Relay and Python gql as documented, each refused while there is no server."""
    fill(2, 3)
    begin = str(log.token(Position(2, 1)))
    server = serve(log, port=free_port())
    got = {name: [] for name in ("Apollo", "urql", "Relay", "graphql-ws", "gql")}

    async def listen(program, name=None):
        while True:
            for line in await program.lines(1):
                got[name or line["name"]] += positions([line])

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        stack.push_async_callback(lambda: asyncio.to_thread(server.stop))
        programs, listening = [], []
        for name, *command in (
            (None, "node", node / "stock.mjs"),
            ("graphql-ws", "node", node / "graphql_client.mjs"),
            ("gql", sys.executable, EXAMPLES / "graphql_client.py"),
        ):
            program = await stack.enter_async_context(running(*command, socket_url(server), begin))
            programs.append(program)
            listening.append(tasks.create_task(listen(program, name)))
        for some, away in ((99, 0.0), (900, AWAY), (1700, 0.0)):
            writing = tasks.create_task(asyncio.to_thread(fill, 199 if some == 99 else 200, 3))
            await until(lambda count=some: min(map(len, got.values())) >= count)
            for program in programs:
                program.complaints.clear()
            await asyncio.to_thread(server.stop)  # in the middle of what they are sent
            stopped = time.monotonic()
            await writing  # what is committed while there is no server is not missed either
            for program in programs:
                await until(lambda told=program.complaints: "connect " in "".join(told).lower())
            await until(lambda end=stopped + away: time.monotonic() >= end)
            server = serve(log, port=server.port)
        await until(lambda: min(map(len, got.values())) >= 2399)
        for task in listening:
            task.cancel()
    assert got == dict.fromkeys(got, everything(601, 3)[5:])


async def test_a_stock_client_renews_a_token_that_expires_and_ends_at_one_that_is_refused(log, node):
    """E55, F130: npm graphql-ws as documented; 4403 behind an acknowledgement is retried once."""
    given, begin = [], str(log.token(log.oldest))

    def judge(credentials):
        if credentials.token is None or int(credentials.token) > 5:
            return None
        given.append(int(credentials.token))
        log.commit([upsert("order", "1", {})])
        return Principal("ann", expires=datetime.now(UTC).timestamp() + 0.6)  # to be acknowledged in

    with serve(log, authenticate=judge, limits=Limits(revocation=0.05)) as server:
        async with running("node", node / "renewing.mjs", socket_url(server), begin) as client:
            lines = await client.lines(11)
    assert positions(lines[:10]) == everything(5, 1)
    assert (given, lines[10]) == ([1, 2, 3, 4, 5], {"refused": 6})


def test_a_recipe_says_what_it_needs_and_gives_up_where_no_retry_helps(node):
    """F130."""
    done = subprocess.run(
        ["node", node / "resuming.mjs"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_recipe_of_the_guide_is_one_that_is_tested():
    tested = (HERE / "stock.mjs").read_text().splitlines()
    recipes = re.findall(r"```js\n(.*?)```", (HERE.parents[1] / "docs" / "graphql.md").read_text(), re.DOTALL)
    assert len(recipes) >= 4
    for line in "".join(recipes).splitlines():
        assert line in tested


async def test_a_client_goes_on_behind_the_cursor_that_it_kept(log, fill, follow):
    oldest = str(log.token(log.oldest))
    fill(10, 2)
    with serve(log) as server:
        async with follow(socket_url(server), oldest) as client:
            first = await client.lines(17)
        async with follow(socket_url(server), first[16]["cursor"]) as client:
            rest = await client.lines(13)
    assert positions(first + rest) == everything(10, 2)


async def test_a_client_without_a_cursor_begins_now_and_answers_the_pings_that_hold_events_back(
    log, fill, follow, until
):
    fill(1)
    set_bounds(fence_events=10, fence_width=2, fence_timeout=3600.0)
    with serve(log) as server:
        async with follow(socket_url(server)) as client:
            await until(lambda: log.statistics().publishers)
            fill(20, 49)
            lines = await client.lines(1000)  # fifty times as many as may be unanswered
    assert positions(lines) == everything(20, 49, first=2)


async def test_a_client_is_told_that_its_cursor_is_not_one(log, follow):
    with serve(log) as server:
        async with follow(socket_url(server), "nonsense") as client:
            assert await client.ended() == 1
    assert "is not a position" in "".join(client.complaints)


async def test_the_audits_of_graphql_over_http_pass(log, node):
    with serve(log) as server:
        done = await asyncio.to_thread(
            subprocess.run,
            ["node", node / "audit.mjs", server.graphql_url],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    audits = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(audits) >= 61
    assert [audit for audit in audits if audit["status"] != "ok"] == []


async def begun(server, node, start, count):
    """What npm graphql-ws gets that begins somewhere."""
    command = ["node", node / "start.mjs", socket_url(server), json.dumps(start), str(count)]
    async with running(*command) as client:
        lines = await client.lines(count)
        assert await client.ended() == 0
    return lines


async def test_a_stock_client_begins_anywhere(log, fill, node):
    """F61, F31: by the variables of its request."""
    fill(4, 3)
    head = log.history(since=3, limit=1, content=Content.BODY).changes[0]
    with serve(log) as server:
        for start in (
            {"version": "3", "index": 2},  # sent whole
            {"time": log.time_of(3).isoformat()},
            {"transaction": head.body["id"]},
        ):
            assert positions(await begun(server, node, start, 8)) == everything(2, 3, first=3)


async def test_a_stock_client_is_told_of_a_gap(tmp_path, node):
    """E37: in the extensions of the result, of the first event behind it only."""
    options = {"sync": "os", "fill_step": 65_536, "segment_bytes": 65_536, "retain_bytes": 65_536}
    with ChangeLog.open(tmp_path / "short", **options, retain_age=None) as log:
        for _ in range(300):
            log.commit([upsert("order", str(number), {"n": number}) for number in range(60)])
        housekeeping_of(log).poke()
        end, pause = time.monotonic() + 60, threading.Event()
        while log.oldest == Position(1):
            assert time.monotonic() < end
            pause.wait(0.01)
        housekeeping_of(log).close()
        with serve(log) as server:
            lines = await begun(server, node, {"version": 1}, 3)
        oldest = log.oldest
        assert lines[0].pop("gap") == {"begin": str(log.token(Position(1))), "end": str(log.token(oldest))}
        assert positions(lines) == [(oldest.version, index) for index in range(3)]
        assert not any("gap" in line for line in lines)


async def test_a_stock_client_acknowledges_what_a_slot_gives_it_and_goes_on_behind_a_restart(log):
    """F74, F130: Python gql; the request that it repeats says which opening it was."""
    from gql import Client, GraphQLRequest
    from gql.transport.websockets import WebsocketsTransport

    given = 'subscription { onSlot(slot: {name: "stock", opening: "one"}) { cursor key } }'
    acknowledge = """mutation ($cursor: Cursor!) {
      ackSlot(slot: "stock", opening: "one", cursor: $cursor, durable: true) { cursor } }"""
    log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest", granularity="change")
    log.commit([upsert("order", str(number), {}) for number in range(4)])
    for expected in (["0", "1", "2", "3"], ["2", "3"]):
        with serve(log, authorise=Grant({LogAction.CONSUME}, slots=["stock"])) as server:
            async with (
                asyncio.timeout(120),
                Client(transport=WebsocketsTransport(url=socket_url(server))) as session,
            ):
                keys, answer = [], None
                async for event in session.subscribe(GraphQLRequest(given)):
                    change = event["onSlot"]
                    keys.append(change["key"])
                    if len(keys) == 2:
                        said = GraphQLRequest(acknowledge, variable_values={"cursor": change["cursor"]})
                        answer = await session.execute(said)
                    if len(keys) == len(expected):
                        break
                assert keys == expected
    assert answer == {"ackSlot": {"cursor": str(log.token(log.head))}}


async def test_a_stock_client_need_not_wait_until_its_consumer_has_joined(log):
    """F75, F130: Python gql, which is told of no beginning; a mutation right behind the subscription counts."""
    from gql import Client, GraphQLRequest
    from gql.transport.websockets import WebsocketsTransport

    given = "subscription ($consumer: ConsumerInput!) { onDelivery(consumer: $consumer) { at } }"
    acknowledge = """mutation ($consumer: ConsumerInput!, $at: [Cursor!]!) {
      ackDeliveries(consumer: $consumer, at: $at) }"""
    log.groups.create("pickers", Criterion(entity_types={"order"}), since="earliest")
    log.commit([upsert("customer", "1", {}), upsert("order", "1", {})])
    nothing = str(log.token(Position(1, 1)))
    allowed = Grant({LogAction.CONSUME}, groups=["pickers"])
    with serve(log, authorise=allowed) as server:
        transport = WebsocketsTransport(url=socket_url(server))
        async with asyncio.timeout(120), Client(transport=transport) as session:
            for number in range(5):
                variables = {"consumer": {"group": "pickers", "consumer": f"c{number}", "opening": "x"}}
                events = session.subscribe(GraphQLRequest(given, variable_values=variables))
                said = GraphQLRequest(acknowledge, variable_values={**variables, "at": [nothing]})
                # Tasks begin in this order, and each sends its request before it waits for anything.
                first = asyncio.ensure_future(anext(events))
                assert await asyncio.ensure_future(session.execute(said)) == {"ackDeliveries": 0}
                await first
                await events.aclose()


async def test_a_stock_client_works_for_a_group_and_goes_on_with_what_it_had_after_a_lost_connection(log):
    """F75, F76, F84, F130: Python gql; the request that it repeats says which joining it was."""
    from gql import Client, GraphQLRequest
    from gql.transport.websockets import WebsocketsTransport

    given = """subscription ($consumer: ConsumerInput!) {
      onDelivery(consumer: $consumer) { at count changes { key } } }"""
    acknowledge = """mutation ($consumer: ConsumerInput!, $at: [Cursor!]!) {
      ackDeliveries(consumer: $consumer, at: $at, durable: true) }"""
    consumer = {"group": "pickers", "consumer": "one", "opening": "x"}
    log.groups.create("pickers", Criterion(entity_types={"order"}), since="earliest")
    log.commit([upsert("order", str(number), {}) for number in range(4)])
    allowed = Grant({LogAction.CONSUME}, groups=["pickers"])
    with serve(log, authorise=allowed, limits=Limits(grace=600.0)) as server:
        for expected in (["0", "1", "2", "3"], ["2", "3"]):
            transport = WebsocketsTransport(url=socket_url(server))
            async with asyncio.timeout(120), Client(transport=transport) as session:
                keys, had = [], []
                request = GraphQLRequest(given, variable_values={"consumer": consumer})
                async for event in session.subscribe(request):
                    delivery = event["onDelivery"]
                    assert delivery["count"] == 1
                    keys.append(delivery["changes"][0]["key"])
                    had.append(delivery["at"])
                    if len(keys) == 2:
                        said = GraphQLRequest(acknowledge, variable_values={"consumer": consumer, "at": had})
                        assert await session.execute(said) == {"ackDeliveries": 2}
                    if len(keys) == len(expected):
                        transport.adapter.websocket.transport.abort()
                        break
                assert keys == expected
        assert log.groups.info("pickers").generation == 1
    assert log.groups.info("pickers").floor == log.head


async def test_apollos_persisted_queries_are_sent_whole_after_one_refusal(log, fill, node):
    fill(1, 0)
    with serve(log) as server:
        async with running("node", node / "persisted.mjs", server.graphql_url) as client:
            found = [(line["name"], line["found"]) for line in await client.lines(3)]
    assert found == [("POST", 3), ("GET", 3), ("WebSocket", "1")]

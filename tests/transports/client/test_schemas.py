"""Schemas that are looked up over our protocol."""

import asyncio
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.bridges.iterators import aiter as iterate
from penstock_cdc.mutations import schema
from publishers import Area, ChangeLog, Content, Criterion, View, upsert
from publishers.errors import InvalidOption
from publishers.schemas.registry import Schemas
from tests.harness.ports import free_port
from tests.publishers.support import QUICK
from transports import Backoff, ConnectionLost, Grant, RemoteError, connect, serve

TOTAL = {"type": "struct", "fields": [{"name": "total", "type": "decimal(10,2)"}]}
NOTE = {"type": "struct", "fields": [{"name": "note", "type": "string"}]}
QUICKLY = Backoff(first=0.01, limit=0.05)


async def ask(wire, name="q", **payload):
    await wire.send(type="schema", id=name, payload=payload)
    while (message := await wire.receive())["type"] not in ("schema", "error"):
        assert message["type"] == "checkpoint"
    assert message["id"] == name
    return message


async def test_a_schema_is_looked_up_by_version_and_the_newest_without(serving, dial, log):
    """F10."""
    log.commit([schema("order", TOTAL), upsert("order", "1", {"total": "1.00"})])
    log.commit([schema("order", NOTE, 7), schema("order", {"x": 1}, 7, part="attributes")])
    async with dial(serving().url) as wire:
        await wire.init()
        told = str(log.token(log.schema("order", 1).position))
        first = {
            "log": "shop",
            "entity_type": "order",
            "version": 1,
            "told": told,
            "parts": {"entity": TOTAL},
        }
        assert await ask(wire, entity_type="order", version=1) == {
            "type": "schema",
            "id": "q",
            "payload": first,
        }
        newest = (await ask(wire, entity_type="order"))["payload"]
        assert (newest["version"], newest["parts"]) == (7, {"entity": NOTE, "attributes": {"x": 1}})
        for missing in ({"entity_type": "order", "version": 2}, {"entity_type": "item"}):
            assert (await ask(wire, **missing))["payload"] is None
        # From where it was told, a subscription begins with it.
        await wire.subscribe(since=told, credits=2, content="BODY")
        events = await wire.events(2)
        assert (events[0]["area"], events[0]["body"]) == ("SCHEMA", TOTAL)


@pytest.mark.parametrize(
    ("payload", "code", "path"),
    [
        ({}, "INVALID_REQUEST", "entity_type"),
        ({"entity_type": ""}, "INVALID_REQUEST", "entity_type"),
        ({"entity_type": 7}, "INVALID_REQUEST", "entity_type"),
        ({"entity_type": "order", "version": 0}, "INVALID_REQUEST", "version"),
        ({"entity_type": "order", "version": "1"}, "INVALID_REQUEST", "version"),
        ({"entity_type": "order", "version": True}, "INVALID_REQUEST", "version"),
        ({"entity_type": "order", "log": 7}, "INVALID_REQUEST", "log"),
        ({"entity_type": "order", "log": "other"}, "LOG_NOT_FOUND", "log"),
    ],
)
async def test_a_wrong_question_is_named_and_breaks_nothing(serving, dial, fill, payload, code, path):
    """F10."""
    async with dial(serving().url) as wire:
        await wire.init()
        await wire.subscribe(credits=10)
        problem = (await ask(wire, **payload))["payload"]
        assert (problem["code"], problem["path"], problem["retryable"]) == (code, path, False)
        fill(1)
        await wire.events(2)


async def test_questions_have_ids_like_subscriptions(serving, dial, log, monkeypatch, until):
    """F10: unique while in use, bounded, and nobody hears of one that was taken back."""
    log.commit([schema("order", TOTAL)])
    asked, go_on, find = [], threading.Event(), Schemas.find

    def slowly(self, *which):
        asked.append(which)
        assert go_on.wait(60)
        return find(self, *which)

    monkeypatch.setattr(Schemas, "find", slowly)
    async with dial(serving(subscriptions=3).url) as wire, dial(serving().url) as other:
        await wire.init()
        await wire.subscribe(credits=1)
        for name in "bc":
            await wire.send(type="schema", id=name, payload={"entity_type": "order"})
        await until(lambda: asked)
        assert (await ask(wire, "d", entity_type="order"))["payload"]["code"] == "TOO_MANY_SUBSCRIPTIONS"
        await wire.send(type="request", id="c", n=5)  # means nothing, and harms nothing
        await wire.send(type="complete", id="c")
        await wire.nothing_comes()
        go_on.set()
        assert (await wire.expect("schema"))["id"] == "b"
        await wire.nothing_comes()
        assert (await ask(wire, "c", entity_type="order"))["payload"]["version"] == 1
        go_on.clear()
        await other.init()
        for _ in range(2):
            await other.send(type="schema", id="b", payload={"entity_type": "order"})
        code, reason = await other.closed()
        assert (code, "in use" in reason) == (4409, True)
        go_on.set()


async def test_who_may_not_see_a_schema_may_not_look_it_up(log, dial):
    """F10, F59."""
    log.commit([schema("order", TOTAL)])
    for view, refused in (
        (View(), True),
        (View.of(Content.BODY, images="NOTHING"), True),
        (View.of(Content.BODY, fields=["note"], mask={"total": "***"}), False),
    ):
        with serve(log, authorise=Grant(view=view)) as server:
            async with dial(server.url) as wire:
                await wire.init()
                answer = await ask(wire, entity_type="order")
                assert (answer["payload"].get("code") == "FORBIDDEN") is refused
                assert ("total" in str(answer)) is not refused


async def test_the_python_client_gets_what_is_known_in_process(serving, log):
    """F10."""
    log.commit([schema("order", TOTAL), schema("order", {"x": 1}, part="attributes")])
    log.commit([schema("order", NOTE)])
    async with connect(serving().url) as remote:
        for version in (None, 1, 2, 3):
            assert await remote.schema("order", version) == log.schema("order", version)
        assert await remote.schema("item", log="shop") is None
        found = await remote.schema("order", 1)
        assert found.reader()({"total": "1.00"})["total"] + 1 == 2
        with pytest.raises(RemoteError, match="LOG_NOT_FOUND"):
            await remote.schema("order", log="other")
        with pytest.raises(InvalidOption, match="entity_type is "):
            await remote.schema("")
    with pytest.raises(ConnectionLost):
        await remote.schema("order")


async def test_a_question_of_the_python_client_outlives_its_connection(log, monkeypatch, until):
    """F10: asked again on the next one; whoever leaves is not waited for."""
    log.commit([schema("order", TOTAL)])
    asked, go_on, find = [], threading.Event(), Schemas.find

    def slowly(self, *which):
        asked.append(which)
        assert go_on.wait(60)
        return find(self, *which)

    monkeypatch.setattr(Schemas, "find", slowly)
    server = serve(log, port=free_port())
    async with connect(server.url, reconnect=QUICKLY) as remote:
        waiting = asyncio.create_task(remote.schema("order"))
        leaving = asyncio.create_task(remote.schema("order"))
        await until(lambda: asked)
        leaving.cancel()
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        await until(lambda: server.application.connections == 0)
        go_on.set()
        await stopping
        with serve(log, port=server.port):
            assert (await waiting).body == TOTAL
            again = asyncio.create_task(remote.schema("order"))
            await until(again.done)
        lost = asyncio.create_task(remote.schema("order"))
    with pytest.raises(ConnectionLost):
        await lost
    assert leaving.cancelled()


steps = st.lists(
    st.tuples(st.sampled_from(["order", "item"]), st.sampled_from(["tell", "tell and use", "use", "use"])),
    min_size=1,
    max_size=12,
)


@settings(max_examples=10, deadline=None)
@given(steps, st.integers(0, 2**32), st.booleans(), st.booleans())
def test_whoever_has_a_change_can_resolve_its_schema(tmp_path_factory, chosen, seed, follows, hears):
    """F10: from any position, from an owner and a follower, whether the criteria hear of schemas or not."""
    draw = random.Random(seed)

    async def read(url, log, since, until):
        data = Criterion(areas={Area.DATA}) if hears else None
        async with connect(url, reconnect=QUICKLY) as remote:  # a follower may be behind
            feed = remote.changes(data, since=since, until=until)
            async with iterate(feed) as changes:
                async for change in changes:
                    await resolve(remote, log, change)

    async def resolve(remote, log, change):
        if change.schema_version is not None:
            found = await remote.schema(change.entity_type, change.schema_version)
            assert found == log.schema(change.entity_type, change.schema_version)
            assert found.version == change.schema_version
            assert found.position <= change.position

    async def work(log, served):
        with serve(served) as server:
            starts = [log.oldest]
            readers = []
            for number, (kind, what) in enumerate(chosen):
                tells = [schema(kind, {"n": number})] if what != "use" else []
                uses = [upsert(kind, str(number), {})] if what != "tell" else []
                if draw.random() < 0.5:
                    since = log.token(draw.choice(starts))
                    readers.append(asyncio.create_task(read(server.url, log, since, len(chosen))))
                commit = await log.commit_async([*tells, *uses])
                starts += [change.position for change in log.history(since=commit.version).changes]
                assert commit.version == number + 1
            readers += [
                asyncio.create_task(read(server.url, log, log.token(since), len(chosen)))
                for since in draw.sample(starts, min(3, len(starts)))
            ]
            async with asyncio.timeout(60):
                await asyncio.gather(*readers)

    path = tmp_path_factory.mktemp("log")
    with ChangeLog.open(path / "shop", **QUICK) as log:
        if follows:
            with ChangeLog.open(path / "shop", read_only=True, tail_poll=0.001) as follower:
                asyncio.run(work(log, follower))
        else:
            asyncio.run(work(log, log))

"""What must hold on every transport, on each of them: real servers, sockets and requests."""

import asyncio
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from penstock_cdc.mutations import schema
from publishers import (
    Area,
    ChangeLog,
    ChangeStore,
    Content,
    Criteria,
    Criterion,
    Drop,
    Hash,
    Images,
    Mutation,
    Operation,
    Partial,
    View,
    upsert,
)
from tests.flow.probes import Probe
from tests.publishers.support import QUICK
from tests.transports.readers import DEADLINE, EACH, READERS, Wish, dialled
from transports import Grant, connect, serve


@EACH
async def test_what_is_asked_for_is_what_comes(tmp_path, read):
    """E58: a whole log, one entity type, schema changes, and the system log."""
    with ChangeStore.open(tmp_path / "shop", **QUICK) as store, serve(store) as server:
        orders = store.create("orders")
        store.create("users").commit([upsert("order", "of another log", {})])
        orders.commit([schema("order", {"a": 1}), upsert("order", "1", {}), upsert("item", "2", {})])
        transaction = ("INFRASTRUCTURE", "TRANSACTION", None)
        told, order, item = (
            ("SCHEMA", "UPSERT", "entity"),
            ("DATA", "UPSERT", "1"),
            ("DATA", "UPSERT", "2"),
        )
        for log, wish, expected in (
            ("orders", Criteria.of(), [transaction, told, order, item]),
            ("orders", Criteria.of(Criterion(entity_types={"order"}, areas={Area.DATA})), [order]),
            ("orders", Criteria.of(Criterion(entity_types={"order"})), [told, order]),
            ("orders", Criteria.of(Criterion(areas={Area.SCHEMA})), [told]),
            ("$system", Criteria.of(), [transaction, ("ENGINE", "UPSERT", "orders")]),
            ("$system", Criteria.of(Criterion(areas={Area.ENGINE})), [("ENGINE", "UPSERT", "orders")]),
        ):
            found = await read(server, Wish(1, wish, log))
            assert [(event.area, event.operation, event.key) for event in found] == expected


@EACH
async def test_annotations_of_the_application_arrive(log, serving, read):
    """F21: a user, a request, a trace, on the TRANSACTION event; and those of a change."""
    meta = {
        "user": "ann",
        "request": 12345678901234567890,
        "traceparent": "00-0af7-01",
        "deep": {"a": [None, 1.50]},
    }
    log.commit([upsert("order", "1", {}, meta={"m": "\u2028 \U0001f480"})], meta=meta)
    log.commit([upsert("order", "2", {})])
    found = await read(serving(), Wish(2))
    assert [(event.version, event.index) for event in found] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert [msgspec.json.decode(event.meta) for event in found] == [
        meta,
        {"m": "\u2028 \U0001f480"},
        None,
        None,
    ]


numbers = (
    st.integers(-(2**70), 2**70).map(str)
    | st.decimals(allow_nan=False, allow_infinity=False).map(lambda value: f"{value:f}"[:40].rstrip("."))
    | st.sampled_from(["0", "-0", "-0.0", "0.10", "1e400", "1E-7", "1234567890.1234567890123456789"])
)
leaves = numbers | st.sampled_from(["null", "true", "false"]) | st.text(max_size=6).map(json.dumps)
texts = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]")
        | st.dictionaries(st.sampled_from(["a", "b", "\u00e9"]), inner, max_size=3).map(
            lambda items: "{" + ",".join(f"{json.dumps(name)}:{item}" for name, item in items.items()) + "}"
        )
    ),
    max_leaves=8,
)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8))
def test_json_arrives_as_it_was_written(tmp_path_factory, written):
    """F24: fuzzed, on every wire; digits beyond 2^53, zeros, null and absent, and every character."""

    async def work(server: Any) -> None:
        for read in READERS:
            found = [event for event in await read(server, Wish(1)) if event.index]
            assert [event.texts[:2] for event in found] == [
                (body.encode(), before.encode()) for body, before in written
            ], read.__name__

    with ChangeLog.open(tmp_path_factory.mktemp("log") / "shop", **QUICK) as log:
        log.commit(
            [
                upsert("order", str(number), body.encode(), before=before.encode())
                for number, (body, before) in enumerate(written)
            ]
        )
        with serve(log) as server:
            asyncio.run(work(server))


KEY = "sixteen bytes or more"
WIDEST = View.of(
    Content.BODY,
    Images.ALL,
    mask={"card": Partial(4), "name": "***", "customer.zip": Drop(), "$key": Hash(KEY), "$meta": "***"},
)


@EACH
async def test_what_a_server_masks_is_in_nothing_that_a_client_gets(log, read):
    """F59: in every mode."""
    body = {"card": "4111-SECRET-1234", "name": "SECRET", "customer": {"zip": "SECRET", "city": "Rome"}}
    log.commit(
        [
            upsert("order", "SECRET", body | {"n": 1}, before=body, changed=["n"], meta={"user": "SECRET"}),
            Mutation(Operation.UPSERT, "order", b"SECRET", b'{"card":"4111-SECRET",'),  # damaged
        ],
        meta={"user": "SECRET"},
    )
    with serve(log, authorise=Grant(view=WIDEST)) as server:
        for images in Images:
            found = await read(server, Wish(1, images=images))
            text = repr([(event, *event.texts) for event in found])
            assert "SECRET" not in text
            if images in (Images.WRITTEN, Images.ALL, Images.AFTER):
                assert "***1234" in text
                assert "Rome" in text


class Paced:
    """Subscriptions on one connection of which each is given credits, and counts what comes."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.requested: dict[str, int] = {}
        self.got: dict[str, list[tuple[int, int]]] = {}
        self._pings = 0

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def subscribe(self, name: str, credits_: int) -> None:
        self.requested[name], self.got[name] = credits_, []
        query = "subscription { onChange { version index } }"
        payload = {"query": query, "extensions": {"flow": {"credits": credits_}}}
        await self.say("subscribe", id=name, payload=payload)

    async def request(self, name: str, n: int) -> None:
        self.requested[name] += n
        await self.say("ping", payload={"request": {name: n}})

    async def settle(self) -> None:
        """Takes what has come until the answer to a ping."""
        self._pings += 1
        await self.say("ping", payload={"n": self._pings})
        while True:
            message = json.loads(await asyncio.wait_for(self.socket.recv(), DEADLINE))
            if message["type"] == "next":
                event, name = message["payload"]["data"]["onChange"], message["id"]
                self.got[name].append((int(event["version"]), event["index"]))
                assert len(self.got[name]) <= self.requested[name]
            elif message["type"] == "ping":
                await self.say("pong", payload=message["payload"])
            elif message.get("payload") == {"n": self._pings}:
                return


@pytest.mark.parametrize("seed", range(4))
async def test_graphql_delivers_no_more_than_was_requested(log, serving, seed):
    """F67: rules 1.1 and 3.8, where a client sets its own pace; sums near the maximum saturate."""
    chance, total = random.Random(seed), 0
    url = serving().graphql_url.replace("http:", "ws:")
    async with dialled(url, "graphql-transport-ws") as socket:
        paced = Paced(socket)
        for name in "abc":
            await paced.subscribe(name, chance.randint(0, 4))
        await paced.settle()
        for _ in range(40):
            if chance.random() < 0.5:
                size = chance.randint(1, 9)
                log.commit([upsert("order", str(n), {}) for n in range(size)])
                total += size + 1
            else:
                await paced.request(chance.choice("abc"), chance.choice([1, 2, 7, 30]))
            if chance.random() < 0.3:
                await paced.settle()
        for name in "abc" * 3:
            await paced.request(name, 2**31 - 1)
        while min(map(len, paced.got.values())) < total:
            await paced.settle()
    stream = [change.position for change in log.history(limit=10_000).changes]
    assert all(seen == stream for seen in paced.got.values())


async def test_our_client_delivers_no_more_than_was_requested(log, serving, until):
    """F67: likewise; sums near the maximum saturate."""
    chance = random.Random(1)
    probe, requested, total = Probe(), 0, 0
    async with connect(serving().url) as remote:
        remote.changes(window=5).subscribe(probe)
        await until(lambda: log.statistics().subscriptions)
        for _ in range(40):
            size = chance.randint(1, 9)
            await log.commit_async([upsert("order", str(n), {}) for n in range(size)])
            total += size + 1
            n = chance.choice([1, 2, 7])
            requested += n
            probe.subscription.request(n)
            want = min(requested, total)
            await until(lambda want=want: len(probe.items) == want)
            assert len(probe.items) <= requested
        for _ in range(3):
            probe.subscription.request(flow.UNBOUNDED - 1)
        await until(lambda: len(probe.items) == total)
        assert probe.error is None
    stream = [change.position for change in log.history(limit=10_000).changes]
    assert [change.position for change in probe.items] == stream

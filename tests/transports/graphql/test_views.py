"""Views over both protocols: what a server hides is in nothing that it sends, and each client sees its own view only."""

import asyncio
import contextlib
import json
import logging
import random
import urllib.request
from unittest.mock import ANY

import pytest

import flow
from publishers import (
    ChangeStore,
    Content,
    Drop,
    Hash,
    Images,
    Mutation,
    Operation,
    Partial,
    View,
    remove,
    upsert,
)
from publishers.blocks.block import Block
from publishers.mutations.mutation import columns_of
from tests.harness.inside import graphql_of
from tests.transports.principals import knowing
from transports import ANONYMOUS, Forbidden, Grant, LogAction, Principal, connect, serve

KEY = "sixteen bytes or more"
OLD = {"card": "3000-SECRET-9876", "customer": {"name": "SECRET Ann", "zip": "SECRET old"}, "n": 0}
NEW = {"card": "4111-SECRET-1234", "customer": {"name": "SECRET Ann", "zip": "SECRET zip"}, "n": 1}
WIDEST = View.of(
    Content.BODY,
    Images.ALL,
    mask={
        "card": Partial(4),
        "customer.name": "***",
        "customer.zip": Drop(),
        "$key": Hash(KEY),
        "$meta": "***",
    },
)
FIELDS = "version index operation key body before changed meta lacking cursor entityType"
SUBSCRIBE = f"""
subscription ($since: Cursor, $images: Images! = WRITTEN, $fields: [String!], $mask: [MaskRuleInput!]) {{
  onChange(since: $since, images: $images, fields: $fields, mask: $mask) {{ {FIELDS} }}
}}"""


def mutations(number: object) -> list:
    key, meta = f"SECRET-{number}", {"user": "SECRET user"}
    return [
        upsert("order", key, NEW, before=OLD, changed=["card", "n"], meta=meta),
        upsert("order", key, NEW, changed=["customer.zip", "customer"]),
        Mutation(Operation.UPSERT, "order", key.encode(), b'{"card":"4111-SECRET",'),  # damaged
        remove("order", key, before=OLD),
    ]


async def graphql_events(graphql, server, count: int, **variables) -> list[dict]:
    async with graphql(server) as wire:
        await wire.init(token="t")
        await wire.subscribe(SUBSCRIBE, **variables)
        return await wire.events(count)


async def wire_events(dial, server, count: int, **wish) -> list[dict]:
    async with dial(server.url) as wire:
        await wire.init(token="t")
        await wire.subscribe(credits=count, **wish)
        return await wire.events(count)


def fetch(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as answer:
        return answer.read().decode()


async def test_no_secret_is_in_anything_that_a_server_sends_or_logs(log, dial, graphql, caplog):
    """F59: every mode on every way, pages, errors, health and statistics, and the log of the program."""
    caplog.set_level(logging.DEBUG)
    log.commit(mutations(1), meta={"user": "SECRET user"})
    since = str(log.token(log.oldest))
    said: list[object] = []
    with serve(log, authorise=Grant(view=WIDEST)) as server:
        for images in Images:
            name = images.name
            said += await wire_events(dial, server, 5, since=since, content="BODY", images=name)
            said += await wire_events(
                dial, server, 5, since=since, content="BODY", images=name, fields=["card"]
            )
            said += await graphql_events(graphql, server, 5, since=since, images=name)
            query = f"{{ history(images: {name}) {{ changes {{ {FIELDS} error linked field }} next }} }}"
            async with graphql(server) as wire:
                await wire.init()
                await wire.subscribe(query)
                said.append(await wire.next())
        async with dial(server.url) as wire:
            await wire.init()
            for number, wish in enumerate(({"keys": ["x"]}, {"key_globs": ["x*"]}, {"changed": ["card"]})):
                said.append(await wire.fail(str(number), criteria=[wish], content="BODY"))
            said.append(await wire.fail("mask", mask={"card": {"rule": "HASH", "key": "short"}}))
        said += [fetch(server.health_url), fetch(server.health_url.replace("health", "statistics"))]
    text = json.dumps(said)
    assert "SECRET" not in text
    assert "SECRET" not in caplog.text
    assert "***1234" in text
    assert '"n": 1' in text


async def test_what_a_client_asks_for_cannot_widen_what_the_server_shows(log, dial, graphql):
    """F59: fields, masks and modes of a client only narrow."""
    log.commit([mutations(1)[0]])
    since = str(log.token(log.oldest))
    with serve(
        log,
        authorise=Grant(view=View.of(Content.BODY, Images.AFTER, fields=["n", "card"], mask={"card": "***"})),
    ) as server:
        wish = {"since": since, "content": "BODY"}
        for more, body in (
            ({}, {"card": "***", "n": 1}),
            ({"images": "ALL"}, {"card": "***", "n": 1}),
            ({"images": "CHANGE"}, {"card": "***", "n": 1}),
            ({"fields": ["customer", "card"]}, {"card": "***"}),
            ({"fields": ["customer"]}, {}),
            ({"mask": {"card": {"rule": "PARTIAL", "last": 1}}}, {"card": "****", "n": 1}),
            ({"mask": {"n": {"rule": "DROP"}}}, {"card": "***"}),
        ):
            _, event = await wire_events(dial, server, 2, **wish, **more)
            assert event["body"] == body
            assert "before" not in event
        _, event = await wire_events(dial, server, 2, since=since, images="ALL")
        assert "body" not in event
        _, event = await graphql_events(
            graphql, server, 2, since=since, images="ALL", fields=["card", "customer"]
        )
        assert (event["body"], event["before"]) == ({"card": "***"}, None)
    with serve(log, authorise=Grant(view=View())) as server:
        _, event = await wire_events(dial, server, 2, **wish)
        assert "body" not in event
        _, event = await graphql_events(graphql, server, 2, since=since)
        assert event["body"] is None


async def test_a_policy_tells_callers_apart(log, dial, graphql):
    """F59: by the token that came with the connection; on one publisher, and in neither direction mixed up."""
    log.commit([mutations(1)[0]])
    since = str(log.token(log.oldest))
    asked = []

    def authorise(principal: Principal, log: str, action: LogAction) -> Grant:
        asked.append((log, principal.name, action))
        if principal.name == "nobody":
            raise Forbidden("token", "one that may read this log")
        return Grant() if principal.name == "auditor" else Grant(view=WIDEST)

    with serve(log, authorise=authorise, authenticate=knowing()) as server:
        for token, card in (("auditor", NEW["card"]), ("t", "***1234"), ("auditor", NEW["card"])):
            async with dial(server.url) as wire, graphql(server) as other:
                await wire.init(token=token)
                await wire.subscribe(since=since, content="BODY", credits=2)
                assert (await wire.events(2))[1]["body"]["card"] == card
                await other.init(token=token)
                await other.subscribe(SUBSCRIBE, since=since)
                assert (await other.events(2))[1]["body"]["card"] == card
        async with dial(server.url) as wire, graphql(server) as other:
            await wire.init(token="nobody")
            assert (await wire.fail(content="BODY"))["code"] == "FORBIDDEN"
            await other.init(token="nobody")
            (error,) = await other.fail(SUBSCRIBE)
            assert error["extensions"]["code"] == "FORBIDDEN"
    assert set(asked) == {("shop", name, LogAction.READ) for name in ("auditor", "t", "nobody")}


async def test_refusals_are_told_on_both_protocols(log, dial, graphql):
    """F59."""
    with serve(log, authorise=Grant(view=WIDEST)) as server:
        async with dial(server.url) as wire, graphql(server) as other:
            await wire.init()
            payload = await wire.fail(criteria=[{"keys": ["SECRET-1"]}])
            assert (payload["code"], payload["path"], payload["retryable"]) == ("FORBIDDEN", "keys", False)
            assert "SECRET" not in payload["message"]
            await other.init()
            query = 'subscription { onChange(criteria: [{keys: ["SECRET-1"]}]) { key } }'
            (error,) = await other.fail(query)
            assert error["extensions"]["code"] == "FORBIDDEN"
            (error,) = await other.fail(SUBSCRIBE, fields=["a."])
            assert (error["extensions"]["code"], error["extensions"]["path"]) == (
                "INVALID_REQUEST",
                "fields[0]",
            )


RULES = ({"rule": "REDACT"}, {"rule": "DROP"}, {"rule": "PARTIAL"}, {"rule": "HASH", "key": KEY})
PATHS = ("card", "customer", "customer.name", "customer.zip", "n", "$key")


def a_wish(chance: random.Random) -> dict:
    fields = chance.sample(PATHS[:5], chance.randint(1, 3)) if chance.random() < 0.5 else None
    mask = {path: chance.choice(RULES) for path in chance.sample(PATHS, chance.randint(0, 3))} or None
    return {"images": chance.choice([*Images]).name, "fields": fields, "mask": mask}


def seen(change) -> dict:
    body, before = None if change.error else change.body, change.before
    changed = None if change.changed is None else list(change.changed)
    return {
        "key": change.key,
        "body": body,
        "before": before,
        "changed": changed,
        "lacking": list(change.lacking),
    }


def alone(number: int, wish: dict) -> list[dict]:
    """What a view shows of the changes of a commit, made of a block of its own."""
    rows = mutations(number)
    block = Block(
        columns_of(rows),
        version=number + 1,
        first_index=1,
        leads=True,
        ends=True,
        transaction_count=1 + len(rows),
        transaction_bytes=1,
        committed_at=1,
    )
    view = View.of(Content.BODY, Images[wish["images"]], fields=wish["fields"], mask=wish["mask"])
    return [seen(block.change(index, view)) for index in range(1, 1 + len(rows))]


def plain(events: list[dict]) -> list[dict]:
    """What of the events a view concerns, without TRANSACTION events."""
    empty = {"key": None, "body": None, "before": None, "changed": None, "lacking": []}
    return [{name: event.get(name, empty[name]) for name in empty} for event in events if event["index"]]


def asked(wish: dict) -> tuple[dict, dict]:
    """The same wish for both protocols."""
    given = {name: value for name, value in wish.items() if value is not None}
    rules = [{"path": path, **rule} for path, rule in (wish["mask"] or {}).items()]
    return given, given | ({"mask": rules} if rules else {})


@pytest.mark.parametrize("seed", range(6))
async def test_subscribers_of_one_publisher_never_see_the_bytes_of_another_view(log, dial, graphql, seed):
    """F59, E8: random views over both protocols at once, while the log is written and demand trickles in."""
    chance = random.Random(seed)
    wishes = [a_wish(chance) for _ in range(4)]
    commits, since = 4, str(log.token(log.head))
    count = 5 * commits
    expected = [[event for number in range(commits) for event in alone(number, wish)] for wish in wishes]
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(serve(log))
        wires, others = [], []
        for wish in wishes:
            given, variables = asked(wish)
            wire, other = await stack.enter_async_context(dial(server.url)), None
            await wire.init()
            await wire.subscribe(content="BODY", **given)
            wires.append(wire)
            other = await stack.enter_async_context(graphql(server))
            await other.init()
            await other.subscribe(SUBSCRIBE, **variables)
            await other.settled()
            others.append(other)
        assert len(log.statistics().publishers) == 1
        for number in range(commits):
            for wire in chance.sample(wires, chance.randint(0, len(wires))):
                await wire.send(type="request", id="a", n=chance.randint(1, 4))
            await asyncio.to_thread(log.commit, mutations(number))
        for wire, wanted in zip(wires, expected, strict=True):
            await wire.send(type="request", id="a", n=count)
            assert plain(await wire.events(count)) == wanted
        for other, wanted in zip(others, expected, strict=True):
            assert plain(await other.events(count)) == wanted
        # Once more from the history, out of blocks that all of them share.
        for wish, wanted in chance.sample(list(zip(wishes, expected, strict=True)), len(wishes)):
            given, variables = asked(wish)
            events = await wire_events(dial, server, count, since=since, content="BODY", **given)
            assert plain(events) == wanted
            assert plain(await graphql_events(graphql, server, count, since=since, **variables)) == wanted


async def test_equal_views_share_their_bytes(log, dial, graphql, monkeypatch):
    """F59, E8: whatever order the paths are given in, an event is encoded once for all who see it alike."""
    from transports.codec.events import EventEncoder

    log.commit(mutations(1))
    since = str(log.token(log.oldest))
    made: list[int] = []
    real = EventEncoder._encode
    monkeypatch.setattr(EventEncoder, "_encode", lambda *given: made.append(given[2]) or real(*given))
    with serve(log) as server:
        for fields in (["n", "card"], ["card", "n"], ["card", "n", "card.x"]):
            await wire_events(dial, server, 5, since=since, content="BODY", fields=fields)
            await graphql_events(graphql, server, 5, since=since, fields=fields)
        assert made == [0, 1, 2, 3, 4]
        assert graphql_of(server.application).engine.encodings == 5
        await wire_events(dial, server, 5, since=since, content="BODY", fields=["card"])
        await graphql_events(graphql, server, 5, since=since, fields=["card"])
        assert len(made) == graphql_of(server.application).engine.encodings == 10


@pytest.mark.parametrize(
    ("selection", "arguments", "content"),
    [
        ("key changed", "", Content.HEADER),
        ("key changed", '(images: ALL, fields: ["n"])', Content.HEADER),
        ("key before", "(images: ALL)", Content.BODY),
        ("key changed", "(images: CHANGE)", Content.BODY),
        ("key lacking", "(images: CHANGED_WITH_OLD)", Content.BODY),
        ("key meta", "(images: CHANGED_WITH_OLD)", Content.HEADER),
    ],
)
def test_bodies_are_read_exactly_if_the_selection_takes_them(engine, selection, arguments, content):
    """E57: the names of changed fields are found out by comparing bodies in two modes."""
    operation = engine.prepare(f"subscription {{ onChange{arguments} {{ {selection} }} }}")
    operation.open()
    assert operation.view.content is content


def test_no_body_is_touched_for_a_header_through_a_lens(engine, log, monkeypatch):
    """E8, E57: also if key, attachments and names are masked."""
    log.commit(mutations(1))
    monkeypatch.setattr(Block, "parsed", None)
    touched = []
    for name in ("body", "before"):
        real = getattr(Block, name)
        monkeypatch.setattr(
            Block, name, lambda self, index, real=real: touched.append(index) or real(self, index)
        )
    view = View.of(Content.HEADER, Images.CHANGE, fields=["n"], mask={"$key": "***"})
    assert [change.key for change in log.history(view=view).changes] == [None, *["***"] * 4]
    query = 'history(images: CHANGE, fields: ["n"]) { changes { key meta } }'
    assert engine.prepare(f"{{ {query} }}").run().errors is None
    assert touched == []


async def test_the_python_client_asks_in_the_words_of_the_log(log, serving):
    """F7, F59: the same arguments give the same changes, here and there, with what is lacking."""
    log.commit(mutations(0)[:2])
    view = {"images": Images.CHANGED_WITH_OLD, "fields": ["n", "customer"], "mask": {"customer.name": Drop()}}
    async with connect(serving().url) as remote:
        feed = remote.changes(since="earliest", until=1, content=Content.BODY, **view)
        async with flow.aiter(feed) as changes:
            found = [change async for change in changes]
    assert tuple(found) == log.history(content=Content.BODY, **view).changes
    assert [change.lacking for change in found] == [(), (), ("before",)]
    assert found[2].body == {"customer": {"zip": "SECRET zip"}}


async def test_a_view_of_an_operation_is_that_of_a_source_under_other_servers(engine, log):
    """F59: graphql-core can iterate the source itself; it is given the narrowed view."""
    log.commit(mutations(0)[:1])
    query = (
        'subscription { onChange(fields: ["n"], mask: [{path: "$key"}], since: "%s", until: 1) { key body } }'
    )
    source = engine.prepare(query % str(log.token(log.oldest))).open()
    assert [(event.key, event.body) async for event in source] == [(None, ANY), ("***", b'{"n":1}')]


async def test_statistics_do_not_tell_one_client_what_another_asked_about(log, dial):
    """F59: who may see everything filters by values that others may not see."""
    where = [{"path": ["card"], "compare": "EQ", "value": "4111-SECRET"}]
    wish = {"keys": ["SECRET-1"], "where": where, "changed": ["SECRET"], "areas": ["DATA"]}
    for view, told in ((WIDEST, False), (None, True)):
        both = {LogAction.READ, LogAction.OPERATE}

        def authorise(principal, _log, _action, widest=view, both=both):
            return Grant(both, None if principal.name == "auditor" else widest)

        with serve(
            log,
            authorise=None if view is None else authorise,
            authenticate=lambda given: Principal(given.token or "any"),
        ) as server:
            async with dial(server.url) as wire:
                await wire.init(token="auditor")
                await wire.subscribe(criteria=[wish])
                text = fetch(server.health_url.replace("health", "statistics"))
        assert ("SECRET" in text) is told
        assert '"areas":["DATA"]' in text


async def test_names_of_logs_reach_no_caller_whom_the_policy_refuses(tmp_path, dial, graphql):
    """F59: neither by /health, nor in the error about another name; what nobody has judged is no token."""
    seen = []

    def authorise(principal: Principal, log: str, _action: LogAction) -> Grant:
        seen.append(principal)
        if log == "secret":
            raise Forbidden("token", "one that may read this log")
        return Grant()

    with ChangeStore.open(tmp_path / "store", sync="os", fill_step=65_536) as store:
        for name in ("open", "secret"):
            store.create(name)
        with serve(store, authorise=authorise) as server:
            assert list(json.loads(fetch(server.health_url))["logs"]) == ["open"]
            async with dial(server.url) as wire, graphql(server) as other:
                await wire.init(token="claimed")
                told = await wire.fail(log="none")
                assert "open" in told["message"]
                assert "secret" not in json.dumps(told)
                await other.init(token="claimed")
                (error,) = await other.fail('subscription { onChange(log: "none") { key } }')
                assert "secret" not in json.dumps(error)
    assert set(seen) == {ANONYMOUS}

"""Two principals who want the same and may see different changes never get a byte of each other's, whatever they ask."""

import asyncio
import json
import random
import urllib.error
import urllib.request

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from publishers import Area, Content, Criteria, Criterion, Drop, View
from publishers.mutations.mutation import rekey, remove, schema, upsert
from tests.harness.scale import scaled
from tests.transports.principals import knowing
from transports import Forbidden, Grant, LogAction, serve

TENANTS = ("a", "b")


def above(image):
    return isinstance(image, dict) and image.get("n", 0) >= 3


GRANTS = {
    "keys": lambda tenant: [Criterion(key_globs=[f"{tenant}-*"])],
    "types": lambda tenant: [Criterion(entity_types=[f"thing-SECRET-{tenant}"])],
    "values": lambda tenant: [
        Criterion(where=[f"tenant == {tenant}"]),
        Criterion(where=[f"before:tenant == {tenant}"], operations=["REMOVE"]),
    ],
}
WISHES = {
    "everything": (None, lambda one: True),
    "keys of the other kind": ([{"key_globs": ["*-1"]}], lambda one: (one.key or "").endswith("-1")),
    "transactions too": (
        [{"areas": ["INFRASTRUCTURE"]}, {"areas": ["DATA"]}],
        lambda one: one.area is Area.DATA,
    ),
    "one of each": (
        [{"keys": ["a-SECRET-a-2", "b-SECRET-b-2"]}],
        lambda one: one.key in ("a-SECRET-a-2", "b-SECRET-b-2"),
    ),
    "values": (
        [{"where": [{"path": ["n"], "compare": "GE", "value": 3}], "transitions": ["ENTERED"]}],
        lambda one: above(one.body) and not above(one.before),
    ),
}


SHOWN = "version index count area operation entityType key body before changed linked meta cursor"


def granted(kind, tenant, one):
    """By hand: whether a change is that of a tenant."""
    if one.area is Area.INFRASTRUCTURE:
        return False
    match kind:
        case "keys":
            return (one.key or "").startswith(f"{tenant}-")
        case "types":
            return one.entity_type == f"thing-SECRET-{tenant}"
    image = one.before if one.operation.name == "REMOVE" else one.body
    return isinstance(image, dict) and image.get("tenant") == tenant


def authorising(kind):
    def authorise(principal, log, action):
        if log != "shop":
            raise Forbidden("log", "one of yours")
        return Grant({LogAction.READ, LogAction.OPERATE}, criteria=Criteria.of(GRANTS[kind](principal.name)))

    return authorise


def body(tenant, number):
    return {"tenant": tenant, "n": number, "note": f"SECRET-{tenant}"}


def fill_both(log, seed):
    """Transactions of both, mixed; every key, type and value names its tenant."""
    draw = random.Random(seed)
    for tenant in TENANTS:
        log.commit([schema(f"thing-SECRET-{tenant}", {"title": f"SECRET-{tenant}"})])
    for _ in range(30):
        changes = []
        for _ in range(draw.randrange(1, 6)):
            tenant, number = draw.choice(TENANTS), draw.randrange(5)
            entity = draw.choice(["order", f"thing-SECRET-{tenant}"]), f"{tenant}-SECRET-{tenant}-{number}"
            before = body(tenant, draw.randrange(5))
            if draw.random() < 0.2:
                changes.append(remove(*entity, before=before))
            else:
                changes.append(upsert(*entity, body(tenant, draw.randrange(6)), before=before, changed=["n"]))
        log.commit(changes, meta={"by": "SECRET-log"})
    moved = rekey("order", "a-SECRET-a-1", "b-SECRET-b-1", body("b", 1))
    return log.commit(list(moved) if isinstance(moved, (list, tuple)) else [moved]).version


def fetch(server, path, token, data=None):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(server.health_url.replace("/health", path), data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def spelled(wishes):
    """The wishes as a variable of GraphQL."""
    if wishes is None:
        return None
    names = {"key_globs": "keyGlobs", "entity_types": "entityTypes"}
    found = [{names.get(name, name): value for name, value in one.items()} for one in wishes]
    for one in found:
        if "where" in one:
            one["where"] = [{**each, "path": ".".join(each["path"])} for each in one["where"]]
    return found


async def from_socket(dial, server, tenant, wishes, last):
    """All that our own protocol sends for a wish, as text; and its events."""
    texts, events = [], []
    async with dial(server.url) as wire:
        await wire.init(token=tenant)
        wish = {} if wishes is None else {"criteria": wishes}
        options = {"start": "earliest", "until": last, "credits": 1000, "content": "BODY"}
        await wire.send(type="subscribe", id="a", payload={"criteria": []} | wish | options)
        while True:
            message = await wire.receive()
            texts.append(json.dumps(message))
            events += message.get("events", ())
            if message["type"] in ("complete", "error"):
                return "".join(texts), [(one["version"], one["index"], one["count"]) for one in events]


async def from_graphql(graphql, server, tenant, wishes, last):
    """Likewise of GraphQL over a WebSocket."""
    texts, events = [], []
    query = (
        "subscription ($criteria: [Criterion!], $until: Long) "
        "{ onChange(criteria: $criteria, start: {place: EARLIEST}, until: $until) { SHOWN } }".replace(
            "SHOWN", SHOWN
        )
    )
    async with graphql(server) as wire:
        await wire.init(token=tenant)
        await wire.subscribe(query, criteria=spelled(wishes), until=str(last))
        while True:
            message = await wire.receive()
            texts.append(json.dumps(message))
            if message["type"] == "ping":
                await wire.send(type="pong", payload=message["payload"])
            elif message["type"] == "next":
                events.append(message["payload"]["data"]["onChange"])
            else:
                assert message["type"] == "complete", message
                return "".join(texts), [(int(one["version"]), one["index"], one["count"]) for one in events]


def from_history(server, tenant, wishes):
    """Likewise of GraphQL over HTTP, page by page, forward and back."""
    text, events = "", []
    query = (
        "query ($criteria: [Criterion!], $reverse: Boolean!) "
        "{ history(criteria: $criteria, limit: 500, reverse: $reverse) { changes { SHOWN } hasNext next } }".replace(
            "SHOWN", SHOWN
        )
    )
    for reverse in (False, True):
        asked = {"query": query, "variables": {"criteria": spelled(wishes), "reverse": reverse}}
        told = fetch(server, "/graphql", tenant, json.dumps(asked).encode())
        text += told
        assert "errors" not in json.loads(told), told
        changes = json.loads(told)["data"]["history"]["changes"]
        events.append([(int(one["version"]), one["index"], one["count"]) for one in changes])
    assert sorted(events[1]) == events[0]
    return text, events[0]


@pytest.mark.parametrize("kind", GRANTS)
@pytest.mark.parametrize("wish", WISHES)
async def test_two_tenants_who_want_the_same_share_no_byte(log, dial, graphql, kind, wish):
    """F140: each gets exactly its own, over every transport, from the ring and from the log, and nothing that tells of more."""
    wishes, wanted = WISHES[wish]
    with serve(log, authenticate=knowing(*TENANTS), authorise=authorising(kind)) as server:
        for seed in range(scaled(1)):
            last = fill_both(log, seed)
            changes = log.history(limit=10_000, content=Content.BODY).changes
            found = await asyncio.gather(
                *(from_socket(dial, server, tenant, wishes, last) for tenant in TENANTS),
                *(from_graphql(graphql, server, tenant, wishes, last) for tenant in TENANTS),
                *(asyncio.to_thread(from_history, server, tenant, wishes) for tenant in TENANTS),
            )
            for number, (text, events) in enumerate(found):
                tenant, other = TENANTS[number % 2], TENANTS[1 - number % 2]
                assert f"SECRET-{other}" not in text
                assert "SECRET-log" not in text
                assert events == [
                    (one.version, one.index, min(one.index + 2, one.count))
                    for one in changes
                    if granted(kind, tenant, one) and wanted(one)
                ]
            assert any(events for _, events in found)


@pytest.mark.parametrize("kind", GRANTS)
async def test_what_a_server_tells_of_itself_tells_no_tenant_of_another(log, dial, kind):
    """F140: statistics, health, schemas and errors; also while another one subscribes."""
    fill_both(log, 1)
    with serve(log, authenticate=knowing(*TENANTS), authorise=authorising(kind)) as server:
        async with dial(server.url) as wire:
            await wire.init(token="b")
            await wire.subscribe(criteria=[{"keys": ["b-SECRET-b-1"], "entity_types": ["thing-SECRET-b"]}])
            paths = (
                "/statistics",
                "/metrics",
                "/health",
                "/ready",
                "/schemas",
                "/schemas?entity_type=thing-SECRET-a",
            )
            told = {path: await asyncio.to_thread(fetch, server, path, "a") for path in paths}
            query = (
                '{ logs { name head } schemas { entityType } schema(entityType: "thing-SECRET-a") { parts } }'
            )
            data = json.dumps({"query": query.replace(" { parts }", " { version }")}).encode()
            told["graphql"] = await asyncio.to_thread(fetch, server, "/graphql", "a", data)
            assert "SECRET-b" not in json.dumps(told)
            assert 'log="shop"' not in told["/metrics"]
            logs = json.loads(told["/statistics"])
            assert list(logs) == ["logs"]
            assert set(logs["logs"]["shop"]) == {"epoch", "oldest", "head"}
            health = json.loads(told["/health"])
            assert set(health) == {"status", "server", "logs"}
            assert set(health["logs"]["shop"]) == {"status", "epoch", "oldest", "head"}
            assert ("thing-SECRET-a" in told["/schemas"]) is (kind == "types")
            assert ("SECRET-a" in json.dumps(json.loads(told["graphql"])["data"]["schemas"])) is (
                kind == "types"
            )
            hidden = json.loads(
                await asyncio.to_thread(fetch, server, "/schemas?entity_type=thing-SECRET-b", "a")
            )
            unknown = json.loads(await asyncio.to_thread(fetch, server, "/schemas?entity_type=none", "a"))
            assert hidden == {"error": unknown["error"].replace("none", "thing-SECRET-b")}


POSSIBLE = st.fixed_dictionaries(
    {},
    optional={
        "keys": st.lists(
            st.builds("{0}-SECRET-{0}-{1}".format, st.sampled_from(TENANTS), st.integers(0, 4)),
            min_size=1,
            max_size=3,
            unique=True,
        ),
        "key_globs": st.lists(
            st.sampled_from(["*", "a-*", "*-SECRET-b-*", "?-*-1"]), min_size=1, max_size=2, unique=True
        ),
        "entity_types": st.lists(
            st.sampled_from(["order", "thing-SECRET-a", "thing-SECRET-b", "none"]),
            min_size=1,
            max_size=3,
            unique=True,
        ),
        "operations": st.lists(st.sampled_from(["UPSERT", "REMOVE"]), min_size=1, max_size=2, unique=True),
        "areas": st.just(["DATA"]),
        "where": st.lists(
            st.sampled_from(
                [
                    {"path": ["n"], "compare": "GE", "value": 3},
                    {"path": ["note"], "compare": "EQ", "value": "SECRET-b"},
                    {"path": ["tenant"], "compare": "EQ", "value": "a"},
                ]
            ),
            min_size=1,
            max_size=2,
            unique_by=str,
        ),
    },
)
"""A criterion over what both tenants have, also over what only the other one has."""


async def refused(dial, server, tenant):
    """All that is said to a tenant that writes, which it may not, over each transport, as text."""
    changes = [{"entity_type": "order", "key": "mine", "body": {}}]
    told = [
        await asyncio.to_thread(fetch, server, "/changes", tenant, json.dumps({"changes": changes}).encode())
    ]
    query = 'mutation { append(changes: [{entityType: "order", key: "mine", body: "{}"}]) { version } }'
    told.append(
        await asyncio.to_thread(fetch, server, "/graphql", tenant, json.dumps({"query": query}).encode())
    )
    async with dial(server.url) as wire:
        await wire.init(token=tenant)
        await wire.send(type="append", id="w", payload={"changes": changes})
        told.append(str(await wire.receive()))
        await wire.send(type="begin", id="t")
        told.append(str(await wire.receive()))
    assert all("FORBIDDEN" in one for one in told), told
    return "".join(told)


@given(st.sampled_from(sorted(GRANTS)), st.lists(POSSIBLE, max_size=3, unique_by=str))
@settings(max_examples=scaled(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_two_tenants_wish_they_share_no_byte(two_tenants, dial, graphql, kind, wishes):
    """F140: drawn wishes, of each what a comparison by hand leaves to it; statuses, errors and metrics too."""
    server, log, last, rights = two_tenants
    rights["kind"] = kind

    async def ask():
        return await asyncio.gather(
            *(from_socket(dial, server, tenant, wishes or None, last) for tenant in TENANTS),
            *(from_graphql(graphql, server, tenant, wishes or None, last) for tenant in TENANTS),
            *(asyncio.to_thread(from_history, server, tenant, wishes or None) for tenant in TENANTS),
            *(refused(dial, server, tenant) for tenant in TENANTS),
            *(asyncio.to_thread(fetch, server, path, tenant) for path in PATHS for tenant in TENANTS),
        )

    found = asyncio.run(ask())
    criteria = Criteria.from_json(wishes or [{}])
    wanted = log.history(criteria, limit=10_000, content=Content.BODY).changes
    for number, told in enumerate(found):
        tenant, other = TENANTS[number % 2], TENANTS[1 - number % 2]
        text, events = told if isinstance(told, tuple) else (told, None)
        assert f"SECRET-{other}" not in text
        assert "SECRET-log" not in text
        if events is not None:
            assert events == [
                (one.version, one.index, min(one.index + 2, one.count))
                for one in wanted
                if granted(kind, tenant, one)
            ]


PATHS = ("/statistics", "/metrics", "/health", "/ready", "/schemas", "/schemas?entity_type=none")


@pytest.fixture
def two_tenants(log):
    """A server, its log, the last version, and what the kind of the grants is now."""
    rights = {"kind": "keys"}

    def authorise(principal, name, action):
        return authorising(rights["kind"])(principal, name, action)

    last = fill_both(log, 3)
    with serve(log, authenticate=knowing(*TENANTS), authorise=authorise) as server:
        yield server, log, last, rights


async def test_views_of_two_principals_with_equal_wishes_never_mix(log, dial, graphql):
    """F140, F59: on one publisher; who may see less gets nothing of what was encoded for the other one."""
    last = fill_both(log, 2)

    def authorise(principal, _log, _action):
        return Grant(
            view=View.of(Content.BODY, mask={"note": Drop(), "$key": "***"})
            if principal.name == "b"
            else None
        )

    with serve(log, authenticate=knowing(*TENANTS), authorise=authorise) as server:
        for _ in range(2):
            found = await asyncio.gather(
                *(from_socket(dial, server, tenant, [{"areas": ["DATA"]}], last) for tenant in TENANTS),
                *(from_graphql(graphql, server, tenant, [{"areas": ["DATA"]}], last) for tenant in TENANTS),
            )
            assert [('"note"' in text, '"key": "***"' in text) for text, _ in found] == [
                (True, False),
                (False, True),
            ] * 2
            assert len({tuple(events) for _, events in found}) == 1


async def test_a_transaction_event_tells_its_size_to_nobody_who_may_not_see_all_of_it(log, dial):
    """F140: with INFRASTRUCTURE in the grant it comes, with its id and annotations, but neither count nor bytes."""
    last = log.commit(
        [upsert("order", f"{tenant}-1", {}) for tenant in ("a", "b", "b")], meta={"by": "ann"}
    ).version
    wishes = [Criterion(areas=[Area.INFRASTRUCTURE]), Criterion(key_globs=["a-*"])]
    with serve(log, authorise=Grant(criteria=Criteria.of(wishes))) as server:
        async with dial(server.url) as wire:
            await wire.init()
            await wire.subscribe(start="earliest", until=last, credits=10, content="BODY")
            head, one = await wire.events(2)
            assert (head["operation"], head["count"], list(head["body"])) == ("TRANSACTION", 2, ["id"])
            assert head["meta"] == {"by": "ann"}
            assert (one["key"], one["index"], one["count"]) == ("a-1", 1, 3)

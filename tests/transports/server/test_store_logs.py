"""A served store: its logs by name over both protocols, as they come and go, and what becomes of them."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from publishers import Area, ChangeStore, Criterion, upsert
from tests.transports.server.test_status import fetch
from transports import Limits, serve
from transports.client.remote_log import connect
from transports.server.logs import StoreLogs

QUICK = {"sync": "os", "fill_step": 65_536}
ORDERS = """subscription ($log: String, $criteria: [Criterion!], $since: Cursor) {
  onChange(log: $log, criteria: $criteria, since: $since) { version index area operation key meta }
}"""


@pytest.fixture
def store(tmp_path):
    with ChangeStore.open(tmp_path / "shop", **QUICK) as store:
        yield store


@pytest.fixture
def served(store):
    store.create("orders")
    store.create("users")
    with serve(store, limits=Limits()) as server:
        yield server


def schema_change(version):
    """A change of area SCHEMA, as a writer of schemas makes it."""
    return msgspec.structs.replace(upsert("order", "entity", {"version": version}), area=int(Area.SCHEMA))


def seen(events):
    return [(event["area"], event["operation"], event.get("key")) for event in events]


# Each subscription of E58, over each protocol: what is asked for, what happens, and what comes.

WHOLE = (
    "orders",
    [{}],
    [("INFRASTRUCTURE", "TRANSACTION", None), ("DATA", "UPSERT", "1"), ("DATA", "UPSERT", "2")],
)
ONE_TYPE = ("orders", [{"entity_types": ["order"], "areas": ["DATA"]}], [("DATA", "UPSERT", "1")])
SCHEMA = ("orders", [{"areas": ["SCHEMA"]}], [("SCHEMA", "UPSERT", "entity")])
SYSTEM = ("$system", None, [("INFRASTRUCTURE", "TRANSACTION", None), ("ENGINE", "UPSERT", "more")])
HOSTED = (
    "$system",
    [{"areas": ["ENGINE", "HOST"]}],
    [("ENGINE", "UPSERT", "more"), ("HOST", "UPSERT", "more")],
)
KINDS = pytest.mark.parametrize(
    ("log", "criteria", "expected"),
    [WHOLE, ONE_TYPE, SCHEMA, SYSTEM, HOSTED],
    ids=["whole log", "one entity type", "schema changes", "system log", "events of the process"],
)


def happen(store):
    store["users"].commit([upsert("order", "0", {})])
    store["orders"].commit([upsert("order", "1", {}), upsert("item", "2", {})])
    store["orders"].commit([schema_change(2)])
    store.create("more")


@KINDS
async def test_websocket_subscriptions_of_every_kind(store, served, dial, log, criteria, expected):
    """E58, E14, E51."""
    async with dial(served.url) as wire:
        await wire.init()
        told = await wire.subscribe(log=log, criteria=criteria, credits=len(expected), content="BODY")
        assert told["log"] == log
        happen(store)
        assert seen(await wire.events(len(expected))) == expected


@KINDS
async def test_graphql_subscriptions_of_every_kind(store, served, graphql, log, criteria, expected):
    """E58, E14, E51."""
    wishes = criteria and [{_camel(name): value for name, value in wish.items()} for wish in criteria]
    async with graphql(served) as wire:
        await wire.init()
        await wire.subscribe(ORDERS, log=log, criteria=wishes)
        await wire.settled()
        happen(store)
        assert seen(await wire.events(len(expected))) == expected


def _camel(name):
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


async def test_history_of_the_system_log_is_read_under_its_reserved_name(store, served, graphql, dial):
    """E58: by GraphQL as a page, by the other protocol from the earliest place."""
    query = 'query ($criteria: [Criterion!]) { history(log: "$system", criteria: $criteria) { changes { key } } logs { name } }'
    async with graphql(served) as wire:
        await wire.init()
        await wire.subscribe(query)
        data = await wire.next()
        assert [change["key"] for change in data["history"]["changes"]] == [None, "orders", None, "users"]
        assert [log["name"] for log in data["logs"]] == ["orders", "users"], "it is not one of the logs"
        await wire.receive()
        await wire.subscribe(query, "b", criteria=[])
        assert (await wire.next("b"))["history"]["changes"] == []
    async with dial(served.url) as wire:
        await wire.init()
        await wire.subscribe(log="$system", criteria=None, start="earliest", credits=4)
        events = await wire.events(4)
        assert events[1]["meta"] == {"event": "CREATED"}
        told = await wire.subscribe("b", log="$system", criteria=[], start="earliest", credits=4)
        assert told["log"] == "$system"
        await wire.send(type="ping")
        await wire.expect("pong")  # and nothing but checkpoints before it


async def test_a_drop_is_told_once_to_everybody_on_every_transport(store, served, graphql, dial):
    """E45, D14, E50: those of other logs go on, and whoever comes later hears that there is none."""
    async with dial(served.url) as wire, graphql(served) as other:
        await wire.init()
        await other.init()
        for name, credits_ in (("a", 0), ("b", 9)):
            await wire.subscribe(name, log="orders", credits=credits_)
        await wire.subscribe("c", log="users", credits=9)
        await other.subscribe(ORDERS, "a", log="orders")
        await other.subscribe(ORDERS, "c", log="users")
        await other.settled()
        store.drop("orders")
        ends = [await wire.expect("error"), await wire.expect("error")]
        assert {end["id"] for end in ends} == {"a", "b"}
        assert {(end["payload"]["code"], end["payload"]["log"]) for end in ends} == {
            ("LOG_DROPPED", "orders")
        }
        end = await other.receive()
        assert (end["type"], end["id"]) == ("error", "a")
        assert end["payload"][0]["extensions"] == {"code": "LOG_DROPPED", "retryable": False, "log": "orders"}
        store["users"].commit([upsert("user", "1", {})])
        assert len(await wire.events(2, "c")) == 2
        assert len(await other.events(2, "c")) == 2
        assert (await wire.fail("d", log="orders"))["code"] == "LOG_NOT_FOUND"
        errors = await other.fail(ORDERS, "d", log="orders")
        assert errors[0]["extensions"]["code"] == "LOG_NOT_FOUND"
        await wire.nothing_comes()
        await other.nothing_comes()


async def test_the_python_client_follows_the_system_log(store, served, until):
    """E58, E45: with no criteria everything that is stored; a drop is an error that says so."""
    async with connect(served.url) as remote:
        plain, hosted, dropped = Heard(), Heard(), Heard()
        remote.changes(log="$system", since=None).subscribe(plain)
        remote.changes(Criterion(areas={Area.HOST}), log="$system").subscribe(hosted)
        remote.changes(log="users").subscribe(dropped)
        async with asyncio.timeout(60):
            for heard in (plain, hosted, dropped):
                await heard.ready.wait()
            await until(lambda: len(store.system.statistics().subscriptions) == 2)
            await until(lambda: store["users"].statistics().subscriptions)
            await asyncio.to_thread(store.create, "more")
            await asyncio.to_thread(store.drop, "users")
            await dropped.ended.wait()
        await until(lambda: len(plain.changes) == 4 and len(hosted.changes) == 2)
        assert [change.key for change in plain.changes] == [None, "more", None, "users"]
        assert [(change.area, change.key, change.meta["event"]) for change in hosted.changes] == [
            (Area.HOST, "more", "OPENED"),
            (Area.HOST, "users", "CLOSED"),
        ]
        assert dropped.error.code == "LOG_DROPPED"
        assert not dropped.error.retryable


class Heard:
    """A subscriber that takes everything."""

    def __init__(self):
        self.changes, self.error = [], None
        self.ready, self.ended = asyncio.Event(), asyncio.Event()

    def on_subscribe(self, subscription):
        subscription.request(1000)
        self.ready.set()

    def on_next(self, change):
        self.changes.append(change)

    def on_error(self, error):
        self.error = error
        self.ended.set()

    def on_complete(self):
        self.ended.set()


async def test_a_renamed_log_goes_on_for_those_who_have_it_and_is_found_under_its_new_name(
    store, served, dial
):
    async with dial(served.url) as wire:
        await wire.init()
        await wire.subscribe(log="orders", credits=9)
        store.rename("orders", "sales")
        store["sales"].commit([upsert("order", "1", {})])
        assert len(await wire.events(2)) == 2
        await wire.subscribe("b", log="sales")
        failed = await wire.fail("c", log="orders")
        assert failed["message"] == "log is 'orders', but must be one of: sales, users"


async def test_logs_that_come_and_go_are_served_by_a_follower_too(store, tmp_path, dial, until):
    """F50, E45: the owner may be another process."""
    store.create("orders")
    with (
        ChangeStore.open(tmp_path / "shop", read_only=True, tail_poll=0.001) as other,
        serve(other) as server,
    ):
        async with dial(server.url) as wire:
            await wire.init()
            await wire.subscribe(credits=9, log="orders")
            store.create("users").commit([upsert("user", "1", {})])
            await until(lambda: "users" in other.opened())
            await wire.subscribe("b", log="users", start="earliest", credits=2)
            assert len(await wire.events(2, "b")) == 2
            store.drop("orders")
            assert (await wire.expect("error"))["payload"]["code"] == "LOG_DROPPED"
            await until(lambda: "orders" not in other.opened())
            assert (await wire.fail("c", log="orders"))["code"] == "LOG_NOT_FOUND"


async def test_logs_with_equal_criteria_do_not_mix_on_one_connection(store, served, dial):
    """E13."""
    async with dial(served.url) as wire:
        await wire.init()
        for name in ("orders", "users"):
            await wire.subscribe(name, log=name, criteria=[{"entity_types": ["x"]}], credits=9)
        store["orders"].commit([upsert("x", "1", {})])
        assert [event["key"] for event in await wire.events(1, "orders")] == ["1"]
        store["users"].commit([upsert("x", "2", {})])
        assert [event["key"] for event in await wire.events(1, "users")] == ["2"]
        await wire.nothing_comes()


async def test_a_log_without_publishing_is_refused_on_every_transport(store, graphql, dial):
    """E49."""
    store.create("quiet", publish=False)
    with serve(store) as server:
        async with dial(server.url) as wire, graphql(server) as other:
            await wire.init()
            assert (await wire.fail(log="quiet"))["code"] == "PUBLISHING_OFF"
            await other.init()
            errors = await other.fail(ORDERS, log="quiet")
            assert errors[0]["extensions"]["code"] == "PUBLISHING_OFF"


def test_a_log_that_cannot_be_opened_is_left_out_and_the_others_are_served(tmp_path):
    with ChangeStore.open(tmp_path / "shop", **QUICK) as store:
        broken = store.create("broken").path
        store.create("whole")
    for path in filter(Path.is_file, broken.iterdir()):
        path.write_bytes(b"")
    with ChangeStore.open(tmp_path / "shop", **QUICK) as store:
        logs = StoreLogs(store)
        assert list(logs) == ["whole"] == [name for name, _ in logs.items()]
        assert logs["$system"] is store.system
        assert logs.get("broken") is None
        assert len(logs) == 1
        with serve(store) as server:
            status, told = asyncio.run(fetch(server, "/health"))
        assert (status, told["status"], told["logs"].keys()) == (503, "degraded", {"whole", "broken"})
        assert told["logs"]["broken"]["status"] == "corrupt"
        assert str(tmp_path) not in str(told)

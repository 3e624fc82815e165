"""Two entity types never share an index, a table or the keys of a cache, whatever their names: over restarts too."""

import sqlite3

import pytest
import redis

from penstock_cdc.errors import InvalidOption
from publishers import remove, truncate, upsert
from tests.transports.sinks.targets import rigged
from tests.transports.sinks.test_cache import URL, Server
from tests.transports.sinks.test_search import engine  # noqa: F401 - a fixture
from transports.sinks import SinkState
from transports.sinks.cache import CacheSink
from transports.sinks.search import SearchSink
from transports.sinks.sql import SqlSink
from transports.sinks.sql_table import SqlTable


@pytest.fixture
def server(monkeypatch):
    made = Server()
    monkeypatch.setattr(redis.Redis, "from_url", lambda url, **options: made)
    return made


# Of each target: how the sink is made, the entity type that it holds, and one that it must not get beside it; None for one that it may.
INDICES = [
    ("shop", "order", "customer"),
    ("shop-{entity_type}", "Order", "order"),
    ("{entity_type}", "order", "ORDER"),
    ("{entity_type}", "order", None),
]
TABLES = [
    (None, "Order", "order"),
    ({"order": "t", "customer": "T"}, "order", "customer"),
    ({"order": "t", "customer": SqlTable(name="t", schema="main")}, "customer", "order"),
    (None, "order", None),
]
TEMPLATES = [
    ("{key}", "order", "customer"),
    ("shop:{key}", "order", "customer"),
    ("{entity_type}:{key}", "order", "order:item"),
    ("{entity_type}:{key}", "order:item", "order"),
    ("{entity_type}::{key}", "order", "order:"),
    ("{entity_type}{key}", "a", "ab"),
    ("{key}.{entity_type}", "order", "item.order"),
    ("{entity_type}:{key}", "order", None),
    ("{key}.{entity_type}", "order", None),
]
CASES = [("search", *one) for one in INDICES] + [("sql", *one) for one in TABLES]
CASES += [("cache", *one) for one in TEMPLATES]
STRANGER = "bill"


@pytest.fixture
def made(tmp_path, request):
    """Makes a sink, and tells which keys its target holds."""

    def make(target, argument):
        if target == "search":
            node = request.getfixturevalue("engine")
            node.plan = []
            lines = node.lines
            sink = SearchSink(f"http://127.0.0.1:{node.server_address[1]}", argument)
            return sink, lambda: {one["index"]["_id"] for one in lines if "index" in one}
        if target == "cache":
            cache = request.getfixturevalue("server")
            return CacheSink(URL, argument, values=True), lambda: {body for body, _ in cache.keys.values()}
        path = tmp_path / "target.db"

        def rows():
            with sqlite3.connect(path) as base:
                names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'penstock%'"
                tables = [name for (name,) in base.execute(names)]
                return {key for name in tables for (key,) in base.execute(f'SELECT key FROM "{name}"')}

        return SqlSink(f"sqlite:///{path}", argument, create_tables=True), rows

    return make


@pytest.mark.parametrize("on_reject", ["pause", "drop"])
@pytest.mark.parametrize(("target", "argument", "kind", "other"), CASES)
def test_what_would_be_in_the_place_of_another_entity_type_is_refused(
    made, tmp_path, target, argument, kind, other, on_reject
):
    """F105, F106, F110."""
    sink, held = made(target, argument)
    with rigged(tmp_path / "log", sink, on_reject=on_reject) as rig:
        rig.log.commit([upsert(kind, "1", {"n": 1})])
        rig.drained()
        before = held()
        assert len(before) == 1
        rig.again()  # what was sent before a restart counts too
        changes = [
            upsert(other or STRANGER, "2", {"n": 2}),
            remove(other or STRANGER, "1"),
            truncate(other or STRANGER),
        ]
        for change in changes if other else changes[:1]:
            rig.log.commit([change])
            if other is None or on_reject == "drop":
                rig.drained()
            else:
                rig.until(lambda: rig.runner.state is SinkState.PAUSED)
                reason = rig.runner.statistics().reason
                assert repr(other) in reason
                assert repr(kind) in reason
                assert "{entity_type}" in reason
                rig.again()
                rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        if other is None:
            assert len(held()) == 2
            return
        assert held() == before
        if on_reject == "drop":
            assert rig.runner.counters.dropped == 3
            rig.log.commit([upsert(kind, "3", {"n": 3})])
            rig.drained()
            assert len(held()) == 2


def test_a_truncation_never_deletes_the_keys_of_others(server, tmp_path):
    """F137, F110: a template that is that of any key of the database tells no keys of an entity type."""
    server.keys = {b"foreign": 1}
    with rigged(tmp_path / "log", CacheSink(URL, "{key}"), on_reject="drop") as rig:
        rig.log.commit([upsert("order", "1", {}), truncate("order"), upsert("order", "2", {})])
        rig.drained()
        assert server.keys == {b"foreign": 1}
        assert rig.runner.counters.dropped == 1
        assert rig.runner.counters.changes == 3  # and the TRANSACTION event


def test_one_table_for_two_entity_types_is_no_option():
    with pytest.raises(InvalidOption, match="a table of its own for each of order and customer"):
        SqlSink("sqlite:///x.db", {"order": "t", "customer": "t"})
    SqlSink("sqlite:///x.db", {"order": "t", "customer": SqlTable(name="t", schema="archive")})


def test_what_a_target_of_the_past_holds_is_forgotten(made, tmp_path):
    """A sink that sends elsewhere, or that was dropped, begins anew."""
    sink, _ = made("cache", "a:{key}")
    with rigged(tmp_path / "log", sink) as rig:
        rig.log.commit([upsert("order", "1", {})])
        rig.drained()
        rig.target = CacheSink("redis://other.example", "a:{key}")
        rig.again()
        rig.log.commit([upsert("customer", "1", {})])
        rig.drained()
        assert rig.runner.counters.rejected == 0


@pytest.mark.parametrize("values", [True, False])
def test_no_entity_has_the_key_of_a_place_and_no_truncation_deletes_places(server, tmp_path, values):
    """F110: those of other sinks too."""
    place = b"penstock:place:log:other"
    server.keys = {place: 1}
    sink = CacheSink(URL, "{entity_type}:{key}", values=values)
    with rigged(tmp_path / "log", sink, on_reject="drop") as rig:
        rig.log.commit([upsert("penstock", "1", {}), upsert("penstock", "place:log:other", {})])
        rig.log.commit(
            [truncate("penstock"), remove("penstock", "place:log:other"), upsert("penstock", "2", {})]
        )
        rig.drained()
        assert server.keys.keys() - {b"penstock:2"} == {place}
        assert server.keys[place] == 1
        assert (rig.runner.counters.dropped, rig.runner.counters.failures) == (2, 0)

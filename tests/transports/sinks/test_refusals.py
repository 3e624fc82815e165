"""One bad change stops nothing but itself, if the policy says so: each class of refusal, with each policy, at each target."""

import asyncio
import json
import sqlite3

import pytest

from penstock_cdc.errors import InvalidOption
from penstock_cdc.mutations import schema
from publishers import truncate, upsert
from tests.harness.inside import declared_of
from tests.publishers.support import wait_until
from tests.transports.sinks.mock_broker import MockBroker
from tests.transports.sinks.targets import Rig, Target, rigged
from tests.transports.sinks.test_search import engine  # noqa: F401 - a fixture
from transports.sinks import DeadLetterFile, SinkRunner, SinkState
from transports.sinks.kafka import KafkaSink
from transports.sinks.search import SearchSink
from transports.sinks.sql import SqlSink
from transports.sinks.sql_table import SqlTable

TABLE = """
CREATE TABLE parents (id INTEGER PRIMARY KEY);
INSERT INTO parents VALUES (1);
CREATE TABLE orders (
  key TEXT PRIMARY KEY, body TEXT, whole INTEGER, ratio FLOAT, day DATE, name TEXT UNIQUE, strange POINT,
  parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED,
  penstock_version BIGINT, penstock_index BIGINT);
CREATE TRIGGER aborts BEFORE INSERT ON orders WHEN NEW.name = 'abort' BEGIN SELECT RAISE(ABORT, 'no'); END;
CREATE TRIGGER fails BEFORE INSERT ON orders WHEN NEW.name = 'fail' BEGIN SELECT RAISE(FAIL, 'no'); END;
CREATE TRIGGER rolls BEFORE INSERT ON orders WHEN NEW.name = 'roll' BEGIN SELECT RAISE(ROLLBACK, 'no'); END;
"""
COLUMNS = {one: one for one in ("whole", "ratio", "day", "name", "parent", "strange")}
BAD = {
    "beyond 64 bits": {"whole": 2**63},
    "far beyond": b'{"whole":1e400}',
    "no float": b'{"ratio":1e400}',
    "no exponent": b'{"ratio":1e4000000000000000000000}',
    "5,000 digits": b'{"whole":' + b"9" * 5000 + b"}",
    "a fraction": {"whole": 1.5},
    "no day": {"day": "x"},
    "no type of SQLite": {"strange": [1]},
    "a constraint": {"name": "taken"},
    "a trigger": {"name": "abort"},
    "a trigger that stops": {"name": "fail"},
    "a trigger that ends the transaction": {"name": "roll"},
    "a deferred constraint": {"parent": 7},
}
DELIVERED = {"0", "a", "b", "c", "d"}


def sql(folder, monkeypatch):
    with sqlite3.connect(folder / "target.db") as base:
        base.executescript(TABLE)

    class Strict(SqlSink):
        def _connected(self, made):
            connection = super()._connected(made)
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
            connection.commit()
            return connection

    told = SqlTable(name="orders", columns=COLUMNS)
    path = f"sqlite:///{folder / 'target.db'}"
    return Strict(path, {"order": told}, create_tables=True), lambda: {
        key for (key,) in sqlite3.connect(folder / "target.db").execute("SELECT key FROM orders")
    }


@pytest.mark.parametrize("on_reject", ["pause", "dead_letter", "drop"])
@pytest.mark.parametrize("bad", BAD)
def test_a_row_that_a_database_refuses_stops_itself_only(tmp_path, monkeypatch, bad, on_reject):
    """F97, F106: refused rows next to each other too, without a wait, and without a failure of the target."""
    sink, held = sql(tmp_path, monkeypatch)
    letters = DeadLetterFile(tmp_path / "dead.jsonl") if on_reject == "dead_letter" else None
    with rigged(tmp_path / "log", sink, on_reject=on_reject, dead_letters=letters) as rig:
        rig.log.commit([upsert("order", "0", {"name": "taken", "parent": 1})])
        rig.log.commit([upsert("order", "a", {}), *(upsert("order", f"bad{n}", BAD[bad]) for n in range(5))])
        rig.log.commit([upsert("order", "b", {}), upsert("order", "bad9", BAD[bad])])
        rig.log.commit([upsert("order", "c", {"parent": 1}), upsert("order", "d", {"whole": 2**63 - 1})])
        if on_reject == "pause":
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            reason = rig.runner.statistics().reason
            assert "bad0" in reason
            assert "_" not in reason.replace("penstock_", "")[:40]
            assert held() <= {"0", "a"}
            return
        rig.drained()
        assert held() == DELIVERED
        counters = rig.runner.counters
        assert (counters.failures, counters.dropped) == (0, 6)
        if letters is not None:
            lines = letters.path.read_text().splitlines()
            assert [json.loads(line, parse_int=str)["change"]["key"] for line in lines] == [
                *(f"bad{n}" for n in range(5)),
                "bad9",
            ]


def test_a_row_that_a_later_row_of_its_transaction_makes_right_is_kept(tmp_path, monkeypatch):
    """F106: a deferred constraint is judged behind whole transactions of the log."""
    sink, held = sql(tmp_path, monkeypatch)
    declared_of(sink)["parent"] = SqlTable(name="parents", key="id", body=None)
    with sqlite3.connect(tmp_path / "target.db") as base:
        for column in ("penstock_version", "penstock_index"):
            base.execute(f"ALTER TABLE parents ADD COLUMN {column} BIGINT")
    with rigged(tmp_path / "log", sink, on_reject="drop") as rig:
        rig.log.commit([upsert("order", "a", {"parent": 5}), upsert("parent", "5", {})])
        rig.log.commit([upsert("order", "bad", {"parent": 7})])
        rig.log.commit([upsert("order", "b", {"parent": 6}), upsert("parent", "6", {})])
        rig.log.commit([upsert("order", "c", {"parent": 5}), upsert("order", "no", {"whole": 2**64})])
        rig.drained()
        assert held() == {"a", "b", "c"}
        assert (rig.runner.counters.dropped, rig.runner.counters.failures) == (2, 0)


STRANGE = ["order line", "straße", "a/b", "x" * 250, ".", "schemas", "penstock.places.log.stock"]


@pytest.mark.parametrize("on_reject", ["pause", "drop"])
def test_an_entity_type_that_is_no_topic_stops_itself_only(tmp_path, on_reject):
    """F102, F104: its changes, its truncation and its schemas."""
    broker = MockBroker()
    sink = KafkaSink(broker.servers, schema_topic="schemas")
    with rigged(tmp_path / "log", sink, on_reject=on_reject) as rig:
        rig.log.commit([upsert("order", "a", {})])
        rig.log.commit([upsert(kind, "1", {}) for kind in STRANGE] + [truncate(STRANGE[0])])
        rig.log.commit([schema(STRANGE[1], {"fields": []}), upsert("order", "b", {})])
        if on_reject == "pause":
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            assert "no topic can be called 'order line'" in rig.runner.statistics().reason
            expected = {"a"}
        else:
            rig.drained()
            assert (rig.runner.counters.dropped, rig.runner.counters.failures) == (9, 0)
            expected = {"a", "b"}
    assert {json.loads(key)[1] for _, key, _ in broker.records("order")} == expected
    broker.close()


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "a b"},
        {"topic": "shop/{entity_type}"},
        {"schema_topic": "a b"},
        {"topic": ".."},
        {"topic": "a", "schema_topic": "a"},
    ],
)
def test_a_name_that_is_no_topic_is_no_option(arguments):
    with pytest.raises(InvalidOption):
        KafkaSink("x:1", **arguments)


def test_an_entity_type_that_is_no_index_stops_itself_only(engine, tmp_path):  # noqa: F811 - the fixture
    """F105: its truncation too."""
    sink = SearchSink(f"http://127.0.0.1:{engine.server_address[1]}")
    with rigged(tmp_path / "log", sink, on_reject="drop") as rig:
        rig.log.commit([upsert("order", "a", {}), upsert("a/b", "1", {}), truncate("a/b")])
        rig.log.commit([upsert("order", b"\xff", {}), upsert("order", "b", {})])
        rig.drained()
        assert [one["index"]["_id"] for one in engine.lines if "index" in one] == ["a", "b"]
        assert (rig.runner.counters.dropped, rig.runner.counters.failures) == (3, 0)


class Leaves(Target):
    """Raises at one of its calls what is no `Exception`."""

    parallel = True

    def __init__(self, at, error):
        super().__init__()
        self.at, self.error = at, error

    def __getattribute__(self, name):
        if name not in ("at", "error", "parallel") and name == self.at:
            error = self.error

            def leave(*_):
                raise error

            return leave
        return super().__getattribute__(name)


@pytest.mark.parametrize("error", [SystemExit(2), asyncio.CancelledError("gone"), GeneratorExit()])
@pytest.mark.parametrize("at", ["open", "write", "flush", "close", "transform", "lanes"])
def test_a_sink_that_would_leave_its_thread_is_paused_and_says_why(tmp_path, at, error):
    """F124: no sink is left in a state that says that it works."""

    def transform(_change):
        raise error

    target = Leaves("write" if at == "lanes" else at, error)
    options = {"transform": transform} if at == "transform" else {}
    if at == "lanes":
        options = {"in_flight": 2, "ordering": "key"}
    rig = Rig(tmp_path / "log", target, **options)
    rig.commit("a", "b", "c")
    runner = rig.runner

    def paused():
        rig.later(2.0)  # until what was written is flushed
        return runner.state is SinkState.PAUSED

    with runner.start():
        if at != "close":
            wait_until(paused, runner.statistics)
            assert type(error).__name__ in runner.statistics().reason
    assert runner.state is SinkState.STOPPED
    rig.log.close()


def test_an_interrupt_of_the_program_that_steps_a_sink_reaches_it(tmp_path):
    rig = Rig(tmp_path / "log", Leaves("open", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        rig.runner.step()
    assert isinstance(rig.runner, SinkRunner)
    rig.close()


@pytest.mark.parametrize("on_reject", ["pause", "drop"])
@pytest.mark.parametrize("kind", ["order line", "sqlite_x", "SQLite_master", "penstock_places", "Penstock_Gaps", "penstock_writers", "o_key"])  # fmt: skip
def test_an_entity_type_that_is_no_table_stops_itself_only(tmp_path, kind, on_reject):
    """F106: its changes and its truncation; also if something else has the name, such as a table of the sink's own."""
    path = tmp_path / "target.db"
    with sqlite3.connect(path) as base:
        base.executescript("CREATE TABLE x (o); CREATE INDEX o_key ON x (o);")
    with rigged(
        tmp_path / "log", SqlSink(f"sqlite:///{path}", create_tables=True), on_reject=on_reject
    ) as rig:
        rig.log.commit([upsert("order", "a", {})])
        rig.log.commit(
            [upsert(kind, "1", {}), upsert("order", "b", {}), upsert(kind, "2", {}), truncate(kind)]
        )
        rig.log.commit([upsert("order", "c", {})])
        if on_reject == "pause":
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            assert kind in rig.runner.statistics().reason
            expected = {"a"}
        else:
            rig.drained()
            assert (rig.runner.counters.dropped, rig.runner.counters.failures) == (3, 0)
            expected = {"a", "b", "c"}
        with sqlite3.connect(path) as base:
            assert {key for (key,) in base.execute('SELECT key FROM "order"')} >= expected

"""Entities as rows, with the place in the same transaction: in SQLite; PostgreSQL has the same tests in tests/servers."""

import json
import sqlite3

import pytest

from penstock_cdc.errors import InvalidOption
from penstock_cdc.fields import set_field
from penstock_cdc.mutations import expire, schema
from publishers import Criterion, Position, remove, truncate, upsert
from tests.harness.inside import context_of, progress_of, target_of
from tests.transports.sinks.targets import rigged
from transports.sinks import SinkState, TargetRefused
from transports.sinks.sql import SqlSink
from transports.sinks.sql_table import SqlTable


def url(folder):
    return f"sqlite:///{folder / 'target.db'}"


def rows(folder, query='SELECT key, body FROM "order" ORDER BY key'):
    with sqlite3.connect(folder / "target.db") as base:
        return base.execute(query).fetchall()


def place(rig, folder):
    ((text,),) = rows(folder, "SELECT place FROM penstock_places")
    return rig.log.position_of(text)


@pytest.fixture
def rig(tmp_path):
    with rigged(tmp_path / "log", SqlSink(url(tmp_path), create_tables=True)) as made:
        yield made


def test_rows_are_the_newest_state_of_each_entity(rig, tmp_path):
    """F2, F106: upsert, remove, expire, truncate, fields and other areas, in one batch and over several."""
    rig.log.commit([upsert("order", "1", {"n": 1}), upsert("order", "2", {"n": 1})])
    rig.log.commit([upsert("order", "1", {"n": 2}), remove("order", "2"), upsert("order", "3", {"n": 3.5})])
    rig.drained()
    assert rows(tmp_path) == [("1", '{"n":2}'), ("3", '{"n":3.5}')]
    rig.log.commit([schema("order", {"fields": []}), truncate("order"), upsert("order", "4", {"n": 4})])
    rig.log.commit([upsert("order", "5", {"n": 6}, before={"n": 5}, changes=[set_field("n", 6)])])
    rig.log.commit([expire("order", "4"), remove("order", "unknown")])
    rig.drained()
    assert rows(tmp_path) == [("5", '{"n":6}')]


def test_the_place_is_stored_with_the_rows_and_wins_over_that_of_the_slot(rig, tmp_path):
    """F35, F106: a crash after the commit of the database repeats nothing."""
    rig.commit("a", "b")
    rig.drained()
    assert place(rig, tmp_path) == Position(2, 0)
    assert rig.log.slots.info("stock").position == Position(1, 0)
    rig.died()
    rig.until(lambda: rig.runner.state is SinkState.STREAMING)
    assert rig.log.slots.info("stock").position == Position(2, 0)
    assert rig.runner.counters.changes == 0
    rig.commit("c")
    rig.drained()
    assert [key for key, _ in rows(tmp_path)] == ["a", "b", "c"]


def test_a_transaction_that_fails_leaves_neither_rows_nor_place(rig, tmp_path):
    rig.commit("a")
    rig.drained()
    with sqlite3.connect(tmp_path / "target.db") as base:
        base.execute('CREATE TRIGGER t BEFORE INSERT ON "order" BEGIN INSERT INTO missing VALUES (1); END')
    rig.commit("b", "c")
    rig.until(lambda: rig.runner.state is SinkState.PAUSED)
    assert [key for key, _ in rows(tmp_path)] == ["a"]
    assert place(rig, tmp_path) == Position(2, 0)


def test_a_place_moves_over_what_concerns_the_target_not(tmp_path):
    sink = SqlSink(url(tmp_path), {"order": "orders"}, create_tables=True)
    with rigged(tmp_path / "log", sink, criteria=Criterion(entity_types={"order", "bill"})) as rig:
        rig.log.commit([upsert("bill", "1", {})])
        rig.drained()
        assert place(rig, tmp_path) == Position(2, 0)
        rig.log.commit([upsert("other", "1", {})])
        rig.until(lambda: rig.stored() == Position(3, 0))
        assert place(rig, tmp_path) == Position(3, 0)


def test_a_seek_moves_the_place_and_what_is_sent_again_changes_nothing_that_is_newer(rig, tmp_path):
    """F35, F106."""
    rig.commit("a")
    rig.commit("b")
    rig.drained()
    with sqlite3.connect(tmp_path / "target.db") as base:
        base.execute("UPDATE \"order\" SET body = 'newer', penstock_version = 9 WHERE key = 'a'")
    moved = rig.runner.seek("earliest")
    rig.until(moved.done)
    rig.drained()
    assert rows(tmp_path) == [("a", "newer"), ("b", '{"n":"b"}')]
    rig.log.commit([remove("order", "a"), remove("order", "b"), truncate("order")])
    rig.drained()
    assert rows(tmp_path) == [("a", "newer")]


TYPED = """
CREATE TABLE "Bestellungen" (
  "Nr" INTEGER PRIMARY KEY, doc TEXT, total NUMERIC(10, 2), at TIMESTAMP, day DATE, paid BOOLEAN, more JSON, note VARCHAR,
  ratio FLOAT, raw BLOB, v BIGINT, i BIGINT)
"""
COLUMNS = {one: one for one in ("total", "at", "day", "paid", "more", "note", "ratio", "raw")}
WHOLE = {
    "total": "12.50",
    "at": "2026-01-02T03:04:05.000006+01:00",
    "day": "2026-01-02",
    "paid": True,
    "more": {"big": 12345678901234567890123, "exact": 0.1},
    "note": "x",
    "ratio": 0.25,
    "raw": "AAE=",
}


def typed(folder, body="doc"):
    with sqlite3.connect(folder / "target.db") as base:
        base.execute(TYPED)
        base.execute(
            "CREATE TABLE penstock_places (log_id TEXT, sink TEXT, place TEXT, generation BIGINT, PRIMARY KEY (log_id, sink))"
        )
        base.execute(
            "CREATE TABLE penstock_gaps (log_id TEXT, sink TEXT, first TEXT, next TEXT, PRIMARY KEY (log_id, sink, first))"
        )
    told = SqlTable(name="Bestellungen", key="Nr", body=body, columns=COLUMNS, version="v", index="i")
    return SqlSink(url(folder), {"order": told})


def test_fields_go_to_columns_of_a_table_that_is_there_by_the_types_of_these(tmp_path):
    with rigged(tmp_path / "log", typed(tmp_path)) as rig:
        rig.log.commit(
            [upsert("order", "7", WHOLE), upsert("order", "8", {"note": {"deep": [1]}, "gone": 1})]
        )
        rig.drained()
        first, second = rows(tmp_path, 'SELECT * FROM "Bestellungen" ORDER BY "Nr"')
        assert json.loads(first[1]) == WHOLE
        more = '{"big":12345678901234567890123,"exact":0.1}'
        told = ("2026-01-02 02:04:05.000006", "2026-01-02", 1, more, "x", 0.25, b"\0\1")
        assert (first[0], *first[2:]) == (7, 12.5, *told, 1, 1)
        assert second[2:8] == (None, None, None, None, None, '{"deep":[1]}')


@pytest.mark.parametrize(
    ("key", "body", "why"),
    [
        ("x", {}, "does not fit column Nr"),
        ("1", {"total": "much"}, "does not fit column total"),
        ("1", {"paid": "yes"}, "does not fit column paid"),
        ("1", {"day": 5}, "does not fit column day"),
        ("1.5", {}, "does not fit column Nr"),
        ("1", b"[1]", "no object"),
        (b"\xff", {}, "not UTF-8"),
    ],
)
def test_a_value_that_does_not_fit_is_poison_and_the_place_stays_before_it(tmp_path, key, body, why):
    """F106: what stands before it is done, and a restart does not go over it."""
    with rigged(tmp_path / "log", typed(tmp_path)) as rig:
        rig.log.commit([upsert("order", "5", {}), upsert("order", key, body), upsert("order", "6", {})])
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        reason = rig.runner.statistics().reason
        assert why in reason
        assert reason.encode()  # it can be written to a file of logs, and told as JSON
        assert rows(tmp_path, 'SELECT "Nr" FROM "Bestellungen"') == [(5,)]
        assert place(rig, tmp_path) == Position(1, 2)
        rig.died()
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)


def test_what_the_database_refuses_can_be_left_out(tmp_path):
    """A constraint of the user's: what is before and behind it arrives."""
    sink = SqlSink(url(tmp_path), create_tables=True)
    with rigged(tmp_path / "log", sink, on_reject="drop") as rig:
        rig.commit("a")
        rig.drained()
        with sqlite3.connect(tmp_path / "target.db") as base:
            base.execute('CREATE UNIQUE INDEX one ON "order" (body)')
        rig.log.commit(
            [upsert("order", key, {"n": n}) for key, n in (("b", 1), ("c", 1), ("d", 2), ("b", 1))]
        )

        def arrived():
            rig.later(60.0)
            return progress_of(rig.runner.machine).confirmed == rig.log.head

        rig.until(arrived)
        assert [key for key, _ in rows(tmp_path)] == ["a", "b", "d"]
        assert rig.runner.counters.dropped == 1
        assert place(rig, tmp_path) == Position(3, 0)


def test_an_entity_type_that_is_no_name_of_a_table_is_poison(rig):
    rig.log.commit([upsert('order"; DROP TABLE x', "1", {})])
    rig.until(lambda: rig.runner.state is SinkState.PAUSED)
    assert "no table has the name of its entity type" in rig.runner.statistics().reason


def test_what_the_log_does_not_hold_whole_is_poison(tmp_path):
    sink = SqlSink(url(tmp_path), create_tables=True)
    with rigged(tmp_path / "log", sink, transform=lambda one: None if one.key is None else _bare(one)) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "does not hold the whole entity" in rig.runner.statistics().reason


def _bare(change):
    import msgspec

    return msgspec.structs.replace(change, body_bytes=None)


@pytest.mark.parametrize("batch_changes", [1, 100])
@pytest.mark.parametrize("tombstone_ttl", [None, 3600.0])
def test_of_several_changes_of_an_entity_in_a_transaction_the_last_one_counts(
    tmp_path, tombstone_ttl, batch_changes
):
    """F106: by their indexes, since they have one version; and again when they are sent again."""
    sink = SqlSink(url(tmp_path), create_tables=True, tombstone_ttl=tombstone_ttl)
    alive = 'SELECT key, body FROM "order"' + (" WHERE penstock_deleted IS NULL" if tombstone_ttl else "")
    with rigged(tmp_path / "log", sink, batch_changes=batch_changes) as rig:
        rig.log.commit(
            [
                upsert("order", "1", {"n": 1}),
                upsert("order", "1", {"n": 2}),
                upsert("order", "2", {"n": 1}),
                remove("order", "2"),
                remove("order", "3"),
                upsert("order", "3", {"n": 3}),
                truncate("order"),
                upsert("order", "4", {"n": 4}),
                upsert("order", "4", {"n": 5}),
            ]
        )
        rig.log.commit([upsert("order", "2", {"n": 6}), remove("order", "4"), upsert("order", "4", {"n": 7})])
        for _ in range(2):
            rig.drained()
            assert sorted(rows(tmp_path, alive)) == [("2", '{"n":6}'), ("4", '{"n":7}')]
            rig.runner.seek("earliest")


def test_rows_may_stay_for_a_time_where_entities_were_removed(tmp_path):
    """F106."""
    sink = SqlSink(url(tmp_path), create_tables=True, tombstone_ttl=3600.0)
    with rigged(tmp_path / "log", sink) as rig:
        rig.commit("a", "b")
        rig.log.commit([remove("order", "a")])
        rig.drained()
        alive = 'SELECT key, body FROM "order" WHERE penstock_deleted IS NULL'
        assert rows(tmp_path, alive) == [("b", '{"n":"b"}')]
        assert rows(tmp_path)[0] == ("a", None)
        rig.log.commit([truncate("order")])
        rig.drained()
        assert rows(tmp_path, alive) == []
        rig.commit("b")
        rig.drained()
        assert rows(tmp_path, alive) == [("b", '{"n":"b"}')]
        rig.later(3700.0)
        rig.runner.step()
        assert [key for key, _ in rows(tmp_path)] == ["b"]


def test_without_the_tables_the_sink_says_what_makes_them(tmp_path):
    with rigged(tmp_path / "log", SqlSink(url(tmp_path))) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        for name in ("penstock_places, penstock_gaps", "order"):
            _, _, statement = rig.runner.statistics().reason.partition(f"there is no table {name}: ")
            assert statement.startswith("CREATE TABLE ")
            with sqlite3.connect(tmp_path / "target.db") as base:
                base.executescript(statement)
            resumed = rig.runner.resume()
            rig.until(resumed.done)
            rig.until(
                lambda: (
                    rig.runner.state is SinkState.PAUSED
                    or progress_of(rig.runner.machine).confirmed is not None
                )
            )
        rig.drained()
        assert rows(tmp_path) == [("a", '{"n":"a"}')]


def test_a_table_without_a_column_is_refused(tmp_path):
    with rigged(tmp_path / "log", SqlSink(url(tmp_path), create_tables=True)) as rig:
        with sqlite3.connect(tmp_path / "target.db") as base:
            base.execute('CREATE TABLE "order" (key TEXT PRIMARY KEY, body TEXT)')
        rig.commit("a")
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "no column penstock_version, penstock_index" in rig.runner.statistics().reason


def test_a_database_that_is_busy_is_tried_again(tmp_path):
    """F125: until it is not, and nothing is lost."""
    sink = SqlSink(url(tmp_path), create_tables=True, timeout=0.05)
    with rigged(tmp_path / "log", sink) as rig:
        rig.commit("a")
        rig.drained()
        other = sqlite3.connect(tmp_path / "target.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        rig.commit("b")
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        assert "locked" in rig.runner.statistics().last_error
        assert not sink.alive()
        other.execute("ROLLBACK")
        other.close()
        assert sink.alive()
        rig.later(300.0)
        rig.drained()
        assert [key for key, _ in rows(tmp_path)] == ["a", "b"]


def test_a_sender_that_was_replaced_writes_nothing(tmp_path):
    """F106: the generation of the slot's opening is stored with the place."""
    with rigged(tmp_path / "log", SqlSink(url(tmp_path), create_tables=True)) as rig:
        rig.commit("a")
        rig.drained()
        older = rig.target
        newer = SqlSink(url(tmp_path))
        context = context_of(target_of(rig.runner.machine))
        generation = context.generation
        import dataclasses

        newer.open(dataclasses.replace(context, generation=generation + 1))
        newer.move(Position(2, 0))
        rig.commit("b")
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "another runner has taken over" in rig.runner.statistics().reason
        assert [key for key, _ in rows(tmp_path)] == ["a"]
        with pytest.raises(TargetRefused, match="another runner"):
            older.open(context)
        looking = SqlSink(url(tmp_path))
        assert looking.open(dataclasses.replace(context, generation=0)) == Position(2, 0)
        newer.move(Position(2, 0))  # whoever only looks replaces none
        for one in (newer, looking):
            one.close()


def test_the_place_of_another_history_is_refused(tmp_path):
    with rigged(tmp_path / "log", SqlSink(url(tmp_path), create_tables=True)) as rig:
        rig.commit("a")
        rig.drained()
        with sqlite3.connect(tmp_path / "target.db") as base:
            base.execute("UPDATE penstock_places SET place = 'nonsense'")
        rig.died()
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "empty the tables" in rig.runner.statistics().reason


def test_an_address_may_be_kept_elsewhere_and_its_password_is_never_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("TARGET_URL", url(tmp_path))
    sink = SqlSink("env:TARGET_URL", create_tables=True)
    with rigged(tmp_path / "log", sink) as rig:
        rig.commit("a")
        rig.drained()
        assert repr(sink) == "<SqlSink env:TARGET_URL>"
        monkeypatch.setenv("TARGET_URL", "mysql://x")
        rig.again()
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "env:TARGET_URL" in rig.runner.statistics().reason
    shown = repr(SqlSink("postgresql://ann:hidden@db.example/shop?password=hidden2"))
    assert "hidden" not in shown
    assert "db.example" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "mysql://x"},
        {"url": "no address"},
        {"url": None},
        {"tables": ["order"]},
        {"tables": {"order": "two words"}},
        {"places": "a;b"},
        {"timeout": 0},
        {"tombstone_ttl": 0.1},
    ],
)
def test_what_is_out_of_its_bounds_is_refused(arguments):
    with pytest.raises(InvalidOption):
        SqlSink(**{"url": "sqlite:///x.db", **arguments})


@pytest.mark.parametrize(
    "arguments", [{"name": "a b"}, {"schema": ""}, {"columns": {"a b": "x"}}, {"columns": 5}, {"key": ""}]
)
def test_names_that_are_none_are_refused(arguments):
    with pytest.raises(InvalidOption):
        SqlTable(**{"name": "orders", **arguments})

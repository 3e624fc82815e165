"""Rows of a real PostgreSQL: the types of its columns, what it refuses, and rows of what was removed."""

import datetime as dt
import decimal

import pytest

from publishers import remove, upsert
from tests.servers.postgres import Postgres
from tests.transports.sinks.targets import GoingClock, rigged
from transports.sinks import SinkState

psycopg = pytest.importorskip("psycopg", reason="the extra postgresql is not installed")
pytest.importorskip("sqlalchemy", reason="the extra sql is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Postgres(tmp_path_factory.mktemp("postgresql")) as made:
        yield made


TABLE = """
CREATE TABLE "Orders" (
  "No" INTEGER PRIMARY KEY, total NUMERIC(10, 2) CHECK (total < 1000), at TIMESTAMPTZ, day DATE, paid BOOLEAN, more JSONB, note TEXT,
  raw BYTEA, v BIGINT, i BIGINT)
"""
COLUMNS = {one: one for one in ("total", "at", "day", "paid", "more", "note", "raw")}


def test_fields_go_to_columns_by_their_types_and_what_does_not_fit_pauses_the_sink(server, tmp_path):
    """F35, F106: what is before it is there, and the place is before it, in one transaction."""
    from transports.sinks.sql import SqlSink, SqlTable

    told = SqlTable(name="Orders", key="No", body=None, columns=COLUMNS, version="v", index="i")
    with psycopg.connect(server.url, autocommit=True) as base:
        base.execute(TABLE)
        with rigged(tmp_path / "log", SqlSink(server.url, {"order": told}), clock=GoingClock()) as rig:
            rig.log.commit(
                [
                    upsert(
                        "order",
                        "7",
                        {
                            "total": "12.50",
                            "at": "2026-01-02T03:04:05.000006+01:00",
                            "day": "2026-01-02",
                            "paid": True,
                            "more": {"exact": 0.1},
                            "note": "é",
                            "raw": "AAE=",
                        },
                    )
                ]
            )
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            base.execute(rig.runner.statistics().reason.partition(": ")[2])  # the statements that it tells
            rig.runner.resume()
            rig.drained()
            row = base.execute('SELECT * FROM "Orders"').fetchone()
            moment = dt.datetime(2026, 1, 2, 2, 4, 5, 6, dt.UTC)
            day = dt.date(2026, 1, 2)
            assert row == (7, decimal.Decimal("12.50"), moment, day, True, {"exact": 0.1}, "é", b"\0\1", 1, 1)
            for wrong in (
                {"total": "much"},
                {"total": "1000"},
            ):  # the sink sees it; a constraint of the database
                version = rig.log.commit([upsert("order", "8", {}), upsert("order", "9", wrong)]).version
                rig.until(lambda: rig.runner.state is SinkState.PAUSED)
                assert base.execute('SELECT "No" FROM "Orders" ORDER BY "No"').fetchall() == [(7,), (8,)]
                (place,) = base.execute("SELECT place FROM penstock_places").fetchone()
                assert rig.log.position_of(place) == (version, 2)
                rig.runner.seek(version + 1)
                rig.runner.resume()
                rig.until(lambda: rig.runner.state is SinkState.STREAMING)


def test_rows_of_what_was_removed_stay_for_their_time(server, tmp_path):
    """F106: so that what comes late does not bring them back."""
    from transports.sinks.sql import SqlSink

    clock = GoingClock()
    sink = SqlSink(server.url, {"bill": "bills"}, create_tables=True, tombstone_ttl=3600)
    with (
        psycopg.connect(server.url, autocommit=True) as base,
        rigged(tmp_path / "log", sink, clock=clock) as rig,
    ):
        rig.log.commit([upsert("bill", "1", {}), remove("bill", "1")])
        rig.drained()
        (row,) = base.execute("SELECT key, body, penstock_deleted IS NULL FROM bills").fetchall()
        assert row == ("1", None, False)
        moved = rig.runner.seek("earliest")
        rig.until(moved.done)
        rig.drained()
        assert base.execute("SELECT body FROM bills").fetchall() == [(None,)]


def test_two_sinks_never_write_one_table(server, tmp_path):
    """F106: a sink of another log is refused, until the table is handed over to it."""
    from transports.sinks.sql import SqlSink

    def sink():
        return SqlSink(server.url, {"order": "shared"}, create_tables=True)

    with psycopg.connect(server.url, autocommit=True) as base:
        with rigged(tmp_path / "one", sink(), clock=GoingClock()) as rig:
            rig.commit("a", "b")
            rig.drained()
        with rigged(tmp_path / "two", sink(), clock=GoingClock()) as rig:
            for drill, reason in (
                (
                    "DELETE FROM penstock_writers WHERE table_name = 'public.shared'",
                    "is that of sink 'stock'",
                ),
                ("DELETE FROM shared", "would seem old"),
            ):
                rig.commit("c")
                rig.until(lambda: rig.runner.state is SinkState.PAUSED)
                told = rig.runner.statistics().reason
                assert "table public.shared" in told
                assert reason in told
                base.execute(drill)
                rig.runner.resume()
                rig.runner.step()
            rig.drained()
            assert base.execute("SELECT key FROM shared").fetchall() == [("c",)]


@pytest.mark.parametrize("kind", ["pg_class", "pg_user", "named_pkey", "penstock_places"])
def test_an_entity_type_whose_name_the_database_keeps_stops_itself_only(server, tmp_path, kind):
    """F106: no table of the system is written, and nothing waits for one that cannot be made."""
    from transports.sinks.sql import SqlSink

    with psycopg.connect(server.url, autocommit=True) as base:
        sink = SqlSink(server.url, create_tables=True)
        with rigged(tmp_path / "log", sink, clock=GoingClock(), on_reject="drop") as rig:
            rig.log.commit([upsert("named", f"{kind} a", {})])
            rig.log.commit([upsert(kind, "1", {}), upsert("named", f"{kind} b", {})])
            rig.log.commit([upsert("named", f"{kind} c", {})])
            rig.drained()
            assert (rig.runner.counters.dropped, rig.runner.counters.failures) == (1, 0)
        keys = base.execute("SELECT key FROM named ORDER BY key").fetchall()
        assert keys == [(f"{kind} {one}",) for one in "abc"]
        base.execute("DROP TABLE named")
        base.execute("DELETE FROM penstock_writers")

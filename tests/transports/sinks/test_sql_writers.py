"""Two sinks, and two logs, never write one table: of what they write, each would take the other's for its own."""

import sqlite3

import pytest

from publishers import ChangeLog, Position, remove, upsert
from tests.publishers.support import wait_until
from tests.transports.sinks.targets import QUICK, HandClock
from transports.sinks import SinkOptions, SinkRunner, SinkState
from transports.sinks.sql import SqlSink
from transports.sinks.sql_table import SqlTable

TYPED = SqlTable(name="t", schema="main")
# Of two sinks, the tables of each; None for that of the name of the entity type.
SHARED = [
    (None, None),
    (None, {"order": "order"}),
    ({"order": "t"}, {"order": "t"}),
    ({"order": "t"}, {"order": "T"}),
    ({"order": "t"}, {"order": TYPED}),
    ({"order": TYPED}, {"bill": "t", "order": "u"}),
]


class Rows:
    """A database, and sinks that write it, each until it has everything or is paused."""

    def __init__(self, path):
        self.path = path / "t.db"

    def run(self, log, name, tables=None, **options):
        """Returns the reason for which the sink is paused; None if it has sent everything."""
        sink = SqlSink(f"sqlite:///{self.path}", tables, **{"create_tables": True, **options})
        runner = SinkRunner(log, name, sink, SinkOptions(since="earliest", linger=0.0), clock=HandClock())

        def done():
            runner.step()
            confirmed = runner.statistics().confirmed or runner.statistics().position or Position(0)
            return runner.state is SinkState.PAUSED or confirmed >= log.head

        wait_until(done, runner.statistics)
        reason = runner.statistics().reason if runner.state is SinkState.PAUSED else None
        runner.close()
        return reason

    def ask(self, query):
        with sqlite3.connect(self.path) as base:
            return base.execute(query).fetchall()


@pytest.fixture
def rows(tmp_path):
    return Rows(tmp_path)


def filled(path, *more):
    log = ChangeLog.open(path, **QUICK)
    log.commit([upsert("order", "1", {"n": 1}), upsert("bill", "1", {"n": 1}), *more])
    return log


@pytest.mark.parametrize("logs", ["one log", "two logs", "a log made anew"])
@pytest.mark.parametrize(("first", "second"), SHARED)
def test_a_second_sink_of_a_table_is_refused_and_has_changed_nothing(rows, tmp_path, logs, first, second):
    """F106: with a sentence that says whose table it is, and over a restart."""
    other = "stock" if logs == "a log made anew" else "shop"
    with filled(tmp_path / "one") as log:
        assert rows.run(log, "stock", first) is None
        before = sorted(rows.ask("SELECT * FROM penstock_writers"))
        with filled(tmp_path / "two") as another:
            wrong = log if logs == "one log" else another
            wrong.commit([remove("order", "1"), remove("bill", "1")])
            for _ in range(2):
                reason = rows.run(wrong, other, second)
                assert "is that of sink 'stock'" in reason
                assert ("this log" if logs == "one log" else log.log_id.hex) in reason
                assert "give each sink a table of its own" in reason
            assert sorted(rows.ask("SELECT * FROM penstock_writers"))[: len(before)] == before
        log.commit([upsert("order", "2", {"n": 2})])
        assert rows.run(log, "stock", first) is None


def test_tables_of_their_own_are_what_each_may_write(rows, tmp_path):
    """F106: of one log, and of two."""
    with filled(tmp_path / "one") as log, filled(tmp_path / "two") as another:
        for name, one in (("stock", log), ("shop", log), ("stock", another)):
            assert rows.run(one, name, {"order": f"{name}_{one.path.name}"}) is None
        assert len(rows.ask("SELECT * FROM penstock_writers")) == 3


def test_what_the_reason_says_hands_a_table_over(rows, tmp_path):
    """F106: to a log that was made anew, whose positions are lower than those in the table."""
    with filled(tmp_path / "one") as log:
        for number in range(9):
            log.commit([upsert("order", str(number), {"n": number})])
        assert rows.run(log, "stock", {"order": "t"}) is None
    with filled(tmp_path / "two") as log:
        assert "delete its row from penstock_writers" in rows.run(log, "stock", {"order": "t"})
        rows.ask("DELETE FROM penstock_writers")
        assert "would seem old: empty the table" in rows.run(log, "stock", {"order": "t"})
        rows.ask("DELETE FROM t")
        assert rows.run(log, "stock", {"order": "t"}) is None
        assert rows.ask("SELECT key, body FROM t") == [("1", '{"n":1}')]


@pytest.mark.parametrize("anew", [False, True])
def test_without_the_table_of_writers_a_log_made_anew_is_noticed_by_the_rows(rows, tmp_path, caplog, anew):
    """F106: the sink says by what other sinks would be noticed too."""
    with filled(tmp_path / "one") as log:
        assert rows.run(log, "stock", {"order": "t"}) is None
        rows.ask("DROP TABLE penstock_writers")
        log.commit([upsert("order", "2", {})])
        if not anew:
            assert rows.run(log, "stock", {"order": "t"}, create_tables=False) is None
            assert "CREATE TABLE penstock_writers" in caplog.text
            assert len(rows.ask("SELECT * FROM t")) == 2
    if anew:
        with filled(tmp_path / "two") as log:
            assert "would seem old" in rows.run(log, "stock", {"order": "t"}, create_tables=False)


def test_rows_that_no_sink_has_written_are_taken_over(rows, tmp_path):
    """F106: as they have no positions."""
    rows.ask(
        "CREATE TABLE t (key TEXT PRIMARY KEY, body TEXT, penstock_version BIGINT, penstock_index BIGINT)"
    )
    rows.ask("INSERT INTO t (key, body) VALUES ('1', '{}')")
    with filled(tmp_path / "one") as log:
        assert rows.run(log, "stock", {"order": "t"}) is None
        assert rows.ask("SELECT key, body FROM t") == [("1", '{"n":1}')]

"""An outbox brings each committed row into the log once, wherever its relay is stopped and whatever calls it."""

import contextlib
import threading
from functools import partial

import pytest
import sqlalchemy as sql
from sqlalchemy.orm import Session

from penstock_cdc.errors import (
    InvalidChange,
    InvalidOption,
    KeyTooLong,
    LogClosed,
    LogReadOnly,
    OutboxBehind,
    ProducerConflict,
)
from publishers import ChangeLog, Content, Criterion, Outbox, SqlSource
from tests.publishers.support import QUICK, in_threads, wait_until


@contextlib.contextmanager
def placed(path, **options):
    """A database, a log and the outbox between them, all opened anew."""
    engine = sql.create_engine(f"sqlite:///{path / 'shop.db'}", connect_args={"timeout": 60})
    sql.event.listen(engine, "connect", lambda db, _: db.execute("PRAGMA synchronous = OFF"))
    try:
        with ChangeLog.open(path / "log", **QUICK) as log:
            outbox = Outbox(engine, log, **options)
            outbox.table.create(engine, checkfirst=True)
            yield engine, log, outbox
    finally:
        engine.dispose()


def told(log):
    found = log.history(Criterion(entity_types={"order"}), content=Content.BODY, limit=10_000).changes
    return [(change.operation.name, change.key, change.body) for change in found]


class Killed(BaseException):
    pass


def killed_at(step, engine, log, relay):
    """Stops a relay before its step: a statement, a commit of the database, before or behind a commit of the log."""
    left = [step]

    def strike(*_, **__):
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    def commit(*given, **named):
        strike()
        done = type(log).commit(log, *given, **named)
        strike()
        return done

    for event in ("before_cursor_execute", "commit"):
        sql.event.listen(engine, event, strike)
    log.commit = commit
    try:
        relay()
    except Killed:
        return True
    finally:
        del log.commit
        for event in ("before_cursor_execute", "commit"):
            sql.event.remove(engine, event, strike)
    return False


def test_each_row_is_moved_once_whatever_the_relay_is_stopped_at(tmp_path):
    expected = []
    for step in range(100):
        with placed(tmp_path, most=2) as (engine, log, outbox):
            with engine.begin() as db:
                outbox.upsert(db, "order", "42", {"step": step})
                outbox.remove(db, "order", str(step))
                outbox.upsert(db, "order", "42", {"step": step})
            expected += [("UPSERT", "42", {"step": step}), ("REMOVE", str(step), None)]
            expected.append(("UPSERT", "42", {"step": step}))
            killed = killed_at(step, engine, log, outbox.relay)
            with engine.begin() as db:  # what comes meanwhile is of a later batch
                outbox.upsert(db, "order", "43", {"step": step})
            expected.append(("UPSERT", "43", {"step": step}))
        with placed(tmp_path, most=2) as (_, log, outbox):
            while outbox.relay():
                pass
            assert told(log) == expected
        if not killed:
            break
    assert step > 8


@pytest.mark.parametrize("threaded", [True, False], ids=["its thread", "callers only"])
def test_threads_that_write_relay_and_wait_lose_and_repeat_nothing(threaded, tmp_path):
    """Two outboxes of one table and log are one: they take turns."""
    with placed(tmp_path, most=3, idle=0.01) as (engine, log, first):
        both = [first, Outbox(engine, log, most=2)]

        def work(number):
            outbox = both[number % 2]
            for n in range(12):
                with engine.begin() as db:
                    marker = outbox.upsert(db, "order", str(number), {"n": n})
                if n % 3 == 0:
                    outbox.relay()
                elif n % 3 == 1:
                    version = outbox.wait(marker, timeout=60)
                    seen = log.history(Criterion(keys={str(number)}), content=Content.BODY, limit=100).changes
                    assert seen[-1].body == {"n": n}
                    assert seen[-1].version <= version

        with contextlib.ExitStack() as stack:
            if threaded:
                for outbox in both:
                    stack.enter_context(outbox)
            in_threads(*(partial(work, number) for number in range(4)))
            first.wait()
        changes = told(log)
        assert len(changes) == 4 * 12
        for number in range(4):
            assert [body["n"] for _, key, body in changes if key == str(number)] == list(range(12))


@pytest.mark.parametrize("way", ["begin", "session", "autocommit of a statement", "another program"])
def test_the_thread_moves_what_any_connection_has_committed(way, tmp_path):
    idle = 0.01 if way == "another program" else 3600
    with placed(tmp_path, idle=idle) as (engine, log, outbox), outbox:
        if way == "session":
            with Session(engine) as session:
                outbox.upsert(session, "order", "1", {})
                session.commit()
        elif way == "another program":
            other = sql.create_engine(engine.url)
            with other.begin() as db:
                db.execute(
                    sql.text("INSERT INTO outbox (entity_type, key, body) VALUES ('order', '1', '{}')")
                )
            other.dispose()
        else:
            level = "AUTOCOMMIT" if way.startswith("auto") else "SERIALIZABLE"
            with engine.connect().execution_options(isolation_level=level) as db, db.begin():
                outbox.upsert(db, "order", "1", {})
        wait_until(lambda: told(log) == [("UPSERT", "1", {})])
        with engine.connect() as db:
            outbox.upsert(db, "order", "2", {})  # and rolls back
        assert outbox.wait() == 1
        outbox.start()
        outbox.close()
        outbox.close()


def test_a_row_that_the_log_refuses_stops_the_relay_until_it_is_mended(tmp_path, caplog):
    with placed(tmp_path, idle=0.01) as (engine, log, outbox):
        with engine.begin() as db:
            marker = outbox.upsert(db, "order", "x" * 2000, {})
            outbox.upsert(db, "order", "2", {})
        with outbox:
            wait_until(lambda: isinstance(outbox.error, KeyTooLong))
            with pytest.raises(KeyTooLong):
                outbox.wait(marker)
            with engine.begin() as db:
                db.execute(sql.update(outbox.table).where(outbox.table.c.id == marker).values(key="1"))
            assert outbox.wait() == 1
            wait_until(lambda: outbox.error is None)
        assert [key for _, key, _ in told(log)] == ["1", "2"]
        assert len([one for one in caplog.records if "is not moved" in one.message]) == 1


def test_a_database_that_was_put_back_is_told_and_loses_nothing(tmp_path):
    """What the log would ignore as a repetition stays in the table."""
    with placed(tmp_path) as (engine, log, outbox):
        for number, error in ((2, ProducerConflict), (1, OutboxBehind)):
            log.commit([], producer=("outbox", 2))
            with engine.begin() as db:
                outbox.upsert(db, "order", "1", {"n": number})
                db.execute(sql.update(outbox.table).values(batch=number))
            with pytest.raises(error):
                outbox.relay()
            with engine.begin() as db:
                assert db.execute(sql.select(sql.func.count()).select_from(outbox.table)).scalar() == 1
                db.execute(sql.update(outbox.table).values(batch=None))
            assert outbox.relay() == 1
            outbox = Outbox(engine, log)  # noqa: PLW2901 - likewise behind another object
        assert [body for _, _, body in told(log)] == [{"n": 2}, {"n": 1}]


def test_waiting_ends_in_time_and_marks_a_source(tmp_path):
    with placed(tmp_path) as (engine, _, outbox):
        source = SqlSource(engine, outbox.table, entity_type="row", key="id", marker=outbox.wait)
        assert source.mark() == 0
        with engine.begin() as db:
            outbox.upsert(db, "order", "1", {})
        done, go = threading.Event(), threading.Event()

        def hold():
            with outbox._turn:
                done.set()
                go.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        done.wait(60)
        with pytest.raises(TimeoutError, match="not in the log after"):
            outbox.wait(timeout=0.001)
        with pytest.raises(TimeoutError):
            outbox.wait(timeout=0)
        go.set()
        holder.join(60)
        assert source.mark() == 1


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"engine": "sqlite://"}, "engine"),
        ({"log": "var/log"}, "log"),
        ({"table": ""}, "table"),
        ({"producer": ""}, "producer"),
        ({"most": 0}, "most"),
        ({"idle": 0}, "idle"),
        ({"idle": True}, "idle"),
    ],
)
def test_arguments_that_are_wrong_are_named(given, named, tmp_path):
    with placed(tmp_path) as (engine, log, outbox):
        with pytest.raises((InvalidOption, InvalidChange), match=named):
            Outbox(**({"engine": engine, "log": log} | given))
        with pytest.raises(InvalidChange), engine.begin() as db:
            outbox.upsert(db, "order", "\udcff", {})
        with ChangeLog.open(tmp_path / "log", read_only=True) as reader, pytest.raises(LogReadOnly):
            Outbox(engine, reader)
    with pytest.raises(LogClosed):
        Outbox(engine, log)

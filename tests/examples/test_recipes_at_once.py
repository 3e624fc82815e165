"""Each documented way into a log, called by two threads, two event loops or two processes at once.

Whoever calls loses nothing and is told nothing wrong: what was committed is there, each key has its changes in their order, and a call
that cannot be right beside the other one ends with an error that has a name.
"""

import asyncio
import contextlib
import sqlite3
import sys
from functools import partial

import pytest
import sqlalchemy as sql

from penstock_cdc import ChangeLog, Content, Criterion, Outbox, upsert
from penstock_cdc.errors import ExpectationFailed, LogBusy, ProducerConflict
from tests.examples.programs import example
from tests.forking import child, in_child
from tests.publishers.support import QUICK, in_threads

outbox_example = example("outbox")
polling = example("polling_query")

COUNT = 15
WORKERS = ("ann", "bob")


def in_loops(*works):
    """Runs each work on an event loop of its own, in a thread of its own; work that blocks is left to the loop's threads."""

    async def awaited(work):
        done = work()
        if done is not None:
            await done

    in_threads(*(partial(lambda work: asyncio.run(awaited(work)), work) for work in works))


def told(log):
    found = log.history(Criterion(entity_types={"order"}), content=Content.BODY, limit=10_000)
    return [(change.key, change.body) for change in found.changes]


def in_order(changes, who):
    return [body["total"] for key, body in changes if key == who]


TOTALS = [f"{n}.00" for n in range(COUNT)]


class OutboxRecipe:
    """``docs/from-your-database.md``: the application writes rows, and whoever has written them waits for them."""

    def __init__(self, path, log):
        self.log = log
        self.engine = sql.create_engine(f"sqlite:///{path / 'shop.db'}", connect_args={"timeout": 60})
        sql.event.listen(self.engine, "connect", lambda db, _: db.execute("PRAGMA synchronous = OFF"))
        self.outbox = Outbox(self.engine, log, most=3)
        outbox_example.tables(self.engine, self.outbox)

    def step(self, who, total):
        with self.engine.begin() as db:
            marker = outbox_example.put_order(db, self.outbox, who, total)
        self.outbox.wait(marker, timeout=60)

    def close(self):
        self.engine.dispose()

    def check(self):
        changes = told(self.log)
        assert [in_order(changes, who) for who in WORKERS] == [TOTALS, TOTALS]


class PollingRecipe:
    """``docs/from-your-database.md``: both write and poll."""

    def __init__(self, path, log):
        self.log, self.file = log, path / "shop.db"
        with contextlib.closing(sqlite3.connect(self.file)) as db:
            db.executescript(polling.TABLE)

    def step(self, who, total):
        with contextlib.closing(sqlite3.connect(self.file, timeout=60)) as db:
            db.execute("PRAGMA synchronous = OFF")
            db.isolation_level = "IMMEDIATE"
            polling.put_order(db, who, total)
            with contextlib.suppress(ProducerConflict):  # the other one has committed up to the same revision
                polling.poll(db, self.log, 3)

    def close(self):
        pass

    def check(self):
        with contextlib.closing(sqlite3.connect(self.file)) as db:
            while polling.poll(db, self.log, 3):
                pass
        changes = told(self.log)
        for who in WORKERS:
            seen = in_order(changes, who)
            assert seen == sorted(seen, key=float)  # an order may come twice, and never goes back
            assert seen[-1] == TOTALS[-1]


class ProducerRecipe:
    """``docs/writing.md``: each has a producer of its own, and does not know whether its last commit was written."""

    def __init__(self, _path, log):
        self.log = log

    def step(self, who, total):
        for _ in range(2):
            self.log.commit([upsert("order", who, {"total": total})], producer=(who, TOTALS.index(total)))

    def close(self):
        pass

    def check(self):
        changes = told(self.log)
        assert [in_order(changes, who) for who in WORKERS] == [TOTALS, TOTALS]


class SharedProducerRecipe(ProducerRecipe):
    """``docs/writing.md``: two that number their batches alike are told, and none of their changes is lost in silence."""

    def step(self, who, total):
        last = self.log.produced("etl")
        number = 1 if last is None else last.sequence + 1
        while True:
            try:
                commit = self.log.commit([upsert("order", who, {"total": total})], producer=("etl", number))
            except ProducerConflict:
                number += 1
                continue
            if not commit.duplicate:
                return
            # older than the last one: nothing was written, and `duplicate` says so
            number = self.log.produced("etl").sequence + 1


class ExpectRecipe:
    """``docs/writing.md``: each adds one to a number, unless it has changed meanwhile."""

    def __init__(self, _path, log):
        self.log = log

    def step(self, _who, _total):
        while True:
            seen = self.log.token(self.log.head)
            number = len(told(self.log))
            with contextlib.suppress(ExpectationFailed):
                self.log.commit([upsert("order", "number", {"total": number})], expect=seen)
                return

    def close(self):
        pass

    def check(self):
        assert in_order(told(self.log), "number") == list(range(len(WORKERS) * COUNT))


RECIPES = (OutboxRecipe, PollingRecipe, ProducerRecipe, SharedProducerRecipe, ExpectRecipe)


@pytest.mark.parametrize("at_once", [in_threads, in_loops], ids=["threads", "event loops"])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda one: one.__name__)
def test_two_that_follow_a_recipe_at_once_lose_nothing(recipe, at_once, tmp_path):
    def work(placed, who):
        for total in TOTALS:
            placed.step(who, total)

    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        placed = recipe(tmp_path, log)
        with contextlib.closing(placed):
            at_once(*(partial(work, placed, who) for who in WORKERS))
            placed.check()


def test_coroutines_of_two_event_loops_share_a_log(tmp_path):
    """``docs/writing.md``: ``commit_async``, ``async with log.transaction()`` and ``await log.submit(...)``."""

    async def work(log, who):
        for total in TOTALS:
            if total in TOTALS[::3]:
                await log.commit_async([upsert("order", who, {"total": total})])
            elif total in TOTALS[1::3]:
                async with log.transaction() as tx:
                    tx.upsert("order", who, {"total": total})
            else:
                await log.submit([upsert("order", who, {"total": total})])

    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        in_loops(*(partial(work, log, who) for who in WORKERS))
        changes = told(log)
        assert [in_order(changes, who) for who in WORKERS] == [TOTALS, TOTALS]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda one: one.__name__)
def test_a_second_process_is_refused_and_follows_the_recipe_once_the_first_is_done(recipe, tmp_path):
    def work(who, wait):
        with ChangeLog.open(tmp_path / "log", wait=wait, **QUICK) as log:
            placed = recipe(tmp_path, log)
            with contextlib.closing(placed):
                for total in TOTALS:
                    placed.step(who, total)

    def refused():
        with pytest.raises(LogBusy):
            work("bob", 0)
        return True

    with ChangeLog.open(tmp_path / "log", **QUICK):
        assert in_child(refused)
    with child(lambda: work("bob", 60)) as other:
        work("ann", 60)
        other.result()
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        placed = recipe(tmp_path, log)
        with contextlib.closing(placed):
            placed.check()

"""Coroutines commit on threads of the log: no call of the application keeps them from it."""

import asyncio
import threading
from contextvars import ContextVar
from itertools import product

import pytest

import flow
from penstock_cdc.errors import LogClosed, LogForked, PenstockError
from penstock_cdc.mutations import schema
from penstock_cdc.types import TransactionState
from publishers import Position
from tests.forking import in_child
from tests.harness.inside import committer_of, files_of
from tests.harness.occupying import occupied_pool
from tests.publishers.support import Held, Probe, opened, order, wait_until

WRITTEN = {
    "small": lambda: [order(1)],
    "spooled": lambda: [order(n) for n in range(200)],
    "schema": lambda: [schema("order", {"type": "struct"}), order(1)],
    "nothing": list,
    "refused": lambda: [order("x" * 100_000)],
}


async def through_a_thread(log, mutations, **committing):
    return log.commit(mutations, **committing)


async def through_commit_async(log, mutations, **committing):
    return await log.commit_async(mutations, **committing)


async def through_a_block(log, mutations, **committing):
    tx = log.transaction(**committing)
    try:
        async with tx:
            tx.extend(mutations)
    except PenstockError:
        assert tx._state is TransactionState.FAILED
        raise
    return tx.commit


async def history(sync, commit):
    """What each kind of commit comes to, one after the other, and how far the log is then."""
    found = []
    with opened(sync=sync, sync_interval=60.0, spool_bytes=4096, max_change_bytes=50_000) as log:
        before = log.token(log.head)
        sequence = 0
        for what, durable, visible, late in product(WRITTEN, (False, True), (True, False), (False, True)):
            given = {
                "durable": durable,
                "visible": visible,
                "expect": before if late else log.token(log.head),
            }
            for _ in range(2):  # the second is a repetition
                sequence += late
                try:
                    outcome = (await commit(log, WRITTEN[what](), producer=("etl", sequence), **given))[:3]
                except PenstockError as error:
                    outcome = type(error)
                found.append((what, durable, visible, outcome, log.head, log.durable, log.withheld))
            log.publish(files_of(log).appended)
            sequence += 1
    return found


@pytest.mark.parametrize("sync", ["always", "interval", "os"])
async def test_coroutines_commit_as_threads_do_while_no_thread_of_the_default_pool_is_free(sync):
    """Acknowledged as early and as late, with the same outcomes and errors."""
    expected = await history(sync, through_a_thread)
    assert {type(outcome) for *_, outcome, _, _, _ in expected} == {tuple, type}
    async with occupied_pool():
        assert await history(sync, through_commit_async) == expected
        assert await history(sync, through_a_block) == expected


async def test_the_committing_thread_is_none_of_the_loop_and_has_served_its_subscribers():
    with opened() as log:
        threads = []

        class Noting(Probe):
            def on_next(self, change):
                threads.append(threading.current_thread())

        log.changes().subscribe(Noting(flow.UNBOUNDED), executor=flow.INLINE)
        for count in (1, 2):
            await log.commit_async([order(1)])
            assert len(threads) == 2 * count
        assert {thread.name.rpartition("_")[0] for thread in threads} == {"penstock-log-commits"}


async def test_as_many_commits_as_there_are_threads_share_a_write(monkeypatch):
    with opened(sync="always") as log:
        held = Held(log, monkeypatch)
        first = asyncio.ensure_future(log.commit_async([order(0)]))
        await asyncio.sleep(0)
        wait_until(held.inside.is_set)
        rest = [asyncio.ensure_future(log.commit_async([order(n)])) for n in range(1, 32)]
        await asyncio.sleep(0)
        wait_until(lambda: committer_of(log).waiting[0] == 31)
        held.go.set()
        await asyncio.gather(first, *rest)
        assert held.sizes == [1, 31]


async def test_a_commit_runs_in_the_context_of_its_caller():
    asked = ContextVar("asked")
    found = []

    def tracer(_log, write, changes, /, **committing):
        found.append(asked.get())
        return write(changes, **committing)

    with opened(tracer=tracer) as log:
        asked.set("by ann")
        await log.commit_async([order(1)])
    assert found == ["by ann"]


def test_a_wait_that_ended_with_its_loop_undoes_nothing_and_is_told_to_nobody(monkeypatch, caplog):
    with opened() as log:
        held = Held(log, monkeypatch)
        blocks = [log.transaction() for _ in range(2)]

        async def write(tx):
            async with tx:
                tx.upsert("order", "1", {})

        async def main():
            for tx in blocks:
                asyncio.ensure_future(write(tx))  # noqa: RUF006 - the end of the loop cancels it
            await asyncio.sleep(0)
            wait_until(held.inside.is_set)

        asyncio.run(main())
        held.go.set()
        wait_until(lambda: {tx._state for tx in blocks} == {TransactionState.COMMITTED})
        assert {tx.commit.version for tx in blocks} == {1, 2}
    assert not caplog.records


def test_a_child_of_fork_waits_for_no_thread_of_its_parent():
    with opened() as log:
        asyncio.run(log.commit_async([order(1)]))  # its thread is idle now
        tx = log.transaction()
        asyncio.run(tx.__aenter__())
        tx.upsert("order", "2", {})

        def run():
            for commit in (lambda: log.commit_async([order(2)]), lambda: tx.__aexit__(None, None, None)):
                with pytest.raises(LogForked):
                    asyncio.run(commit())
            return tx._state

        assert in_child(run) is TransactionState.FAILED
        asyncio.run(tx.__aexit__(None, None, None))
        assert log.head == Position(3)


async def test_a_log_that_closes_meanwhile_refuses(monkeypatch):
    """Between the look at it and the hand-over to its threads, too."""
    with opened() as log:
        tx = log.transaction()
        pool = log._commit_threads._pool
        submit = pool.submit

        def closing(*given):
            log.close()
            return submit(*given)

        monkeypatch.setattr(pool, "submit", closing)
        with pytest.raises(LogClosed):
            async with tx:
                tx.upsert("order", "1", {})
        assert tx._state is TransactionState.FAILED

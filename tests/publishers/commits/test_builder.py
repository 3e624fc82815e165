"""A transaction is filled in one block, and whatever is done outside of it is refused: nothing vanishes in silence."""

import asyncio
import threading

import pytest

import flow
from penstock_cdc.errors import InvalidTransactionState, LogClosed, PenstockError
from penstock_cdc.fields import set_field
from penstock_cdc.types import TransactionState
from publishers import Position, upsert
from tests.publishers.support import fill, wait_until

ADDING = {
    "upsert": lambda tx: tx.upsert("order", "1", {}, changes=[set_field("n", 1)]),
    "remove": lambda tx: tx.remove("order", "1"),
    "expire": lambda tx: tx.expire("order", "1"),
    "truncate": lambda tx: tx.truncate("order"),
    "rekey": lambda tx: tx.rekey("order", "1", "2", {}),
    "schema": lambda tx: tx.schema("order", {}),
    "extend": lambda tx: tx.extend([upsert("order", "1", {})]),
}


def left(log, state):
    """A transaction that has come to a state."""
    tx = log.transaction()
    try:
        with tx:
            tx.upsert("order", "1", {})
            if state is TransactionState.ROLLED_BACK:
                raise KeyError
            if state is TransactionState.FAILED:
                log.close()
    except (KeyError, LogClosed):
        pass
    return tx


def threads_of(log):
    """On which threads changes are committed from now on."""
    threads = []

    class Noting:
        def on_subscribe(self, subscription):
            subscription.request(flow.UNBOUNDED)

        def on_next(self, change):
            threads.append(threading.get_ident())

        def on_error(self, error):
            raise error

        def on_complete(self): ...

    log.changes().subscribe(Noting(), executor=flow.INLINE)
    return threads


@pytest.mark.parametrize("name", ADDING)
def test_what_is_added_before_the_block_is_refused(log, name):
    tx = log.transaction()
    with pytest.raises(
        InvalidTransactionState, match="was not entered; add changes in its block: with log"
    ) as one:
        ADDING[name](tx)
    assert isinstance(one.value, PenstockError)
    assert isinstance(one.value, RuntimeError)
    assert (one.value.log, one.value.state) == (log.name, TransactionState.NEW)
    with tx:
        ADDING[name](tx)
    assert (tx.commit.version, log.head) == (1, Position(2))


@pytest.mark.parametrize("name", ADDING)
@pytest.mark.parametrize(
    "state", [TransactionState.COMMITTED, TransactionState.ROLLED_BACK, TransactionState.FAILED]
)
def test_what_is_added_after_the_block_is_refused(log, name, state):
    tx = left(log, state)
    with pytest.raises(InvalidTransactionState, match=r"begin another one with log\.transaction") as refused:
        ADDING[name](tx)
    assert refused.value.state is state
    assert len(tx) == 1
    assert log.head == Position(2 if state is TransactionState.COMMITTED else 1)


def test_what_is_refused_is_not_gone_through(log):
    tx = left(log, TransactionState.COMMITTED)
    given = iter([upsert("order", "1", {})])
    with pytest.raises(InvalidTransactionState):
        tx.extend(given)
    assert len(list(given)) == 1


def test_a_transaction_that_nobody_entered_warns_with_the_name_of_the_log(log):
    with pytest.warns(ResourceWarning, match=f"a transaction of log '{log.name}' was never entered"):
        del [log.transaction(meta={"user": "ann"})][:]
    assert log.head == Position(1)


@pytest.mark.parametrize(
    "state", [TransactionState.COMMITTED, TransactionState.ROLLED_BACK, TransactionState.FAILED]
)
def test_a_transaction_is_entered_once(log, state):
    tx = left(log, state)
    with (
        pytest.raises(InvalidTransactionState, match=r"begin another one with log\.transaction") as refused,
        tx,
    ):
        pass
    assert refused.value.state is state
    assert log.head == Position(2 if state is TransactionState.COMMITTED else 1)


async def test_a_transaction_is_not_entered_inside_of_its_own_block(log):
    with log.transaction() as tx:
        tx.upsert("order", "1", {})
        for enter in (tx.__enter__, lambda: asyncio.run(tx.__aenter__())):
            with pytest.raises(InvalidTransactionState, match="was entered, and not left yet"):
                await asyncio.to_thread(enter)
    assert tx.commit.changes == 2


def test_an_empty_transaction_commits_nothing(log):
    for given in ({}, {"durable": True}, {"visible": False}):
        with log.transaction(**given) as tx:
            pass
        assert tx.commit is None
    assert (log.head, log.withheld) == (Position(1), None)


@pytest.mark.parametrize("given", [{"meta": {"user": "ann"}}, {"meta": {}}, {"producer": ("etl", 1)}])
def test_a_transaction_of_which_something_is_said_is_committed_without_changes_too(log, given):
    """F21."""
    with log.transaction(**given) as tx:
        pass
    assert (tx.commit.version, tx.commit.changes) == (1, 1)
    assert log.history().changes[0].meta == given.get("meta")


def test_there_is_no_commit_to_tell_of_before_the_block_is_left_or_after_it_failed(log):
    tx = log.transaction()
    with pytest.raises(RuntimeError, match="leave its with block first"):
        _ = tx.commit
    with tx, pytest.raises(RuntimeError, match="leave its with block first"):
        _ = tx.commit
    assert tx.commit is None
    for state in (TransactionState.ROLLED_BACK, TransactionState.FAILED):
        with pytest.raises(RuntimeError, match="there is no commit to tell of"):
            _ = left(log, state).commit


async def test_an_asynchronous_block_commits_off_the_loop_and_nothing_on_an_exception(log):
    threads = threads_of(log)
    async with log.transaction() as tx:
        tx.upsert("order", "1", {})
    assert (tx.commit.version, tx.commit.changes) == (1, 2)
    assert threads
    assert threading.get_ident() not in threads

    async def fail():
        async with log.transaction() as tx:
            tx.upsert("order", "2", {})
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    async with log.transaction() as tx:
        pass
    assert tx.commit is None
    assert log.head == Position(2)


async def test_an_asynchronous_block_raises_what_the_commit_raises(log):
    tx = log.transaction()

    async def write():
        async with tx:
            tx.upsert("order", "1", {})
            log.close()

    with pytest.raises(LogClosed):
        await write()
    with pytest.raises(InvalidTransactionState, match="was not acknowledged"):
        _ = tx.commit


async def test_cancelling_the_wait_for_an_asynchronous_block_does_not_undo_the_commit(log, monkeypatch):
    begun, go, commit = threading.Event(), threading.Event(), log.commit

    def held(*args, **named):
        begun.set()
        assert go.wait(60)
        return commit(*args, **named)

    monkeypatch.setattr(log, "commit", held)
    tx = log.transaction()

    async def write():
        async with tx:
            tx.upsert("order", "1", {})

    task = asyncio.create_task(write())
    await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(InvalidTransactionState, match="is being committed"):
        tx.upsert("order", "2", {})
    go.set()
    await asyncio.to_thread(wait_until, lambda: log.head == Position(2))
    await asyncio.to_thread(wait_until, lambda: tx._state is TransactionState.COMMITTED)
    assert (tx.commit.version, tx.commit.changes) == (1, 2)


async def test_cancelling_inside_of_an_asynchronous_block_commits_nothing(log):
    inside = asyncio.Event()

    async def write():
        async with log.transaction() as tx:
            tx.upsert("order", "1", {})
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    fill(log, 1)
    assert log.head == Position(2)

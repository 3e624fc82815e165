"""RemoteLog.commit, transaction and commit_async against real servers."""

import asyncio
import gc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import InvalidChange, InvalidOption, InvalidTransactionState, TransactionTooLarge
from penstock_cdc.mutations import expire, schema
from publishers import ChangeLog, Content, Criterion, Position, Wait, rekey, remove, truncate, upsert
from publishers.commits.label import RemoteProducer
from publishers.model.change import time_of
from publishers.mutations.rows import flattened
from tests.harness.inside import appending_of, connection_of, connections_of, link_of, socket_of
from tests.publishers.support import Held, order, wait_until
from tests.transports.server.test_appending import WRITERS
from transports import Backoff, ConnectionLost, RemoteCommit, RemoteError, connect
from transports.codec.changes import changes_json, read_array

SOON = Backoff(first=0.01, limit=0.05)


@pytest.fixture
def writable(serving):
    return lambda **options: serving(**{"authorise": WRITERS, **options})


async def test_a_commit_is_durable_and_tells_where_to_go_on(writable, log):
    """F145: it is a commit as any other, with a cursor."""
    async with connect(writable().url) as remote:
        commit = await remote.commit_async([order(1), order(2)], meta={"by": "ann"})
        assert isinstance(commit, RemoteCommit)
        assert (commit.version, commit.changes, commit.duplicate) == (1, 3, False)
        assert commit.cursor == str(log.token(Position(2, 0)))
        assert time_of(commit.committed_at) == log.time_of(1)
        second = await remote.commit_async([order(3)], expect=commit.cursor, wait=Wait.VISIBLE)
        assert second.version == 2
        with pytest.raises(RemoteError) as found:
            await remote.commit_async([order(4)], expect=(commit.cursor, [("order", "3"), ("order", b"9")]))
        assert (found.value.code, found.value.data["key"], found.value.outcome) == (
            "EXPECTATION_FAILED",
            "3",
            "refused",
        )
    assert log.history().changes[0].meta == {"by": "ann"}


async def test_every_kind_of_change_arrives_as_it_is(writable, log, tmp_path):
    """F145: what is committed from afar is what is committed here."""
    mutations = [
        schema("order", {"type": "struct"}),
        upsert(
            "order", "1", {"a": 1, "b": [1]}, before={"a": 0}, changed=["a"], meta={"x": 1}, origin="here"
        ),
        rekey("order", "1", "2", {"a": 1}),
        remove("order", "2", before={"a": 1}),
        expire("order", "3"),
        truncate("item"),
    ]
    async with connect(writable().url) as remote:
        await remote.commit_async(mutations)
    with ChangeLog.open(tmp_path / "other") as other:
        other.commit(mutations)
        told = log.history(content=Content.BODY).changes[1:]
        assert told == other.history(content=Content.BODY).changes[1:]


async def test_a_transaction_is_filled_in_a_block(writable, log):
    """F145: on the loop with ``async with``, on another thread with ``with``."""
    async with connect(writable().url) as remote:
        async with remote.transaction(meta={"n": 1}, producer=("etl", 1)) as tx:
            tx.upsert("order", "1", {})
        assert tx.commit.version == 1
        assert log.produced(RemoteProducer("anonymous", "etl")).sequence == 1

        def elsewhere():
            with remote.transaction(log="shop", wait=Wait.ACCEPTED) as tx:
                tx.remove("order", "1")
            return tx.commit.version, remote.commit([order(2)]).version

        assert await asyncio.to_thread(elsewhere) == (2, 3)
        with pytest.raises(InvalidTransactionState, match=r"await log\.commit_async"):
            remote.commit([order(1)])
    assert log.visible == 3


async def test_many_are_under_way_at_once_in_order(writable, log, monkeypatch, until):
    """F145: and share group commits; a refusal refuses nothing else for good."""
    server = writable(appends=20)
    held = Held(log, monkeypatch)
    place = str(log.token(log.head))
    async with connect(server.url) as remote:
        # The first is alone in its group, so that the others have to queue behind it.
        work = [asyncio.ensure_future(remote.commit_async([order(0)]))]
        assert await asyncio.to_thread(held.inside.wait, 60)
        work += [
            asyncio.ensure_future(remote.commit_async([order(n)], expect=place if n == 30 else None))
            for n in range(1, 100)
        ]
        await until(lambda: log.statistics().queued > 1)
        held.go.set()
        results = await asyncio.gather(*work, return_exceptions=True)
    assert isinstance(results.pop(30), RemoteError)
    assert [one.version for one in results] == list(range(1, 100))
    assert max(held.sizes) > 1
    keys = [one.key for one in log.history(Criterion(entity_types={"order"}), limit=1000).changes]
    assert keys == [str(n) for n in range(100) if n != 30]


async def test_what_is_wrong_is_raised_before_anything_is_sent(writable, log):
    """F145."""
    async with connect(writable(message_bytes=10_000).url) as remote:
        with pytest.raises(InvalidChange):
            await remote.commit_async([7])
        with pytest.raises(InvalidChange, match="UTF-8"):
            await remote.commit_async([upsert("order", b"\xff", {})])
        with pytest.raises(InvalidOption):
            await remote.commit_async([order(1)], expect=7)
        with pytest.raises(ValueError, match="sometime"):
            await remote.commit_async([order(1)], wait="sometime")
        with pytest.raises(TransactionTooLarge, match="a change has"):
            await remote.commit_async([upsert("order", "1", {"pad": "x" * 20_000})])
        with pytest.raises(TransactionTooLarge, match="POST /changes"):
            await remote.commit_async([order(1)], meta={"pad": "x" * 20_000})
        assert (await remote.commit_async([order(1)])).version == 1


async def test_what_is_not_answered_is_sent_again_after_a_cut(writable, log, monkeypatch):
    """F145: and written once, although it was written before the cut."""
    server = writable()
    held = Held(log, monkeypatch)
    async with connect(server.url, reconnect=SOON) as remote:
        work = [asyncio.ensure_future(remote.commit_async([order(n)])) for n in range(30)]
        assert await asyncio.to_thread(held.inside.wait, 60)
        first = set(connections_of(server.application))
        socket_of(connection_of(link_of(remote))).transport.abort()
        await asyncio.to_thread(wait_until, lambda: not first & connections_of(server.application))
        held.go.set()
        commits = await asyncio.gather(*work)
        assert sorted(one.version for one in commits) == list(range(1, 31))
    assert log.visible == 30
    keys = [one.key for one in log.history(Criterion(entity_types={"order"}), limit=1000).changes]
    assert keys == [str(n) for n in range(30)]


async def test_without_reconnecting_a_cut_tells_what_is_unknown(writable, log, monkeypatch):
    """F145: what was under way; what is committed later is refused."""
    server = writable()
    held = Held(log, monkeypatch)
    async with connect(server.url) as remote:
        work = asyncio.ensure_future(remote.commit_async([order(1)]))
        assert await asyncio.to_thread(held.inside.wait, 60)
        socket_of(connection_of(link_of(remote))).transport.abort()
        with pytest.raises(ConnectionLost) as found:
            await work
        assert found.value.outcome == "unknown"
        with pytest.raises(ConnectionLost):
            await remote.commit_async([order(1)])
        held.go.set()


async def test_a_server_that_restarts_is_waited_for(writable, log):
    """F145: what it refuses because it stops is written by the next one."""
    server = writable()
    async with connect(server.url, reconnect=SOON) as remote:
        assert (await remote.commit_async([order(0)])).version == 1
        await asyncio.to_thread(server.stop)
        work = [asyncio.ensure_future(remote.commit_async([order(n)])) for n in range(1, 20)]
        again = await asyncio.to_thread(writable, port=server.port)
        assert [one.version for one in await asyncio.gather(*work)] == list(range(2, 21))
        assert again.application.connections == 1


async def test_a_server_without_room_is_asked_again(writable, log, monkeypatch):
    """F145: a program notices nothing."""
    server = writable(appending_bytes=4_000)
    held = Held(log, monkeypatch)
    async with connect(server.url) as one, connect(server.url) as other:
        first = asyncio.ensure_future(one.commit_async([upsert("order", "1", {"pad": "x" * 1500})]))
        assert await asyncio.to_thread(held.inside.wait, 60)
        second = asyncio.ensure_future(other.commit_async([upsert("order", "2", {"pad": "x" * 1500})]))
        await asyncio.to_thread(wait_until, lambda: server.application._errors["TOO_COSTLY"])
        held.go.set()
        assert sorted([(await first).version, (await second).version]) == [1, 2]


def large(count, name="", size=1000):
    return [upsert("order", f"{name}{number}", {"pad": "x" * size}) for number in range(count)]


async def test_a_transaction_of_any_size_simply_works(writable, log):
    """F145: what is larger than a message is sent in parts, and is one transaction; those around it stay in order."""
    server = writable(message_bytes=20_000, append_bytes=100_000)
    appending = appending_of(server.application)
    async with connect(server.url) as remote:
        work = [
            asyncio.ensure_future(one)
            for one in (
                remote.commit_async([order("before")]),
                remote.commit_async(large(1000), meta={"by": "ann"}, producer=("etl", 1)),
                remote.commit_async(large(100, "small ")),
                remote.commit_async([order("behind")]),
            )
        ]
        commits = await asyncio.gather(*work)
        assert [(one.version, one.changes) for one in commits] == [(1, 2), (2, 1001), (3, 101), (4, 2)]
        again = await asyncio.to_thread(remote.commit, large(1000), producer=("etl", 1))
        assert (again.version, again.duplicate) == (2, True)
        with pytest.raises(RemoteError) as found:
            await remote.commit_async(large(1000), expect=commits[0].cursor)
        assert (found.value.code, found.value.outcome) == ("EXPECTATION_FAILED", "refused")
        async with remote.transaction() as tx:
            for change in large(50):
                tx.upsert("order", change.key, change.body)
        assert tx.commit.version == 5
    keys = [one.key for one in log.history(Criterion(entity_types={"order"}), limit=2000).changes]
    assert keys[:3] == ["before", "0", "1"]
    assert log.history(Criterion(), since=Position(2, 0), limit=1).changes[0].meta == {"by": "ann"}
    await asyncio.to_thread(wait_until, lambda: not appending.transactions)
    assert (appending.spooled.taken, appending.unanswered.taken, appending.memory.taken) == (0, 0, 0)


async def test_connections_that_are_cut_between_parts_cost_nothing_but_time(writable, log):
    """F145: what came is dropped, all is sent again, and is written once."""
    server = writable(message_bytes=5_000, append_bytes=20_000)
    appending = appending_of(server.application)
    async with connect(server.url, reconnect=SOON) as remote:
        for cut in range(1, 6):
            session = link_of(remote)._session.appends
            spooled, left = session.spooled, [5 * cut]

            def spooling(reply, spooled=spooled, left=left):
                left[0] -= 1
                if left[0] == 0:
                    socket_of(connection_of(link_of(remote))).transport.abort()
                return spooled(reply)

            session.spooled = spooling
            work = asyncio.ensure_future(remote.commit_async(large(200, f"{cut} ")))
            follower = asyncio.ensure_future(remote.commit_async([order(f"behind {cut}")]))
            assert ((await work).version, (await follower).version) == (2 * cut - 1, 2 * cut)
            session.spooled = spooled
            assert left[0] <= 0
    assert log.visible == 10
    await asyncio.to_thread(wait_until, lambda: not appending.transactions)
    await asyncio.to_thread(wait_until, lambda: not appending.spooled.taken)
    assert (appending.unanswered.taken, appending.memory.taken) == (0, 0)


async def test_a_wait_that_is_cancelled_does_not_undo_the_commit(writable, log, monkeypatch):
    """F145."""
    server = writable()
    held = Held(log, monkeypatch)
    async with connect(server.url) as remote:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await remote.commit_async([order(1)])
        held.go.set()
        assert (await remote.commit_async([order(2)])).version == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.text(min_size=1, max_size=5), st.booleans(), st.integers(0, 2**53)
        ),
        max_size=6,
    )
)
def test_what_is_sent_is_read_as_what_it_was(rows):
    """F145: over JSON and back."""
    mutations = [
        remove(kind, key, before={"n": number}, meta={"n": number})
        if gone
        else upsert(kind, key, {"n": number}, schema_version=number)
        for kind, key, gone, number in rows
        if not any(0xD800 <= ord(one) < 0xE000 for one in key)
    ]
    assert read_array(msgspec.json.encode(changes_json(mutations))) == flattened(mutations)


@pytest.mark.filterwarnings("error")
def test_a_commit_before_the_connection_is_opened_begins_nothing():
    """F145."""
    with pytest.raises(ConnectionLost, match="it was not opened"):
        connect("ws://127.0.0.1:1/ws").commit([order(1)])
    gc.collect()  # a coroutine that was made and not awaited would complain now

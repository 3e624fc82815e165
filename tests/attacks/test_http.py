"""HTTP clients that ask and leave, that ask and do not read, and that ask for ever."""

import asyncio
import json
import socket
import threading
import urllib.parse

import pytest

from publishers.criteria.predicate import Predicate
from tests.attacks.conftest import leaves_nothing
from tests.attacks.test_graphql import DOCUMENTS, post
from tests.harness.constants import set_constant
from tests.harness.inside import loop_of, pools_of, thread_of, uvicorn_of
from transports.quotas.pool import Pool

NOTHING = '{ history(criteria: [{keys: ["never"]}]) { next } }'
WHOLE = "{ history(limit: 1000) { changes { body } } }"


class Slices:
    """Scans of records for a key that does not exist; each record waits until it may be read.

    Attributes:
        read: How many were begun.
        go_on: Set it, and all are read at once.
    """

    def __init__(self):
        self.read = 0
        self.go_on = threading.Event()


@pytest.fixture
def slices(monkeypatch):
    found, real = Slices(), Predicate.select

    def select(self, block):
        if self.criteria.criterions and "never" in str(self.criteria):
            found.read += 1
            assert found.go_on.wait(60)
        return real(self, block)

    monkeypatch.setattr(Predicate, "select", select)
    yield found
    found.go_on.set()


def ask(server, query, source="127.0.0.1", receive_buffer=None):
    """A connection on which a query was sent."""
    client = socket.socket()
    if receive_buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.bind((source, 0))
    client.settimeout(60)
    client.connect(("127.0.0.1", server.port))
    asked = urllib.parse.urlencode({"query": query})
    client.sendall(
        f"GET /graphql?{asked} HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n\r\n".encode()
    )
    return client


async def answered(client):
    """The answer on a connection."""

    def work():
        with client, client.makefile("rb") as lines:
            status = int(lines.readline().split()[1])
            length = 0
            while line := lines.readline().strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            return status, json.loads(lines.read(length))

    return await asyncio.to_thread(work)


async def test_abandoned_scans_end_at_their_next_record_and_stop_nobody(serving, beside, fill, slices, until):
    """F147: twenty queries that read the whole log for nothing, and nobody waits for their answers."""
    fill(50)
    server = serving()
    pool = pools_of(server.application).scanning
    async with beside(server) as commit:
        clients = [ask(server, NOTHING) for _ in range(20)]
        await until(lambda: (slices.read, pool.waiting) == (4, 16))
        await commit()
        for client in clients:
            client.close()
        await until(lambda: pool.waiting == 0 and all(turn._cancelled for turn in list(pool._running)))
        slices.go_on.set()
        status, _ = await answered(ask(server, "{ logs { name } }"))
        assert status == 200
        await until(lambda: pool.held == pool.running == 0)
        assert slices.read == 4, "each had begun one record, and none has begun another"


async def test_one_client_leaves_threads_to_the_others(serving, beside, fill, slices, until):
    """F147: a client is told by its address, however many connections it makes."""
    fill(5)
    server = serving()
    pool = pools_of(server.application).scanning
    async with beside(server) as commit:
        clients = [ask(server, NOTHING) for _ in range(20)]
        await until(lambda: (slices.read, pool.waiting) == (4, 16))
        status, answer = await answered(ask(server, WHOLE, source="127.0.0.2"))
        assert (status, len(answer["data"]["history"]["changes"])) == (200, 10)
        await commit()
        assert (pool.running, pool.waiting) == (4, 16)
        assert sum(thread.name == "penstock-scan" for thread in threading.enumerate()) <= 8
        slices.go_on.set()
        for client in clients:
            status, answer = await answered(client)
            assert (status, "errors" in answer) == (200, False)


async def test_what_waits_is_bounded_and_what_is_beyond_is_refused_for_now(serving, fill, slices, until):
    """F147."""
    fill(1)
    server = serving(scans_waiting=3, scan_threads=1)
    pool = pools_of(server.application).scanning
    clients = [ask(server, NOTHING) for _ in range(4)]
    await until(lambda: (slices.read, pool.waiting) == (1, 3))
    status, answer = await answered(ask(server, NOTHING))
    assert status == 503
    (error,) = answer["errors"]
    assert (error["extensions"]["code"], error["extensions"]["retryable"]) == ("TOO_COSTLY", True)
    assert error["extensions"]["option"] == "scans_waiting"
    slices.go_on.set()
    for client in clients:
        assert (await answered(client))[0] == 200


def cut_off(client):
    """Reads what is there; it ends before the answer does."""
    with client:
        read = 0
        try:
            while found := client.recv(1 << 20):
                read += len(found)
        except ConnectionResetError:
            pass
        assert read < 4_000_000


async def test_who_does_not_read_an_answer_is_cut_off_and_holds_one_piece_of_it_meanwhile(
    serving, beside, fill, until
):
    """F147: of an answer of ten megabytes one piece is unsent, and the share of the client is its own only."""
    fill(100, body="x" * 50_000)
    server = serving(stall_timeout=0.5, scan_threads=4)
    pool = pools_of(server.application).scanning
    unsent = []
    async with beside(server) as commit:
        clients = [ask(server, WHOLE, receive_buffer=4096) for _ in range(6)]

        def buffers():
            return [
                one.transport.get_write_buffer_size() for one in uvicorn_of(server).server_state.connections
            ]

        await until(lambda: pool.held == 2 and pool.running == 0 and any(buffers()))
        unsent += buffers()
        await commit()
        status, _ = await answered(ask(server, WHOLE, source="127.0.0.2"))
        assert status == 200
        await until(lambda: pool.held == pool.waiting == 0)
        for client in clients:
            await asyncio.to_thread(cut_off, client)
        assert server.application._costs()["ended"] == {"HTTP_STALLED": 6}
    assert 0 < max(unsent) <= 2 * 64 * 1024


async def test_attackers_that_have_gone_leave_their_memory_behind_them(serving, beside, fill, until):
    """F147: answers that nobody read, and documents that were refused; what is traced is back within a tenth."""
    fill(40, body="x" * 20_000)
    server = serving()
    pool = pools_of(server.application).scanning

    async def attack():
        clients = [ask(server, WHOLE, receive_buffer=4_096) for _ in range(12)]
        for text in DOCUMENTS.values():
            assert (await post(server, text))[0] == 400
        await until(lambda: pool.held >= 4)
        for client in clients:
            client.close()
        await until(lambda: pool.held == pool.running == pool.waiting == 0)

    async with beside(server) as commit:
        await leaves_nothing(attack, commit)


async def test_who_reads_slowly_gets_everything(serving, fill, until):
    """F147: any progress is progress."""
    fill(20, body="x" * 50_000)
    server = serving(stall_timeout=2.0)
    client = ask(server, WHOLE, receive_buffer=4096)
    status, answer = await answered(client)
    assert (status, len(answer["data"]["history"]["changes"])) == (200, 40)


@pytest.mark.parametrize("kind", ["a scan", "an answer that is not read"])
async def test_the_server_ends_whatever_runs(serving, fill, slices, until, kind):
    """F147: within ``close_timeout``, also while a scan cannot be ended."""
    fill(100, body="x" * 50_000)
    server = serving(close_timeout=0.3, stall_timeout=60.0)
    pool = pools_of(server.application).scanning
    client = ask(server, NOTHING if kind == "a scan" else WHOLE, receive_buffer=4096)
    await until(lambda: slices.read == 1 if kind == "a scan" else (pool.held, pool.running) == (1, 0))
    await asyncio.to_thread(server.stop)
    assert not thread_of(server).is_alive()
    assert pool.running == (1 if kind == "a scan" else 0)
    client.close()
    slices.go_on.set()
    await until(lambda: pool.running == 0)


# The threads themselves.


def test_clients_are_served_in_turn(until):
    pool, go_on, order = Pool("test", 1, 1, 100), threading.Event(), []
    first = pool.submit("first", lambda _: go_on.wait(60))
    turns = [
        pool.submit(client, lambda _, client=client: order.append(client))
        for client in ("a", "a", "a", "b", "c", "b")
    ]
    go_on.set()
    for turn in (first, *turns):
        turn.result.result(60)
    assert order == ["a", "b", "c", "a", "b", "a"]


def test_a_share_that_is_held_ends_once(until):
    pool = Pool("test", 4, 1, 100)
    held = pool.submit("a", lambda _: 1, held=True)
    assert held.result.result(60) == 1
    other = pool.submit("a", lambda _: 2)
    assert (pool.waiting, pool.held) == (1, 1)
    held.release()
    held.release()
    assert other.result.result(60) == 2


async def test_an_idle_pool_has_no_threads_and_a_closed_one_takes_nothing(until):
    from transports.errors import GoingAway

    pool = Pool("test-idle", 4, 4, 100)
    assert await pool.run("a", lambda: 7) == 7
    await until(lambda: not any(one.name == "penstock-test-idle" for one in threading.enumerate()))
    go_on = threading.Event()
    running = pool.submit("a", lambda turn: (go_on.wait(60), turn.check()))
    single = Pool("test-idle", 1, 1, 100)
    busy, waiting = single.submit("a", lambda _: go_on.wait(60)), single.submit("a", lambda _: 1)
    for one in (pool, single):
        one.close()
        with pytest.raises(GoingAway):
            one.submit("a", lambda _: 1)
    with pytest.raises(GoingAway):
        waiting.result.result(60)
    go_on.set()
    with pytest.raises(GoingAway):
        running.result.result(60)
    assert busy.result.result(60)
    await until(lambda: pool.held == single.held == 0)


# What is asked of the server itself.


async def test_statistics_cost_the_same_however_many_subscribe(
    serving, beside, log, until, watched, monkeypatch
):
    """F147: a thousand subscriptions; 64 are listed, all are counted, and none of it takes place on the loop."""
    from publishers.criteria.criteria import Criterion
    from publishers.fanout.subscription import ChangeSubscription
    from tests.flow.probes import Probe

    server = serving()
    asked, threads, real = [], set(), ChangeSubscription.checkpoint

    def checkpoint(self):
        asked.append(self)
        threads.add(threading.current_thread().name)
        return real(self)

    probes = [Probe() for _ in range(1_000)]
    for number, probe in enumerate(probes):
        log.changes(Criterion(keys={f"k{number % 100}"})).subscribe(probe)
    async with beside(server) as commit:
        assert (await answered(get(server, "/statistics")))[0] == 200  # what is made once
        await until(lambda: loop_time(server) >= server.application._status._statistics._until)
        monkeypatch.setattr(ChangeSubscription, "checkpoint", checkpoint)
        turns = watched(server)
        status, told = await answered(get(server, "/statistics"))
        monkeypatch.undo()
        await commit()
    assert status == 200
    shop = told["logs"]["shop"]
    assert (shop["publisherCount"], shop["subscriptionCount"], shop["lagging"]) == (101, 1_001, 0)
    assert len(shop["publishers"]) == 64
    assert {one["subscriptionCount"] for one in shop["publishers"]} == {10}
    assert (len(asked), threads) == (640, {"penstock-gather"})
    assert turns.longest < 5_000
    for probe in probes:
        probe.subscription.cancel()
    await until(lambda: log.statistics(listed=0).subscription_count == 0)


def loop_time(server):
    return loop_of(server).time()


async def test_many_who_ask_for_statistics_are_told_the_same_ones(serving, beside, monkeypatch):
    """F147."""
    from transports.server import status

    gathered, real = [], status.statistics
    monkeypatch.setattr(status, "statistics", lambda *a, **n: gathered.append(1) or real(*a, **n))
    set_constant(monkeypatch, status, "_AGE", 60.0)
    server = serving()
    async with beside(server):
        answers = await asyncio.gather(*(answered(get(server, "/statistics")) for _ in range(50)))
    assert {status for status, _ in answers} == {200}
    assert len(gathered) == 1


def get(server, path):
    client = socket.create_connection(("127.0.0.1", server.port), 60)
    client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    return client

"""Groups over the network: the Python client against our server."""

import asyncio

import pytest

from flow.bridges.iterators import aiter as iterate
from publishers import ChangeLog, Criterion, upsert
from publishers.errors import InvalidOption, LogForked
from publishers.views.view import Integers
from tests.harness.inside import connections_of, link_of, loop_of
from transports import Backoff, ConnectionLost, Grant, LogAction, connect, serve
from transports.client.remote_groups import RemoteGroups
from transports.codec.groups import MemberReply
from transports.codec.replies import GroupReply, JoinedReply
from transports.protocol.client import ClientSession
from transports.protocol.client_consumers import Called, ClientConsumer

QUICK = Backoff(first=0.01, limit=0.05)
DEADLINE = 120.0
WORKER = Grant({LogAction.CONSUME}, groups=["pick*"])


@pytest.fixture
def group(log):
    return log.groups.create("pickers", Criterion(entity_types={"order"}), since="earliest", ack_wait=600.0)


@pytest.fixture
def put(log):
    def put(*keys):
        for key in keys:
            log.commit([upsert("order", key, {"key": key})])

    return put


def cut(server):
    """Cuts every connection off, as a network does."""
    for connection in list(connections_of(server.application)):
        loop_of(server).call_soon_threadsafe(link_of(connection).abort)


async def test_a_consumer_goes_on_over_lost_connections_with_its_generation(serving, group, put):
    """F84: what has come is its own, what has not comes again, and each counts as one delivery."""
    put(*map(str, range(40)))
    server, seen = serving(authorise=WORKER, grace=600.0), []
    async with asyncio.timeout(DEADLINE), connect(server.url, reconnect=QUICK) as remote:
        worker = remote.group("pickers", "w1")
        async with iterate(worker.deliveries(window=4), prefetch=4) as deliveries:
            async for delivery in deliveries:
                seen.append((delivery.change.key, delivery.count))
                if len(seen) % 8 == 0:
                    cut(server)
                await worker.ack(delivery)
                if len(seen) == 40:
                    break
            assert sorted(seen) == sorted((str(number), 1) for number in range(40))
            assert worker.generation == 1
    assert group.info().acked == 40


async def test_a_consumer_goes_on_over_a_restart_of_the_server_and_its_log(tmp_path):
    """F84, F85: with a new generation; what was not acknowledged comes again, and what is buffered of before is dropped."""

    def opened():
        return ChangeLog.open(tmp_path / "shop")

    log = opened()
    log.groups.create("pickers", since="earliest")
    for key in "123":
        log.commit([upsert("order", key, {})])
    server = serve(log, authorise=WORKER)
    port = server.port
    async with asyncio.timeout(DEADLINE), connect(server.url, reconnect=QUICK) as remote:
        worker = remote.group("pickers", "w1")
        async with iterate(worker.deliveries(), prefetch=1) as deliveries:
            first = await anext(deliveries)
            assert await worker.ack(first, durable=True) == 1
            await asyncio.to_thread(server.stop)
            log.close()
            log = opened()
            server = serve(log, authorise=WORKER, port=port)
            seen = set()
            while seen != {"2", "3"}:
                delivery = await anext(deliveries)
                seen.add(delivery.change.key)
                await worker.ack(delivery)
            assert worker.generation == 2
    server.stop()
    log.close()


async def test_a_consumer_says_what_is_wrong_before_anything_is_sent(serving, group):
    async with connect(serving(authorise=WORKER).url) as remote:
        for wrong in (
            lambda: remote.group("Pickers", "w"),
            lambda: remote.group("pickers", ""),
            lambda: remote.group("pickers", "w", history=1),
            lambda: remote.group("pickers", "w").deliveries(window=0),
        ):
            with pytest.raises(InvalidOption):
                wrong()
        worker = remote.group("pickers", "w", integers=Integers.TEXT, history=True)
        with pytest.raises(ConnectionLost, match="has not joined"):
            await worker.pending()
        await worker.close()
        async with iterate(worker.deliveries(), prefetch=1):
            assert (await worker.pending()).total == 0
            with pytest.raises(InvalidOption, match="subscription"):
                async with iterate(worker.deliveries(), prefetch=1) as again:
                    await anext(again)
            waiting = asyncio.create_task(worker.pending())
            await asyncio.sleep(0)
            await worker.close()
            with pytest.raises(ConnectionLost):
                await waiting
        with pytest.raises(ConnectionLost, match="left"):
            await worker.pending()
        link_of(remote).inherited = LogForked("here", 1, "connect here")
        with pytest.raises(LogForked):
            await worker.pending()
        link_of(remote).inherited = None


def test_what_was_not_answered_is_said_again_but_a_claim():
    """On the next connection, in order, within the window of the server."""
    session = ClientSession(lambda _: None)
    consumer = ClientConsumer(session.name(), {"group": "g", "consumer": "c"})
    joined = JoinedReply("1", "log", MemberReply("g", "c", 3))
    calls = [consumer.call(do, {}) for do in ("ack", "claim", "nack", "ack")]
    assert consumer.unsent() == []  # it has not joined
    assert consumer.joined(joined, 3) == []
    assert [call["n"] for call in consumer.unsent()] == calls[:3]
    assert consumer.unsent() == []
    (answered,) = consumer.answered(GroupReply("1", calls[0]))
    assert (answered.n, answered.error) == (calls[0], None)
    assert consumer.answered(GroupReply("1", calls[0])) == []
    assert [call["n"] for call in consumer.unsent()] == calls[3:]
    assert consumer.payload()["generation"] == 3
    assert consumer.unsent() == []
    (lost,) = consumer.joined(joined, 3)
    assert isinstance(lost, Called)
    assert (lost.n, lost.error.code) == (calls[1], "CONNECTION_LOST")
    assert [call["n"] for call in consumer.unsent()] == calls[2:]
    (refused,) = consumer.answered(GroupReply("1", calls[2], error={"code": "FENCED", "message": "no"}))
    assert refused.error.code == "FENCED"


async def test_dead_letters_come_by_pages_and_a_wait_that_is_given_up_ends_nothing():
    asked, answer = [], asyncio.Event()
    pages = {None: (["a", "b"], "2"), "2": ([], "3"), "3": (["c"], None)}

    async def ask(question):
        asked.append(question.after)
        await answer.wait()
        letters, following = pages[question.after]
        return {"letters": letters, "next": following}

    letters = RemoteGroups(ask).dead_letters("pickers")
    given_up = asyncio.ensure_future(anext(letters))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    answer.set()
    assert [letter async for letter in letters] == ["a", "b", "c"]
    assert asked == [None, None, "2", "3"]

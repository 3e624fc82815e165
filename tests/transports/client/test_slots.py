"""Slots over the network: the Python client against our server."""

import asyncio
import threading

import pytest

from flow.bridges.iterators import aiter as iterate
from publishers import ChangeLog, Criterion, Position, upsert
from publishers.errors import InvalidOption, LogForked, PositionMalformed
from publishers.slots import SlotState
from publishers.slots.errors import AckAhead, SlotsUnwritten
from tests.harness.inside import connections_of, link_of, loop_of
from transports import Backoff, ConnectionLost, Grant, LogAction, RemoteError, connect, serve

QUICK = Backoff(first=0.01, limit=0.05)
DEADLINE = 120.0
CONSUMER = Grant({LogAction.CONSUME}, slots=["stock*"])


@pytest.fixture
def slots(log):
    log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest")
    return log.slots


@pytest.fixture
def put(log):
    def put(*keys):
        return [log.commit([upsert("order", key, {"key": key})]).version for key in keys]

    return put


def cut(server):
    """Cuts every connection off, as a network does."""
    for connection in list(connections_of(server.application)):
        loop_of(server).call_soon_threadsafe(link_of(connection).abort)


async def test_a_consumer_goes_on_over_lost_connections_with_its_generation(serving, slots, put, log, until):
    """F74: nothing comes twice, and what was acknowledged before counts."""
    put(*map(str, range(40)))
    server, seen = serving(authorise=CONSUMER, grace=600.0), []
    async with asyncio.timeout(DEADLINE), connect(server.url, reconnect=QUICK) as remote:
        slot = remote.slot("stock")
        async with iterate(slot.changes(window=4), prefetch=4) as changes:
            async for change in changes:
                seen.append(change.key)
                if len(seen) % 8 == 0:
                    cut(server)
                slot.ack(change)
                if len(seen) == 40:
                    await slot.ack_durably(change)
                    break
                await asyncio.sleep(0)
        assert seen == [str(number) for number in range(40)]
        assert slot.generation == 1
        assert slot.cursor == str(log.token(log.head))
        assert not slots.info("stock").unsynced


async def test_a_consumer_goes_on_over_a_restart_of_the_server_and_its_log(tmp_path, until):
    """F74, F85: nobody has had the slot meanwhile, so nothing that it has comes again."""

    def opened():
        return ChangeLog.open(tmp_path / "shop")

    log = opened()
    log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest")
    for key in "123":
        log.commit([upsert("order", key, {})])
    server = serve(log, authorise=CONSUMER)
    port = server.port
    async with asyncio.timeout(DEADLINE), connect(server.url, reconnect=QUICK) as remote:
        slot = remote.slot("stock")
        async with iterate(slot.changes(), prefetch=8) as changes:
            first = await anext(changes)
            await slot.ack_durably(first)
            second = await anext(changes)
            slot.ack(second)
            await asyncio.to_thread(server.stop)
            log.close()
            log = opened()
            log.commit([upsert("order", "4", {})])
            server = serve(log, authorise=CONSUMER, port=port)
            third = await anext(changes)
            await slot.ack_durably(second)
            assert (third.key, (await anext(changes)).key) == ("3", "4")
            assert slot.generation == 2
            assert slot.cursor == second.cursor
    server.stop()
    log.close()


async def test_what_was_not_delivered_is_refused_at_once(serving, slots, put, log):
    put(*"123456789")
    async with connect(serving(authorise=CONSUMER).url) as remote:
        slot = remote.slot("stock")
        assert (slot.generation, slot.cursor) == (None, None)
        with pytest.raises(ConnectionLost, match="slot 'stock' is not open"):
            slot.ack("x")
        async with iterate(slot.changes(), prefetch=1) as changes:
            change = await anext(changes)
            with pytest.raises(AckAhead):
                slot.ack(str(log.token(log.head)))
            with pytest.raises(PositionMalformed):
                slot.ack("x")
            for wrong in (Position(1), None, 3):
                with pytest.raises(InvalidOption):
                    slot.ack(wrong)
                with pytest.raises(InvalidOption):
                    await slot.ack_durably(wrong)
            slot.ack(change)
            slot.ack(change)  # what lies behind is ignored
            await slot.ack_durably(change)
            assert slot.cursor == change.cursor
        with pytest.raises(ConnectionLost, match="is not open"):
            slot.ack(change)
        await slot.close()


async def test_a_durable_acknowledgement_is_told_why_it_is_not(serving, slots, put, until, monkeypatch):
    """F85: it is noted all the same, and may be tried again."""
    put("1", "2")
    async with connect(serving(authorise=CONSUMER).url) as remote:
        slot = remote.slot("stock")
        async with iterate(slot.changes(), prefetch=1) as changes:
            change = await anext(changes)
            with monkeypatch.context() as broken:

                def full():
                    raise SlotsUnwritten("no room")

                broken.setattr(slots.book, "flush", full)
                with pytest.raises(RemoteError) as caught:
                    await slot.ack_durably(change)
                assert (caught.value.code, caught.value.retryable) == ("SLOTS_UNWRITTEN", True)
            await asyncio.gather(slot.ack_durably(change), slot.ack_durably(change))
            with monkeypatch.context() as stuck:
                goes_on = threading.Event()
                stuck.setattr(slots.book, "flush", goes_on.wait)
                waits = asyncio.ensure_future(slot.ack_durably(change))
                await asyncio.sleep(0)
                await slot.close()  # what was not answered is answered now
                with pytest.raises(ConnectionLost):
                    await waits
                goes_on.set()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "Stock"}, "name is 'Stock'"),
        ({"owner": ""}, "owner is ''"),
        ({"owner": 5}, "owner is 5"),
        ({"take_over": 1}, "take_over"),
    ],
)
def test_wrong_options_are_named(options, says):
    with pytest.raises(InvalidOption, match=says):
        connect("ws://127.0.0.1:1/ws").slot(**{"name": "stock", **options})


def test_a_window_has_bounds():
    with pytest.raises(InvalidOption, match="window is 0"):
        connect("ws://127.0.0.1:1/ws").slot("stock").changes(window=0)


async def test_a_child_of_fork_may_not_acknowledge(serving, slots, put):
    put("1")
    async with connect(serving(authorise=CONSUMER).url) as remote:
        slot = remote.slot("stock")
        async with iterate(slot.changes(), prefetch=1) as changes:
            change = await anext(changes)
            link_of(remote).inherited = LogForked("shop", 1, "connect here")
            with pytest.raises(LogForked):
                slot.ack(change)
            link_of(remote).inherited = None


async def test_what_was_acknowledged_right_before_the_end_is_sent(serving, slots, put, until):
    """F74: leaving the connection does not drop it."""
    put("1", "2")
    async with connect(serving(authorise=CONSUMER).url) as remote:
        slot = remote.slot("stock")
        async with iterate(slot.changes(), prefetch=1) as changes:
            slot.ack(await anext(changes))
    await until(lambda: slots.info("stock").state is SlotState.FREE)
    assert slots.info("stock").position == Position(2)

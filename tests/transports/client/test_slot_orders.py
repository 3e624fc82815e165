"""Slots from afar, beside opening them: the Python client against our server."""

import asyncio

import pytest

from flow.bridges.iterators import aiter as iterate
from publishers import Criterion, PageSource, upsert
from publishers.errors import InvalidOption
from tests.harness.inside import connections_of, link_of, loop_of
from transports import Backoff, ConnectionLost, Grant, LogAction, RemoteError, connect

QUICK = Backoff(first=0.01, limit=0.05)
CONSUMER = Grant({LogAction.CONSUME}, slots=["stock*"])
ORDERS = Criterion(entity_types={"order"})


@pytest.fixture
def put(log):
    def put(*keys):
        return [log.commit([upsert("order", key, {"key": key})]).version for key in keys]

    return put


@pytest.mark.parametrize(
    ("ask", "code", "says"),
    [
        (lambda slots: slots.info("other"), "FORBIDDEN", "slot.name"),
        (lambda slots: slots.create("other"), "FORBIDDEN", "slot.name"),
        (lambda slots: slots.create("stock-9", copy_from="other"), "FORBIDDEN", "slot.name"),
        (lambda slots: slots.drop("other"), "FORBIDDEN", "slot.name"),
        (lambda slots: slots.info("stock-9"), "SLOT_NOT_FOUND", "no slot"),
        (lambda slots: slots.create("stock"), "SLOT_EXISTS", "already"),
        (lambda slots: slots.seek("stock", 99), "CURSOR_AHEAD", "beyond the end"),
        (lambda slots: slots.of("nothing").list(), "LOG_NOT_FOUND", "nothing"),
    ],
)
async def test_what_is_refused_is_named(serving, log, ask, code, says):
    """F88: and nothing was done."""
    log.slots.create("stock", ORDERS)
    log.slots.create("other")
    async with connect(serving(authorise=CONSUMER).url) as remote:
        with pytest.raises(RemoteError, match=says) as caught:
            await ask(remote.slots)
        assert caught.value.code == code
        assert [one.name for one in await remote.slots.list()] == ["stock"]
        assert list(log.slots) == ["other", "stock"]


async def test_who_may_only_read_learns_nothing_of_slots(serving, log):
    """F88."""
    log.slots.create("stock")
    async with connect(serving().url) as remote:
        with pytest.raises(RemoteError) as caught:
            await remote.slots.list()
        assert caught.value.code == "FORBIDDEN"


async def test_what_was_not_answered_is_asked_again_on_the_next_connection(serving, log, monkeypatch):
    """F74."""
    server = serving(authorise=CONSUMER)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    statistics, met = type(log.slots).info, []

    def info(slots, name):
        met.append(name)
        if len(met) == 1:
            loop.call_soon_threadsafe(asked.set)
            for connection in list(connections_of(server.application)):
                loop_of(server).call_soon_threadsafe(link_of(connection).abort)
        return statistics(slots, name)

    log.slots.create("stock")
    monkeypatch.setattr(type(log.slots), "info", info)
    async with connect(server.url, reconnect=QUICK) as remote:
        assert (await remote.slots.info("stock")).name == "stock"
        assert len(met) == 2
    with pytest.raises(ConnectionLost):
        await remote.slots.info("stock")


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda slots: slots.info("Stock"), "name is 'Stock'"),
        (lambda slots: slots.drop(""), "name is ''"),
        (lambda slots: slots.create("stock", copy_from="A"), "copyFrom is 'A'"),
        (lambda slots: slots.create("stock", granularity="row"), "granularity is 'row'"),
        (lambda slots: slots.create("stock", paused=1), "paused is 1"),
        (lambda slots: slots.seek("stock", 1.5), "since is 1.5"),
    ],
)
async def test_what_can_be_judged_here_is(ask, says):
    with pytest.raises(InvalidOption, match=says):
        await ask(connect("ws://127.0.0.1:1/ws").slots)


async def test_a_slot_that_is_made_paused_holds_history_for_who_takes_the_rows_first(serving, log, put):
    """F74, F88: nothing is missing, and what came meanwhile comes once more."""
    put("1", "2")
    rows = PageSource(
        entity_type="order", pages=lambda request: [] if request.after else [("1", {}), ("2", {})]
    )
    log.snapshots_from(rows)
    both = Grant({LogAction.CONSUME, LogAction.READ}, slots=["stock*"])
    async with connect(serving(authorise=both).url) as remote:
        assert (await remote.slots.create("stock", ORDERS, paused=True)).paused
        put("3")
        found = [change async for change in remote.changes(ORDERS, since="state", snapshot="initial_only")]
        assert {change.key for change in found} >= {"1", "2"}
        async with remote.slot("stock") as slot, iterate(slot.changes()) as changes:
            waiting = asyncio.ensure_future(anext(changes))
            while (await remote.slots.info("stock")).state != "served":
                pass
            assert not waiting.done()
            await remote.slots.resume("stock")
            assert (await waiting).key == "3"

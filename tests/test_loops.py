"""Where no event loop runs, and where one runs that a call would block: one line each, with the line to write instead."""

import sys
from types import SimpleNamespace

import pytest

import flow
from publishers import upsert
from publishers.testing import collect, collect_async
from tests.flow.probes import Probe
from tests.publishers.support import opened
from transports import ConnectionLost, connect

NOTHING = "ws://127.0.0.1:9"


async def gives_one():
    yield 1


def full():
    """A broadcast without room, whose subscriber takes nothing."""
    broadcast = flow.Broadcast(1)
    broadcast.subscribe(Probe())
    broadcast.submit(0)
    return broadcast


def step(coroutine):
    """Runs a coroutine where no loop runs, as another library of coroutines does."""
    try:
        coroutine.send(None)
    finally:
        coroutine.close()


NEED = {
    "flow.aiter": lambda log: step(anext(flow.aiter(log.changes()))),
    "async for": lambda log: step(anext(aiter(log.changes()))),
    "async with": lambda log: step(flow.aiter(log.changes()).__aenter__()),
    "subscribe_async": lambda log: flow.subscribe_async(log.changes(), print),
    "from_async_iterable": lambda _: next(flow.iter_blocking(flow.from_async_iterable(gives_one))),
    "asubmit": lambda _: step(full().asubmit(1)),
    "commit_async": lambda log: step(log.commit_async([upsert("order", "1", {})])),
    "a submission": lambda log: next(log.submit([upsert("order", "1", {})]).__await__()),
    "collect_async": lambda log: step(collect_async(log.changes(), 1)),
    "connect": lambda _: step(connect(NOTHING).open()),
}
"""What needs a running loop: where there is none, it says so."""


@pytest.mark.parametrize("trio", [False, True], ids=["a shell", "trio"])
@pytest.mark.parametrize("do", NEED.values(), ids=NEED)
def test_without_a_loop_the_line_to_write_is_told(do, trio, monkeypatch):
    right = "write: asyncio.run(main()), or in a shell, where await then works: python -m asyncio"
    if trio:
        stand_in = SimpleNamespace(lowlevel=SimpleNamespace(in_trio_run=lambda: True))
        monkeypatch.setitem(sys.modules, "trio", stand_in)
        right = "trio runs here; write: await trio.to_thread.run_sync(asyncio.run, main())"
    with opened() as log, pytest.raises(RuntimeError) as told:
        do(log)
    assert right in str(told.value)
    assert "\n" not in str(told.value)


UNOPENED = {
    "changes": lambda remote: list(remote.changes()),
    "a slot": lambda remote: list(remote.slot("mine").changes()),
    "a group": lambda remote: list(remote.group("mine", "me").deliveries()),
    "groups": lambda remote: step(remote.groups.info("mine")),
    "dead letters": lambda remote: step(anext(remote.groups.dead_letters("mine"))),
    "slots": lambda remote: step(remote.slots.info("mine")),
    "a schema": lambda remote: step(remote.schema("order")),
    "commit": lambda remote: remote.commit([upsert("order", "1", {})]),
    "commit_async": lambda remote: step(remote.commit_async([upsert("order", "1", {})])),
}


@pytest.mark.parametrize("do", UNOPENED.values(), ids=UNOPENED)
def test_a_connection_that_was_not_opened_says_how_to_open_it(do):
    with pytest.raises(
        ConnectionLost, match=r"python -m asyncio: async with connect\('ws://127.0.0.1:9'\) as log$"
    ):
        do(connect(NOTHING))


BLOCK = {
    "a for loop": (lambda log: iter(log.changes()), "async for item in publisher"),
    "iter_blocking": (lambda log: next(flow.iter_blocking(log.changes())), "async with flow.aiter(publisher) as items"),
    "collect": (lambda log: collect(log.changes(), 1), "await collect_async(feed, n)"),
    "submit": (lambda _: full().submit(1), "await broadcast.asubmit(item)"),
}  # fmt: skip
"""What would wait for signals that the loop of this thread delivers: it is refused there."""


@pytest.mark.parametrize(("do", "instead"), BLOCK.values(), ids=BLOCK)
async def test_what_would_block_a_loop_for_ever_tells_the_line_to_write(do, instead):
    with opened() as log, pytest.raises(RuntimeError) as told:
        do(log)
    assert str(told.value).endswith(
        f"the event loop that runs here, as in a coroutine or a notebook; write: {instead}"
    )

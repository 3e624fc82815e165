"""Snapshots that nobody reads, beside one that is read: bounded memory, and every row for whoever takes it, also late."""

import contextlib

import pytest

from publishers import ChangeLog, upsert
from tests.publishers.support import wait_until

ROWS = 600
BOUND = 400_000
PAGE = 2 * 2**20  # at most, and one for each thread that reads


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "shop", sync="os", state=True, snapshot_bytes=BOUND) as log:
        for first in range(0, ROWS, 100):
            log.commit([upsert("order", f"{n:04}", {"pad": "x" * 900}) for n in range(first, first + 100)])
        log.state.wait(log.visible)
        yield log


async def begin(wire, name, wanted):
    payload = {"criteria": [], "start": "state", "credits": wanted, "content": "BODY"}
    await wire.send(type="subscribe", id=name, payload=payload)


async def rows(wire, name, count):
    """So many rows of a subscription; those of others and what is told of snapshots are passed over."""
    found = []
    while len(found) < count:
        message = await wire.receive()
        assert message["type"] != "error", message
        if message["type"] == "next" and message["id"] == name:
            found += [event["key"] for event in message["events"]]
    return found


async def test_pages_that_are_not_taken_are_given_up_and_read_again(serving, dial, log):
    """F88, F147: 60 subscriptions that take one row each hold no more than the bound, and get the rest when they ask."""
    server = serving()
    async with contextlib.AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(dial(server.url)) for _ in range(6)]
        for wire in wires:
            await wire.init()
            for number in range(10):
                await begin(wire, str(number), 1)
        begun = [await rows(wire, "9", 1) for wire in wires]
        assert begun == [["0000"]] * 6
        assert log.statistics().snapshot_bytes <= BOUND + 2 * PAGE
        async with dial(server.url) as good:
            await good.init()
            await begin(good, "good", 10_000)
            wanted = [f"{number:04}" for number in range(ROWS)]
            assert await rows(good, "good", ROWS) == wanted
        assert log.statistics().snapshot_bytes <= BOUND + 2 * PAGE
        for wire in wires:
            await wire.send(type="request", id="9", n=10_000)
            assert await rows(wire, "9", ROWS - 1) == wanted[1:]
    wait_until(lambda: not log.statistics().snapshot_bytes)

"""Order, as remote subscribers see it beside each other and beside one in the process."""

import asyncio

import pytest

import flow
from publishers import ChangeLog, Content, Criterion, Position
from tests.harness.inside import connections_of, link_of, loop_of
from tests.harness.scale import scaled
from tests.publishers.ordering import KEYS, WRITERS, Checker, Writers, stored
from tests.publishers.support import QUICK, BatchProbe
from transports import Backoff, connect, serve

DEADLINE = 120.0
QUICKLY = Backoff(first=0.01, limit=0.05)


async def read(remote, *wishes, until, prefetch):
    """What one remote subscriber gets from the beginning up to a version."""
    feed = remote.changes(*wishes, since="earliest", until=until, content=Content.BODY)
    async with asyncio.timeout(DEADLINE), flow.aiter(feed, prefetch=prefetch) as changes:
        return [change async for change in changes]


@pytest.mark.parametrize("ring", [1, 100_000])
async def test_remote_subscribers_see_what_one_in_the_process_sees_in_the_same_order(ring, tmp_path, until):
    """F25, F26, F27: four writers, subscribers of three connections with windows of 1, 7 and 500, one of them picky.

    Once every connection is cut; they resume.
    """
    rounds = scaled(60)
    last = WRITERS * rounds
    with ChangeLog.open(tmp_path / "log", **QUICK, ring_events=ring) as log:
        server = serve(log, port=0)
        try:
            here = BatchProbe(first=10**9)
            log.changes(content=Content.BODY).subscribe(here, executor=flow.INLINE)
            writers = Writers(log, rounds, ring)
            keys = [f"key{number}" for number in range(0, KEYS, 2)]
            async with (
                connect(server.url, reconnect=QUICKLY) as one,
                connect(server.url, reconnect=QUICKLY) as other,
                connect(server.url, reconnect=QUICKLY) as third,
            ):
                reading = [
                    asyncio.create_task(read(one, until=last, prefetch=7)),
                    asyncio.create_task(read(other, until=last, prefetch=1)),
                    asyncio.create_task(read(third, until=last, prefetch=500)),
                ]
                picky = asyncio.create_task(read(one, Criterion(keys=keys), until=last, prefetch=3))
                writing = asyncio.create_task(asyncio.to_thread(writers.run))
                await until(lambda: log.head.version > last // 2, "half of the commits")
                for connection in list(connections_of(server.application)):
                    loop_of(server).call_soon_threadsafe(link_of(connection).abort)
                await writing
                seen = await asyncio.gather(*reading)
                some = await picky
            whole = stored(log)
            await asyncio.to_thread(here.wait_for, len(whole))
            assert here.positions == whole
            for changes in [here.changes, *seen]:
                checker = Checker().look(changes)
                checker.agrees(writers)
                assert checker.positions == whole
            found = Checker().look(some, whole=False)
            assert found.of_key == {key: writers.of_key[key] for key in keys if writers.of_key[key]}
            assert [Position(change.version, 0) for change in seen[0] if not change.index] == [
                Position(version, 0) for version in range(1, last + 1)
            ]
        finally:
            await asyncio.to_thread(server.stop)

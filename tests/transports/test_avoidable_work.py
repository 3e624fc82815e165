"""What is encoded, counted over real connections; the list of avoidable work is in tests/publishers/test_avoidable_work.py."""

import asyncio

import pytest

import flow
from publishers import ChangeLog, Content, upsert
from tests.publishers.support import QUICK
from transports import connect, serve
from transports.codec.events import EventEncoder

VERSIONS = 30


async def read(remote, content):
    feed = remote.changes(since="earliest", until=VERSIONS, content=content)
    async with asyncio.timeout(60), flow.aiter(feed) as changes:
        return [change async for change in changes]


@pytest.mark.parametrize("subscribers", [1, 24])
async def test_an_event_is_encoded_once_for_all_subscribers_with_one_view(
    subscribers, tmp_path, monkeypatch, until
):
    """Avoidable work, row 10: for 24 headers over three connections as often as for one; bodies are another format."""
    encoded = []
    encode, run = EventEncoder._encode, EventEncoder._run

    def counted(self, block, index, view, shelf):
        encoded.append((block.version, index, view.content))
        return encode(self, block, index, view, shelf)

    def counted_run(self, block, indices, view, shelf):
        before = dict(shelf.made)
        weight = run(self, block, indices, view, shelf)
        made = (index for index, event in shelf.made.items() if before.get(index) is not event)
        encoded.extend((block.version, index, view.content) for index in made)
        return weight

    monkeypatch.setattr(EventEncoder, "_encode", counted)
    monkeypatch.setattr(EventEncoder, "_run", counted_run)
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        server = serve(log, port=0)
        try:
            async with connect(server.url) as one, connect(server.url) as two, connect(server.url) as three:
                reading = [
                    asyncio.create_task(read((one, two, three)[number % 3], Content.HEADER))
                    for number in range(subscribers)
                ]
                bodies = asyncio.create_task(read(two, Content.BODY))
                # Who comes late reads from the log what the others have from the ring, and that is encoded anew.
                await until(lambda: len(log.statistics().subscriptions) == subscribers + 1)
                for number in range(VERSIONS):
                    await log.commit_async([upsert("order", str(place), {"n": number}) for place in range(4)])
                found = await asyncio.gather(*reading)
                assert all(len(changes) == 5 * VERSIONS for changes in found)
                assert (await bodies)[1].body == {"n": 0}
        finally:
            await asyncio.to_thread(server.stop)
    assert len(encoded) == len(set(encoded)) == 2 * 5 * VERSIONS

"""History that is no longer kept, over GraphQL."""

import pytest

from publishers import ChangeLog, Position, upsert
from transports import serve

RETAIN = {
    "sync": "os",
    "fill_step": 65_536,
    "segment_bytes": 65_536,
    "retain_bytes": 65_536,
    "retain_age": None,
    "ring_events": 10,
}
CHANGES = "subscription ($since: Cursor) { onChange(since: $since) { version } }"


@pytest.fixture
def served(tmp_path):
    with ChangeLog.open(tmp_path / "shop", **RETAIN) as log:
        log.commit([upsert("order", "1", {})])
        server = serve(log, port=0)
        yield log, server
        server.stop()


async def prune(log, until):
    """Commits until retention has taken the beginning."""
    begin = log.oldest
    for _ in range(400):
        log.commit([upsert("order", str(number), {"n": number}) for number in range(60)])
    log._housekeeping.poke()
    await until(lambda: log.oldest > begin)


def told(errors, log):
    (error,) = errors
    extensions = error["extensions"]
    assert (extensions["code"], extensions["retryable"]) == ("HISTORY_PRUNED", False)
    assert Position(1) < log.position_of(extensions["oldest"]) <= log.oldest


@pytest.mark.parametrize(
    "query",
    [CHANGES, "query ($since: Cursor) { history(since: $since) { next } }"],
)
async def test_a_start_below_what_is_kept_is_told(served, graphql, until, query):
    """D5, E37: for subscriptions and for pages of history."""
    log, server = served
    since = str(log.token(log.oldest))
    await prune(log, until)
    log._housekeeping.close()
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe(query, since=since)
        message = await wire.receive()
        errors = message["payload"] if message["type"] == "error" else message["payload"]["errors"]
        told(errors, log)


async def test_a_subscriber_that_retention_overtakes_is_told(served, graphql, until):
    """D5, E37: in mid-stream, a client that reads nothing until it is too late."""
    log, server = served
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe(CHANGES, since=str(log.token(log.oldest)))
        await until(lambda: log.statistics().subscriptions)
        await prune(log, until)
        while (message := await wire.receive())["type"] in ("next", "ping") and "errors" not in message[
            "payload"
        ]:
            if message["type"] == "ping":
                await wire.send(type="pong", payload=message["payload"])
        payload = message["payload"]
        told(payload if message["type"] == "error" else payload["errors"], log)
        await until(lambda: not log.statistics().publishers)

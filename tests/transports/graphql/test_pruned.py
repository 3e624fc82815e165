"""History that is no longer kept, over GraphQL."""

import pytest

from penstock_cdc.types import PositionToken
from publishers import ChangeLog, Position, upsert
from tests.harness.inside import housekeeping_of
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
    housekeeping_of(log).poke()
    await until(lambda: log.oldest > begin)


def told(errors, log):
    (error,) = errors
    extensions = error["extensions"]
    assert (extensions["code"], extensions["retryable"]) == ("HISTORY_PRUNED", False)
    # Retention may have gone on, so the log itself might refuse it by now.
    assert Position(1) < PositionToken.parse(extensions["oldest"]).position <= log.oldest


@pytest.mark.parametrize(
    "query",
    [CHANGES, "query ($since: Cursor) { history(since: $since) { next } }"],
)
async def test_a_start_below_what_is_kept_is_told(served, graphql, until, query):
    """D5, E37: for subscriptions and for pages of history."""
    log, server = served
    since = str(log.token(log.oldest))
    await prune(log, until)
    housekeeping_of(log).close()
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


JUMP = """subscription ($since: Cursor, $until: Long) {
  onChange(since: $since, until: $until, onGap: JUMP) { version index }
}"""


async def raw(wire):
    """The next payload of an event as it is, with what is told beside it; pings are answered."""
    while (message := await wire.receive())["type"] == "ping":
        await wire.send(type="pong", payload=message["payload"])
    return message


async def test_a_late_subscriber_jumps_over_what_is_missing_and_is_told(served, graphql, until):
    """E37, D5: beside the first event that follows, and not again; whoever shares its payload is not told."""
    log, server = served
    since = str(log.token(log.oldest))
    await prune(log, until)
    housekeeping_of(log).close()
    oldest = log.oldest
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe(JUMP, since=since)
        first, second = (await raw(wire))["payload"], (await raw(wire))["payload"]
        assert first["extensions"] == {"gap": {"begin": since, "end": str(log.token(oldest))}}
        event = first["data"]["onChange"]
        assert (int(event["version"]), event["index"]) == oldest
        assert second.keys() == {"data"}
        await wire.send(type="complete", id="a")
        await wire.subscribe(JUMP, "b", since=str(log.token(oldest)))
        while (message := await raw(wire))["id"] != "b":
            pass
        assert message["payload"] == {"data": first["data"]}


async def test_a_subscriber_that_retention_overtakes_jumps_and_is_told(served, graphql, until):
    """E37, D5: in mid-stream; before the gap and behind it nothing is left out."""
    log, server = served
    async with graphql(server) as wire:
        await wire.init()
        payload = {"query": JUMP, "variables": {"since": str(log.token(log.oldest))}}
        await wire.send(type="subscribe", id="a", payload=payload | {"extensions": {"flow": {"credits": 2}}})
        seen = [await raw(wire), await raw(wire)]
        await prune(log, until)
        housekeeping_of(log).close()
        await wire.send(type="ping", payload={"request": {"a": 5}})
        assert (await wire.receive())["type"] == "pong"
        seen += [await raw(wire) for _ in range(5)]
        payloads = [message["payload"] for message in seen]
        places = [
            (int(one["onChange"]["version"]), one["onChange"]["index"])
            for one in (each["data"] for each in payloads)
        ]
        (gap,) = (payload["extensions"]["gap"] for payload in payloads if "extensions" in payload)
        assert "extensions" in payloads[2]
        assert gap["begin"] == str(log.token(Position(2)))
        assert gap["end"] == str(log.token(Position(*places[2])))
        assert places[:2] == [(1, 0), (1, 1)]
        assert places[2:] == [(places[2][0], index) for index in range(5)]


@pytest.mark.parametrize(
    ("since", "code", "told"),
    [
        ("nonsense", "CURSOR_INVALID", None),
        ("0" * 32 + ":1:1:0", "CURSOR_FOREIGN", None),
        ("ahead", "CURSOR_AHEAD", "head"),
    ],
)
async def test_who_jumps_over_gaps_still_needs_a_cursor_of_this_log(served, graphql, since, code, told):
    """E37."""
    log, server = served
    since = str(log.token(Position(99))) if since == "ahead" else since
    async with graphql(server) as wire:
        await wire.init()
        (error,) = await wire.fail(JUMP, since=since)
        assert error["extensions"]["code"] == code
        if told:
            assert error["extensions"][told] == str(log.token(log.head))
        await wire.subscribe(JUMP)  # and the id is free again
        await wire.nothing_comes()


async def test_a_gap_that_no_event_follows_is_an_error(served, graphql, until):
    """E37: never in silence."""
    log, server = served
    since = str(log.token(log.oldest))
    await prune(log, until)
    housekeeping_of(log).close()
    async with graphql(server) as wire:
        await wire.init()
        told(await wire.fail(JUMP, since=since, until=2), log)

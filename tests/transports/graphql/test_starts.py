"""Where an operation begins, over GraphQL: subscriptions, and pages over both of its ways."""

import asyncio
import json
import urllib.request
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from publishers import Content

CHANGES = """subscription ($since: Cursor, $start: Start, $until: Long, $whole: Boolean! = false) {
  onChange(since: $since, start: $start, until: $until, whole: $whole) { version index }
}"""
HISTORY = """query ($since: Cursor, $start: Start) {
  history(since: $since, start: $start, limit: 1000) { since changes { version index } }
}"""


def past(log):
    return log.history(limit=1000, content=Content.BODY).changes


def starts(log):
    """Every kind of start, and what comes from there on."""
    changes = past(log)
    whole = [change.position for change in changes]
    far = datetime.now(UTC) + timedelta(days=400)
    found = [
        ({"place": "EARLIEST"}, whole),
        ({"time": "1970-01-01T00:00:00Z"}, whole),
        ({"place": "LATEST"}, []),
        ({"time": far.isoformat()}, []),
    ]
    for place, change in enumerate(changes):
        rest = whole[place:]
        found.append(({"version": str(change.version), "index": change.index}, rest))
        if change.index == 0:
            found += [
                ({"version": change.version}, rest),
                ({"time": log.time_of(change.version).isoformat()}, rest),
                ({"transaction": change.body["id"]}, rest),
            ]
    return found


def positions(events):
    return [(int(event["version"]), event["index"]) for event in events]


async def test_every_kind_of_start_against_a_recorded_stream(serving, graphql, fill, log):
    """F61: latest, earliest, version, position, transaction, timestamp."""
    for size in (1, 3, 2):
        fill(1, changes=size)
    newest = log.head.version - 1
    async with graphql(serving()) as wire:
        await wire.init()
        for number, (start, rest) in enumerate(starts(log)):
            if rest:
                await wire.subscribe(CHANGES, str(number), start=start, until=newest)
                assert positions(await wire.events(len(rest), str(number))) == rest
                assert await wire.receive() == {"id": str(number), "type": "complete"}
        await wire.subscribe(CHANGES, "new", start={"place": "LATEST"})
        await wire.settled()
        version = fill(1)
        assert positions(await wire.events(2, "new")) == [(version, 0), (version, 1)]


async def test_pages_begin_there_too_and_tell_where_that_is(serving, graphql, fill, log):
    """F61: over HTTP and over the WebSocket."""
    for size in (1, 3, 2):
        fill(1, changes=size)
    server = serving()

    def posted(start):
        body = json.dumps({"query": HISTORY, "variables": {"start": start}}).encode()
        request = urllib.request.Request(server.graphql_url, body, {"Content-Type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())["data"]["history"]

    async with graphql(server) as wire:
        await wire.init()
        for number, (start, rest) in enumerate(starts(log)):
            await wire.subscribe(HISTORY, str(number), start=start)
            page = (await wire.next(str(number)))["history"]
            assert (await wire.receive())["type"] == "complete"
            assert positions(page["changes"]) == rest
            assert page["since"] == str(log.token(rest[0] if rest else log.head))
            assert await asyncio.to_thread(posted, start) == page


@pytest.mark.parametrize(
    ("start", "path", "right"),
    [
        ({}, "start", "one of"),
        ({"time": "yesterday"}, "start.time", "RFC 3339"),
        ({"time": "2026-01-01T00:00:00"}, "start.time", "RFC 3339"),
        ({"transaction": "x"}, "start.transaction", "a UUID"),
        ({"transaction": str(uuid4())}, "start.transaction", "the id of a transaction that is kept"),
        ({"version": 0}, "start.version", "from 1"),
        ({"index": 1}, "start", "one of"),
        ({"version": 1, "index": -1}, "start.index", "from 0"),
        ({"version": 1, "time": "2026-01-01T00:00:00Z"}, "start", "one of"),
        ({"place": "LATEST", "version": 1}, "start.place", "left out where version is given"),
    ],
)
async def test_what_is_no_start_is_named(serving, graphql, fill, start, path, right):
    """F61: the same words for subscriptions and for pages."""
    fill(1)
    async with graphql(serving()) as wire:
        await wire.init()
        (error,) = await wire.fail(CHANGES, start=start)
        assert (error["extensions"]["code"], error["extensions"]["path"]) == ("INVALID_REQUEST", path)
        assert error["message"].startswith(f"{path} is ")
        assert right in error["message"]
        await wire.subscribe(HISTORY, start=start)
        (same,) = (await wire.receive())["payload"]["errors"]
        assert (same["message"], same["extensions"]) == (error["message"], error["extensions"])


async def test_a_place_is_said_once(serving, graphql, fill, log):
    """F61."""
    fill(1)
    async with graphql(serving()) as wire:
        await wire.init()
        for query in (CHANGES, HISTORY):
            since = str(log.token(log.oldest))
            await wire.subscribe(query, since=since, start={"version": 1})
            message = await wire.receive()
            payload = message["payload"]
            (error,) = payload if message["type"] == "error" else payload["errors"]
            assert error["message"] == f"since is {since!r}, but must be left out where start is given"
            if message["type"] == "next":
                await wire.receive()


async def test_a_start_inside_a_transaction_may_send_it_as_a_whole(serving, graphql, fill, log):
    """F31: the first change after the restart has index 0."""
    fill(2, changes=5)
    async with graphql(serving()) as wire:
        await wire.init()
        inside = past(log)[3].position
        for name, place in (
            ("a", {"since": str(log.token(inside))}),
            ("b", {"start": {"version": 1, "index": 3}}),
        ):
            for whole, first in ((True, 0), (False, 3)):
                await wire.subscribe(CHANGES, name, until=1, whole=whole, **place)
                assert positions(await wire.events(6 - first, name)) == [(1, n) for n in range(first, 6)]
                assert (await wire.receive())["type"] == "complete"


async def test_while_a_start_is_searched_for_credits_count_and_a_cancel_holds(
    serving, graphql, fill, log, searching, until
):
    """F61, F67."""
    fill(3)
    search = searching(UUID)
    variables = {"start": {"transaction": past(log)[0].body["id"]}}
    async with graphql(serving()) as wire:
        await wire.init()
        for name in "ab":
            payload = {"query": CHANGES, "variables": variables, "extensions": {"flow": {"credits": 1}}}
            await wire.send(type="subscribe", id=name, payload=payload)
        await until(lambda: search.sought)
        await wire.send(type="ping", payload={"request": {"a": 2}})
        assert (await wire.receive())["type"] == "pong"
        await wire.send(type="complete", id="b")
        search.go_on.set()
        assert positions(await wire.events(3)) == [(1, 0), (1, 1), (2, 0)]
        await wire.nothing_comes()
        assert len(log.statistics().publishers[0].subscriptions) == 1

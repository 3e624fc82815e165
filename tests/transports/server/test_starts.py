"""Where a remote subscription begins, over our protocol."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from flow.bridges.iterators import aiter as iterate
from penstock_cdc.errors import InvalidOption
from publishers import Content, Position
from publishers.model.position import Start
from transports import RemoteError, connect

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stream(log):
    return [change.position for change in log.history(limit=1000, content=Content.BODY).changes]


def starts(log):
    """Every kind of start, as it is named in process and on the wire, and what comes from there on."""
    whole = stream(log)
    found = [(None, None, []), ("latest", "latest", []), (Start.LATEST, "latest", [])]
    found += [(name, "earliest", whole) for name in ("earliest", Start.EARLIEST)]
    found.append((EPOCH, {"time": "1970-01-01T00:00:00Z"}, whole))
    far = datetime.now(UTC) + timedelta(days=400)
    found.append((far, {"time": far.isoformat()}, []))
    for change in log.history(limit=1000, content=Content.BODY).changes:
        rest = whole[whole.index(change.position) :]
        if change.index:
            found.append((change.position, {"version": change.version, "index": change.index}, rest))
            continue
        moment, name = log.time_of(change.version), change.body["id"]
        found += [
            (change.version, {"version": change.version}, rest),
            (moment, {"time": moment.isoformat()}, rest),
            (moment - timedelta(microseconds=1), {"time": moment.isoformat().replace("+00:00", "Z")}, rest),
            (UUID(name), {"transaction": name}, rest),
        ]
    return found


async def test_every_kind_of_start_against_a_recorded_stream(serving, dial, fill, log):
    """F61: latest, earliest, version, position, transaction, timestamp; ``subscribed`` tells where that is."""
    for size in (1, 3, 2):
        fill(1, changes=size)
    newest = log.head.version - 1
    async with dial(serving().url) as wire:
        await wire.init()
        for number, (_, start, rest) in enumerate(starts(log)):
            wish = {} if start is None else {"start": start}
            name = str(number)
            told = await wire.subscribe(name, credits=100, until=newest + (not rest), **wish)
            assert told["cursor"] == str(log.token(rest[0] if rest else log.head))
            assert told["oldest"] == str(log.token(log.oldest))
            if rest:
                events = await wire.events(len(rest), name)
                assert [(event["version"], event["index"]) for event in events] == rest
                assert (await wire.expect("complete"))["id"] == name
            else:
                await wire.send(type="complete", id=name)
        await wire.nothing_comes()


async def test_the_python_client_takes_every_place_that_there_is_in_process(serving, fill, log):
    """F61."""
    for size in (1, 3, 2):
        fill(1, changes=size)
    newest = log.head.version - 1
    async with connect(serving().url) as remote:
        places = [(since, rest) for since, _, rest in starts(log) if rest]
        for since, rest in [*places, *((log.token(place), [place]) for place in stream(log)[-1:])]:
            async with iterate(remote.changes(since=since, until=newest)) as changes:
                assert [change.position async for change in changes] == rest
        for since in (True, 1.5, datetime(2026, 1, 1)):  # noqa: DTZ001 - that is the point
            with pytest.raises(InvalidOption, match="since"):
                remote.changes(since=since)


@pytest.mark.parametrize(
    ("start", "path"),
    [
        ({"transaction": str(uuid4())}, "start.transaction"),
        ({"time": "2026-01-01T00:00:00"}, "start.time"),
        ({"version": 0}, "start.version"),
        ("LATEST", "start"),
    ],
)
async def test_what_is_no_start_is_named_and_breaks_nothing(serving, dial, fill, start, path):
    """F61."""
    fill(2)
    async with dial(serving().url) as wire:
        await wire.init()
        problem = await wire.fail(start=start)
        assert (problem["code"], problem["path"], problem["retryable"]) == ("INVALID_REQUEST", path, False)
        value = start if path == "start" else start[path.partition(".")[2]]
        assert problem["message"].startswith(f"{path} is {value!r}, but must be ")
        await wire.subscribe(credits=1)


async def test_a_remote_start_that_is_nowhere_ends_in_on_error(serving, fill):
    """F61."""
    fill(1)
    async with connect(serving().url) as remote:
        with pytest.raises(
            RemoteError, match=r"start.transaction is .* the id of a transaction that is kept"
        ):
            async with iterate(remote.changes(since=uuid4())) as changes:
                await anext(changes)


async def test_while_a_start_is_searched_for_everything_else_goes_on(
    serving, dial, fill, log, searching, until
):
    """F61, F67: on a thread, one at a time for a connection; what is requested meanwhile counts."""
    fill(3)
    search = searching(UUID)
    name = log.history(None, 2, content=Content.BODY).changes[0].body["id"]
    async with dial(serving().url) as wire:
        await wire.init()
        for one in "abc":
            payload = {"criteria": [], "credits": 1, "start": {"transaction": name}}
            await wire.send(type="subscribe", id=one, payload=payload)
        await until(lambda: search.sought)
        await wire.send(type="request", id="a", n=2)
        await wire.send(type="complete", id="b")
        await wire.nothing_comes()
        assert (await wire.subscribe("d", start="earliest", credits=1))["id"] == "d"
        await wire.events(1, "d")
        assert len(search.sought) == 1
        search.go_on.set()
        told: dict[str, list[str]] = {"a": [], "c": []}
        while sum(map(len, told.values())) < 6:
            message = await wire.receive()
            if message["type"] != "checkpoint":
                told[message["id"]] += [message["type"]] * len(message.get("events", "s"))
        assert told == {"a": ["subscribed", *["next"] * 3], "c": ["subscribed", "next"]}
        await wire.send(type="ping")
        await wire.expect("pong")  # and nothing but checkpoints before it
        assert log.statistics().publishers[0].subscriptions


async def test_a_client_that_leaves_while_a_start_is_searched_for_leaves_nothing_behind(
    serving, dial, fill, log, searching, until
):
    fill(1)
    server = serving()
    async with dial(server.url) as wire:
        await wire.init()
        search = searching()
        for one in "ab":
            payload = {"criteria": [], "credits": 1, "start": {"time": "2026-01-01T00:00:00Z"}}
            await wire.send(type="subscribe", id=one, payload=payload)
        await until(lambda: search.sought)
    await until(lambda: server.application.connections == 0)
    search.go_on.set()
    await asyncio.to_thread(server.stop)
    assert len(search.sought) == 1
    assert not log.statistics().publishers
    assert log.head == Position(2)

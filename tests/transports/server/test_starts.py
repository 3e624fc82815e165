"""Where a remote subscription begins, over our protocol."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from flow.bridges.iterators import aiter as iterate
from penstock_cdc.errors import InvalidOption
from publishers import Content, Position
from publishers.model.position import Start
from tests.publishers.log.test_start import Wandering, after
from tests.publishers.support import opened, order
from transports import RemoteError, connect
from transports.server.uvicorn import serve

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


async def test_a_reader_with_a_right_clock_gets_by_its_time_what_the_stamps_say(until):
    """F52: the writer's clock jumps ahead, back and behind; nothing is left out but what was committed behind the last stamp.

    By the rule: a commit is stamped with the clock, or a microsecond behind the last one. While the clock had been ahead, a
    moment yields the first commit of that while (too early). While it stays behind a last stamp that was right, a moment yields
    the first commit behind it that is stamped later, so those of that while need an earlier moment or a cursor.
    """
    clock, hour, truth = Wandering(), 3_600 * 10**6, {}
    with opened(clock=clock) as shop:

        def committed(wrong):
            right = clock.now + 60 * 10**6  # a minute passes between two commits
            clock.now = right + wrong
            shop.commit([order(shop.head.version)])
            clock.now = right
            truth[shop.head.version - 1] = after(right)

        for wrong in (0, 0, 2 * hour, 0, 0):  # ahead for one commit
            committed(wrong)
        clock.now += 3 * hour  # until the clock has passed all stamps
        for wrong in (0, -hour, -hour, 0):  # behind for two
            committed(wrong)
        stamps = {version: shop.time_of(version) for version in truth}
        assert sorted(stamps.values()) == list(stamps.values())
        asked = {version: shop.position_at(right).version for version, right in truth.items()}
        assert asked == {1: 1, 2: 2, 3: 3, 4: 3, 5: 3, 6: 6, 7: 9, 8: 9, 9: 9}
        assert stamps[8] - stamps[6] == timedelta(microseconds=2)
        later = max(truth.values()) + timedelta(days=1)
        with serve(shop) as server:
            async with connect(server.url) as remote:
                for version, right in [*truth.items(), (10, later)]:
                    first = asked.get(version, shop.head.version)
                    async with iterate(remote.changes(since=right)) as changes:
                        if (
                            first == shop.head.version
                        ):  # a moment behind all stamps is the next commit, whenever that is
                            await until(lambda: shop.statistics().subscriptions)
                            committed(0)
                        assert (await anext(changes)).version == first
                    await until(lambda: not shop.statistics().subscriptions)
                newest = shop.head.version - 1
                async with iterate(remote.changes(since="latest")) as changes:
                    await until(lambda: shop.statistics().subscriptions)
                    for wrong in (5 * hour, 0, -hour):  # one that reads already misses nothing
                        committed(wrong)
                    found = [(await anext(changes)).version for _ in range(6)]  # of each the transaction too
        assert found == [newest + number for number in (1, 1, 2, 2, 3, 3)]

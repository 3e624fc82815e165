"""Rows in place of history that is missing, and once more, over GraphQL."""

import pytest

from publishers import ChangeLog, Criteria, Criterion, Position, upsert
from tests.publishers.movement import RETAIN, prune
from tests.publishers.support import QUICK
from tests.transports.test_rows import table
from transports import Grant, serve

CHANGES = """subscription ($since: Cursor, $start: Start, $snapshot: Snapshot, $onGap: OnGap! = FAIL) {
  onChange(criteria: [{entityTypes: ["order"]}], since: $since, start: $start, snapshot: $snapshot, onGap: $onGap) {
    operation key cursor
  }
}"""
STATE = {"place": "STATE"}


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "shop", **{**QUICK, **RETAIN}) as log:
        log.snapshots_from(table({str(n): {"n": n} for n in range(1, 6)}, page_rows=2))
        yield log


async def taken(wire, count, name="a"):
    """Some events, each with its extensions."""
    found = []
    while len(found) < count:
        message = await wire.receive()
        if message["type"] == "ping":
            await wire.send(type="pong", payload=message["payload"])
        elif message["type"] != "pong":
            assert (message["type"], message["id"]) == ("next", name), message
            payload = message["payload"]
            found.append((payload["data"]["onChange"], payload.get("extensions", {}).get("snapshot")))
    return found


def shown(events):
    return [(event["operation"], event["key"]) for event, _ in events]


async def again(wire, name="a", **asked):
    await wire.send(type="ping", payload={"again": {name: asked}})


async def test_rows_come_again_and_the_next_event_tells_of_their_beginning_and_end(log, graphql):
    """F91, F158: of types and of ranges of keys; asked for at any time, also before anything has come."""
    with serve(log) as server:
        async with graphql(server) as wire:
            await wire.init()
            await wire.subscribe(CHANGES, start=STATE)
            await again(wire, entityTypes=["order"], after="2", until="4")
            rows = await taken(wire, 7)
            assert [key for _, key in shown(rows)] == ["1", "2", "3", "4", "5", "3", "4"]
            (begin,) = rows[0][1]
            assert set(begin) == {"begin"}
            end, second = rows[5][1]
            assert (end, second["asked"]) == ({"end": begin["begin"]}, 1)
            assert [told for _, told in rows if told] == [rows[0][1], rows[5][1]]
            told = None
            while told is None:  # what is written before the last page was read comes before its end
                log.commit([upsert("order", "9", {})])
                ((change, told),) = await taken(wire, 1)
            assert (change["key"], told) == ("9", [{"end": second["begin"]}])
            assert change["cursor"] == str(log.token(log.head))
            await again(wire, entityTypes=["other"])
            await again(wire, entityTypes=["order"], until="1")
            ((change, told),) = await taken(wire, 1)
            assert shown([(change, told)]) == [("READ", "1")]
            assert [one.get("asked") for one in told] == [2, None, 3]


async def ended(wire, name="a"):
    """What the ping tells that comes where rows end."""
    while True:
        message = await wire.receive()
        assert message["type"] != "error", message
        if message["type"] == "ping" and "snapshot" in message["payload"]:
            await wire.send(type="pong", payload=message["payload"])
            assert list(message["payload"]["snapshot"]) == [name]
            return message["payload"]["snapshot"][name]


async def test_the_end_of_rows_is_told_at_once_though_no_event_follows(log, graphql):
    """F91, F158: also where there are no rows at all; and by the next event, to clients that look at no pings."""
    with serve(log) as server:
        async with graphql(server) as wire:
            await wire.init()
            await wire.subscribe(CHANGES, start=STATE)
            ((_, (begin,)), *_) = await taken(wire, 5)
            assert await ended(wire) == [{"end": begin["begin"]}]
            await again(wire, entityTypes=["other"])
            end, second, last = await ended(wire)
            assert (end, second["asked"], last) == ({"end": begin["begin"]}, 1, {"end": second["begin"]})
            log.commit([upsert("order", "9", {})])
            ((change, told),) = await taken(wire, 1)
            assert (change["key"], told) == ("9", [end, second, last])
            await wire.subscribe(CHANGES, name="b", start=STATE, snapshot="INITIAL_ONLY")
            await taken(wire, 5, "b")
            assert (await wire.receive())["type"] == "complete"


async def test_rows_come_in_place_of_history_that_is_missing(log, graphql):
    """F90, F92, F158."""
    old = str(log.token(Position(1)))
    log.commit([upsert("order", "1", {})])
    prune(log)
    with serve(log) as server:
        async with graphql(server) as wire:
            await wire.init()
            await wire.subscribe(CHANGES, since=old, snapshot="ON_GAP")
            rows = await taken(wire, 5)
            assert {operation for operation, _ in shown(rows)} == {"READ"}
            assert [set(one) for one in rows[0][1]] == [{"begin"}]
            await ended(wire)
            (error,) = await wire.fail(CHANGES, "b", since=old, snapshot="INITIAL")
            assert error["extensions"]["code"] == "HISTORY_PRUNED"
            (error,) = await wire.fail(CHANGES, "b", since=old, snapshot="ON_GAP", onGap="JUMP")
            assert error["extensions"]["path"] == "onGap"


async def test_what_is_wrong_with_asking_again_ends_that_operation_only(log, graphql):
    """F91."""
    with serve(log) as server:
        async with graphql(server) as wire:
            await wire.init()
            await again(wire, "nobody")
            for number, (snapshot, asked, path) in enumerate(
                [
                    (None, {}, "id"),
                    ("INITIAL", {"entityTypes": 3}, "entityTypes"),
                    ("INITIAL", {"after": "1"}, "criteria"),
                ]
            ):
                name = str(number)
                await wire.subscribe(CHANGES, name, snapshot=snapshot)
                await again(wire, name, **asked)
                messages = [message async for message in until_error(wire)]
                assert messages[-1]["id"] == name
                assert messages[-1]["payload"][0]["extensions"]["path"] == path
            await wire.subscribe(CHANGES, "n", snapshot="INITIAL")
            await wire.send(type="ping", payload={"again": {"n": 3}})
            messages = [message async for message in until_error(wire)]
            assert messages[-1]["payload"][0]["extensions"]["path"] == "again"
            await wire.subscribe(CHANGES, start=STATE)
            assert len(await taken(wire, 5)) == 5


async def until_error(wire):
    while True:
        message = await wire.receive()
        yield message
        if message["type"] == "error":
            return


async def test_so_many_may_be_given_rows_at_a_time(log, graphql):
    """F90, F91: of a connection; and so often may rows be asked for of which nothing was told yet."""
    from transports import Limits

    with serve(log, limits=Limits(snapshots=1)) as server:
        async with graphql(server) as wire:
            await wire.init()
            extensions = {"flow": {"credits": 1}}
            payload = {"query": CHANGES, "variables": {"start": STATE}, "extensions": extensions}
            await wire.send(type="subscribe", id="a", payload=payload)
            await taken(wire, 1)
            await wire.subscribe(CHANGES, "b", snapshot="INITIAL")
            await again(wire, "b")
            messages = [message async for message in until_error(wire)]
            assert messages[-1]["id"] == "b"
            assert messages[-1]["payload"][0]["extensions"]["code"] == "TOO_MANY_SNAPSHOTS"
            await again(wire, "a")
            await again(wire, "a")
            messages = [message async for message in until_error(wire)]
            assert messages[-1]["id"] == "a"
            assert messages[-1]["payload"][0]["extensions"]["code"] == "TOO_MANY_SNAPSHOTS"


async def test_ranges_without_rows_may_be_asked_for_as_often_as_one_likes(log, graphql):
    """F91: one after the other, on an idle log; the next event tells the last ten."""
    with serve(log) as server:
        async with graphql(server) as wire:
            await wire.init()
            await wire.subscribe(CHANGES, start=STATE)
            await taken(wire, 5)
            (first,) = await ended(wire)
            for number in range(1, 31):
                await again(wire, entityTypes=["order"], after="6", until="7")
                told = await ended(wire)
                assert (told[-2]["asked"], told[-1]) == (number, {"end": told[-2]["begin"]})
                assert told[0] == first
                assert len(told) <= 21
            log.commit([upsert("order", "9", {})])
            ((change, told),) = await taken(wire, 1)
            assert change["key"] == "9"
            assert [one["asked"] for one in told if "begin" in one] == list(range(21, 31))


async def test_rows_that_may_come_some_time_may_be_refused(log, graphql):
    """F90: where not every change of an entity may be seen."""
    removed = Grant(criteria=Criteria.of(Criterion(operations={"REMOVE"})))
    with serve(log, authorise=removed) as server:
        async with graphql(server) as wire:
            await wire.init()
            for mode in ("INITIAL", "ON_GAP"):
                (error,) = await wire.fail(CHANGES, snapshot=mode)
                assert error["extensions"]["code"] == "FORBIDDEN"

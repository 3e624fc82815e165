"""The state first, then every change, over GraphQL."""

import pytest

from publishers import ChangeLog, Criteria, Criterion, Position, upsert
from tests.harness.constants import set_bounds
from transports import Grant, serve

CHANGES = """subscription ($since: Cursor, $start: Start) {
  onChange(criteria: [{entityTypes: ["order"]}], since: $since, start: $start) { operation key cursor body }
}"""
HISTORY = """query ($since: Cursor, $start: Start) { history(since: $since, start: $start) { since } }"""
STATE = {"place": "STATE"}


@pytest.fixture
def stated(tmp_path):
    set_bounds(state_interval=0.0)
    with ChangeLog.open(tmp_path / "stated", state=True, sync="os") as log:
        yield log


def put(log, *keys):
    log.commit([upsert("order", key, {"key": key}) for key in keys])


def shown(events):
    return [(event["operation"], event["key"]) for event in events]


async def changes(wire, count, name="a"):
    return await wire.events(count, name)


async def test_rows_come_first_and_then_every_change(stated, graphql):
    """F88, F89, F93: and the cursor of a row goes on with what is missing."""
    put(stated, "1", "2", "3")
    with serve(stated) as server:
        async with graphql(server) as wire:
            await wire.init()
            await wire.subscribe(CHANGES, start=STATE)
            rows = await changes(wire, 3)
            assert shown(rows) == [("READ", "1"), ("READ", "2"), ("READ", "3")]
            assert rows[0]["body"] == {"key": "1"}
            assert rows[0]["cursor"].startswith("n1:")
            put(stated, "4")
            (change,) = await changes(wire, 1)
            assert shown([change]) == [("UPSERT", "4")]
            assert change["cursor"] == str(stated.token(stated.head))
            await wire.subscribe(CHANGES, "b", since=rows[1]["cursor"])
            found = await changes(wire, 2, "b")
            assert {each[1] for each in shown(found)} == {"3", "4"}


ROWS = """subscription ($since: Cursor, $start: Start) {
  onChange(criteria: [{entityTypes: ["order"]}], since: $since, start: $start, snapshot: INITIAL_ONLY) { operation key cursor }
}"""


async def test_the_operation_completes_behind_the_rows_if_that_is_wished(stated, graphql):
    """F88, F89: also when it goes on in their middle; without rows there is no such wish."""
    put(stated, "1", "2", "3")
    with serve(stated) as server:
        async with graphql(server) as wire:
            await wire.init()
            await wire.subscribe(ROWS, start=STATE)
            rows = await changes(wire, 3)
            assert shown(rows) == [("READ", "1"), ("READ", "2"), ("READ", "3")]
            assert (await wire.receive())["type"] == "complete"
            await wire.subscribe(ROWS, "b", since=rows[0]["cursor"])
            assert {each[1] for each in shown(await changes(wire, 2, "b"))} == {"2", "3"}
            assert (await wire.receive())["type"] == "complete"
            (error,) = await wire.fail(ROWS, start={"place": "LATEST"})
            assert error["extensions"] == {"code": "INVALID_REQUEST", "retryable": False, "path": "snapshot"}


async def test_the_state_may_be_refused(stated, log, graphql):
    """F90: where there is none, where not every change of an entity may be seen, where too many get it, and of a page."""
    put(stated, "1")
    with serve(log) as server:
        async with graphql(server) as wire:
            await wire.init()
            (error,) = await wire.fail(CHANGES, start=STATE)
            assert error["extensions"]["code"] == "STATE_OFF"
            for given in ({"start": STATE}, {"since": f"n1:{'a' * 16}::{log.token(Position(1))}"}):
                await wire.subscribe(HISTORY, "h", **given)
                answer = await wire.receive()
                assert answer["payload"]["errors"][0]["extensions"]["code"] == "INVALID_REQUEST"
                await wire.receive()
    removed = Grant(criteria=Criteria.of(Criterion(operations={"REMOVE"})))
    with serve(stated, authorise=removed) as server:
        async with graphql(server) as wire:
            await wire.init()
            (error,) = await wire.fail(CHANGES, start=STATE)
            assert error["extensions"]["code"] == "FORBIDDEN"


async def test_who_may_not_see_everything_learns_nothing_of_cursors(stated, graphql):
    put(stated, "1", "2")
    with serve(stated, authorise=Grant(criteria=Criteria.of(Criterion(entity_types={"order"})))) as server:
        async with graphql(server) as wire:
            await wire.init()
            await wire.subscribe(CHANGES, start=STATE)
            rows = await changes(wire, 2)
            assert all("~" in row["cursor"] for row in rows)
            await wire.subscribe(CHANGES, "b", since=rows[0]["cursor"])
            assert shown(await changes(wire, 1, "b")) == [("READ", "2")]

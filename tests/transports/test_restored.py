"""A backup is put in the place of a log that went on: each client is told, and none gets a gap or a repetition in silence."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from flow.bridges.iterators import aiter as iterate
from publishers import ChangeLog, Criterion, Position, upsert
from tests.harness.ports import free_port
from tests.publishers.support import QUICK
from tests.transports.readers import DEADLINE, dialled
from transports import RemoteError, connect, serve

BACKED_UP, LOST = ("1", "2", "3"), ("4", "5")
AFTERWARDS = ("4 again", "5 again", "6 again")


class Refused(Exception):
    """The server has ended a subscription."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem)
        self.problem = problem


def write(log: ChangeLog, keys: tuple[str, ...]) -> None:
    for key in keys:
        log.commit([upsert("order", key, {})])


@contextmanager
def running(path: Path, port: int | None = None) -> Any:
    chosen = free_port() if port is None else port
    with ChangeLog.open(path, **QUICK) as log, serve(log, port=chosen) as server:
        yield log, server


@pytest.fixture
def history(tmp_path: Path) -> Any:
    """A log of five changes, of which the backup has three, and the cursors behind the third and the fifth."""
    path, backup = tmp_path / "shop", tmp_path / "backup"
    with ChangeLog.open(path, **QUICK) as log:
        write(log, BACKED_UP)
    shutil.copytree(path, backup)
    with ChangeLog.open(path, **QUICK) as log:
        write(log, LOST)
        cursors = [str(log.token(Position(version))) for version in (4, 6)]
    return path, backup, *cursors


def restore(path: Path, backup: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(backup, path)
    with ChangeLog.open(path, **QUICK) as log:
        write(log, AFTERWARDS)


async def over_our_protocol(url: str, _graphql: str, since: str) -> AsyncIterator[str]:
    async with dialled(url, "penstock.v1+json") as socket:
        payload = {"criteria": [{"entity_types": ["order"]}], "since": since, "credits": 100}
        await socket.send(json.dumps({"type": "subscribe", "id": "a", "payload": payload}))
        while True:
            message = json.loads(await asyncio.wait_for(socket.recv(), DEADLINE))
            if message["type"] == "error":
                raise Refused(message["payload"])
            for event in message.get("events", ()):
                yield event["key"]


async def by_our_client(url: str, _graphql: str, since: str) -> AsyncIterator[str]:
    async with connect(url) as remote:
        try:
            async with iterate(remote.changes(Criterion(entity_types={"order"}), since=since)) as changes:
                async for change in changes:
                    yield change.key
        except RemoteError as error:
            raise Refused({"code": error.code, "retryable": error.retryable, **error.data}) from error


async def over_graphql(_url: str, graphql: str, since: str) -> AsyncIterator[str]:
    async with dialled(graphql.replace("http:", "ws:"), "graphql-transport-ws") as socket:
        query = """subscription ($since: Cursor) {
          onChange(criteria: [{entityTypes: ["order"]}], since: $since) { key }
        }"""
        payload = {"query": query, "variables": {"since": since}}
        await socket.send(json.dumps({"type": "subscribe", "id": "a", "payload": payload}))
        while True:
            message = json.loads(await asyncio.wait_for(socket.recv(), DEADLINE))
            problem = message["payload"] if message["type"] == "error" else message["payload"].get("errors")
            if problem:
                raise Refused(problem[0]["extensions"])
            yield message["payload"]["data"]["onChange"]["key"]


@pytest.mark.parametrize("follow", [over_our_protocol, by_our_client, over_graphql])
async def test_a_client_of_the_lost_part_is_refused_and_one_of_the_common_part_goes_on(history, follow):
    """F144."""
    path, backup, common, lost = history
    restore(path, backup)
    with running(path) as (log, server):
        with pytest.raises(Refused) as refused:
            await anext(follow(server.url, server.graphql_url, lost))
        problem = refused.value.problem
        assert (problem["code"], problem["retryable"], problem["end"]) == ("CURSOR_FORKED", False, None)
        async with aclosing(follow(server.url, server.graphql_url, common)) as keys:
            assert [await anext(keys) for _ in AFTERWARDS] == list(AFTERWARDS)
            write(log, ("7",))
            assert await anext(keys) == "7"


async def test_a_client_that_connects_again_by_itself_ends_with_the_error_instead_of_going_on(history):
    """F144: it has seen what the backup has not."""
    path, backup, common, _ = history
    async with AsyncExitStack() as stack:
        with running(path) as (_, server):
            port = server.port
            remote = await stack.enter_async_context(connect(server.url, reconnect=True))
            feed = remote.changes(Criterion(entity_types={"order"}), since=common)
            changes = await stack.enter_async_context(iterate(feed))
            assert [(await anext(changes)).key for _ in LOST] == list(LOST)
        restore(path, backup)
        with running(path, port), pytest.raises(RemoteError, match="CURSOR_FORKED"):
            async with asyncio.timeout(DEADLINE):
                await anext(changes)

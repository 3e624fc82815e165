"""Appends from another process, one change each, in windows of 100 on every connection; beside Redis Streams, pipelined as much.

Both servers sync before they answer. All clients are in one Python process, whose own work is part of the measured time.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from benchmarks import harness
from benchmarks.client_process import ClientProcess
from benchmarks.harness import Table, Variant, compare
from benchmarks.peers import SYNCED, RedisStream, peers, tell_missing
from publishers import ChangeLog, upsert
from transports import Grant, LogAction, connect, serve

CONNECTIONS = (1, 10, 100)
APPENDS = 6_000
WINDOW = 100
_OURS = "penstock, sync=always, WebSocket"
BODY = '{"status":"DEPARTED","delay":-1,"tailnum":"N804JB","dest":"BQN"}'


def run(directory: Path) -> dict[str, Table]:
    """1, 10 and 100 connections."""
    return {f"appends, {count} connections": table(directory, count) for count in CONNECTIONS}


def table(directory: Path, count: int) -> Table:
    """Appends per second of wall-clock time, over all connections."""
    place = Path(tempfile.mkdtemp(dir=directory))
    others = [one for one in peers(place, synced=True) if isinstance(one, RedisStream)]
    grant = Grant({LogAction.READ, LogAction.WRITE})
    with ChangeLog.open(place / "log") as log, serve(log, port=0, authorise=grant) as server:
        url = f"ws://127.0.0.1:{server.port}/ws"
        windows = max(1, APPENDS // (WINDOW * count))
        total = windows * WINDOW * count
        ways = {_OURS: ("penstock", url)} | {one.name: ("redis", one.socket) for one in others}
        asked = {"count": count, "windows": windows, "window": WINDOW}
        clients = {
            name: ClientProcess("benchmarks.appending", json.dumps({"kind": kind, "where": where, **asked}))
            for name, (kind, where) in ways.items()
        }
        found = compare(
            f"appends of one change from another process, {count} connections",
            "appends/s",
            [Variant(name, lambda each=each: (total, float(each.ask()))) for name, each in clients.items()],  # type: ignore[misc]  # bound early
            sizes=f"S=0, B=1, C={count}, P=0; {WINDOW} unanswered on each; {SYNCED}",
        )
        for each in clients.values():
            each.close()
        appended = harness.ROUNDS * total
        assert log.head.version - 1 == appended
        assert all(one.count() == appended for one in others)
    for one in others:
        found.reach(_OURS, ">=", 1, one.name)
        one.close()
    tell_missing(found)
    print()
    return found


class Appender:
    """A connection to a penstock server."""

    def __init__(self, where: str) -> None:
        self._log = connect(where)

    async def open(self) -> Self:
        await self._log.open()
        return self

    async def write(self, window: int) -> None:
        row = [upsert("flight", "B6/725", BODY.encode())]
        await asyncio.gather(*(self._log.commit_async(row) for _ in range(window)))


class Pipeline:
    """A connection to Redis."""

    def __init__(self, where: str) -> None:
        from redis.asyncio import Redis  # noqa: PLC0415 - the measuring process does not need it

        self._client: Any = Redis(unix_socket_path=where, single_connection_client=True)

    async def open(self) -> Self:
        await self._client.ping()
        return self

    async def write(self, window: int) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for _ in range(window):
            pipeline.xadd("changes", {"type": "flight", "key": "B6/725", "body": BODY})
        await pipeline.execute()


async def main(kind: str, where: str, count: int, windows: int, window: int) -> None:
    """For each line of standard input, runs all appends once and prints their duration in seconds."""
    make: Callable[[str], Any] = Appender if kind == "penstock" else Pipeline
    connections = [await make(where).open() for _ in range(count)]

    async def fill(write: Callable[[int], Awaitable[None]]) -> None:
        for _ in range(windows):
            await write(window)

    print(flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        began = time.perf_counter()
        await asyncio.gather(*(fill(each.write) for each in connections))
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))

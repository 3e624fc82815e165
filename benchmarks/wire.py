"""From a commit to WebSocket clients, beside a server that writes ready bytes to as many raw sockets.

The clients are in another process and only count bytes. The comparison is by CPU time of the serving process for each
delivered event, including the commits.
"""

import asyncio
import base64
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

from benchmarks import harness
from benchmarks.client_process import ClientProcess
from benchmarks.harness import Table, percentile, progress
from publishers import ChangeLog, upsert
from transports import serve
from transports.limits import Limits

SIZE = 10
CONNECTIONS = (10, 100, 1000)
EVENTS = 300_000  # delivered in one round, roughly
_LIMITS = Limits(keepalive=3_600.0)  # the clients answer no pings, as they read no frames
_AHEAD = 20  # commits that the clients may be behind
_MARK = b'"entity_type":'
_OURS = "penstock, WebSocket, commit included"
_RAW = "a raw socket write a commit, no log"
ROWS = [upsert("flight", f"B6/{n}", {"status": "DEPARTED", "dest": "BQN", "n": n}) for n in range(SIZE)]


def run(directory: Path) -> dict[str, Table]:
    """10, 100 and 1,000 connections."""
    return {found.title: found for count in CONNECTIONS for found in compared(directory, count)}


def compared(directory: Path, count: int) -> tuple[Table, Table]:
    """CPU time of each variant, and the time to the last client, in turns."""
    rounds: dict[str, list[float]] = {_RAW: [], _OURS: []}
    delays: dict[str, list[float]] = {_RAW: [], _OURS: []}
    commits = max(20, EVENTS // (count * SIZE))
    place = Path(tempfile.mkdtemp(dir=directory))
    with (
        ChangeLog.open(place / "log", sync="os") as log,
        serve(log, port=0, limits=_LIMITS) as server,
        Clients("wire", server.port, count) as wired,
        Raw(count) as raw,
    ):
        log.commit(ROWS)  # once, so that the raw server knows what to write
        wired.wait(1)
        ready = wired.sample
        ways: list[tuple[str, Callable[[], object], Clients, int]] = [
            (_RAW, lambda: raw.write(ready), raw.clients, 0),
            (_OURS, lambda: log.commit(ROWS), wired, 1),
        ]
        for number in range(harness.ROUNDS):
            for name, write, clients, before in ways[:: 1 if number % 2 else -1]:
                done = before + number * (commits + 50)
                rounds[name].append(count * SIZE * commits / burst(write, clients, done, commits))
                delays[name].append(latency(write, clients, done + commits, 50))
            progress(f"{count:,} connections: round {number + 1} of {harness.ROUNDS}")
        progress()
    sizes = f"C={count}, B={SIZE}, P=1; sync=os; clients in another process"
    found = Table(f"{count:,} connections", "events for a CPU second of the server", rounds, sizes).show()
    found.reach(_OURS, ">=", 0.7, _RAW)
    last = Table(f"{count:,} connections, to the last client, half of all within", "us", delays, sizes).show()
    last.reach(_OURS, "<=", 1.3, _RAW)
    print()
    return found, last


def burst(write: Callable[[], object], clients: "Clients", done: int, commits: int) -> float:
    """CPU seconds for commits at the full speed of the clients."""
    began = time.process_time()
    for number in range(1, commits + 1):
        write()
        if number % (_AHEAD // 2) == 0:
            clients.wait(done + max(0, number - _AHEAD // 2))
    clients.wait(done + commits)
    return time.process_time() - began


def latency(write: Callable[[], object], clients: "Clients", done: int, commits: int) -> float:
    """Median microseconds from a commit until the last client has it."""
    found = []
    for number in range(1, commits + 1):
        began = time.perf_counter()
        write()
        clients.wait(done + number)
        found.append((time.perf_counter() - began) * 1e6)
    return percentile(found, 0.5)


class Raw:
    """A server that writes the same bytes to all of its sockets, on a loop of its own."""

    def __init__(self, count: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._transports: list[asyncio.Transport] = []
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.clients = Clients("raw", port, count)

    async def _listen(self) -> int:
        made = self._transports

        class Serving(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                made.append(transport)

        self._server = await self._loop.create_server(Serving, "127.0.0.1", 0, backlog=1024)
        return int(self._server.sockets[0].getsockname()[1])

    def write(self, data: bytes) -> None:
        """Writes to all sockets."""
        self._loop.call_soon_threadsafe(self._write, data)

    def _write(self, data: bytes) -> None:
        for transport in self._transports:
            transport.write(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clients.close()
        self._loop.call_soon_threadsafe(self._server.close)
        for transport in self._transports:
            self._loop.call_soon_threadsafe(transport.abort)
        self._loop.call_soon_threadsafe(lambda: self._loop.call_soon(self._loop.stop))
        self._thread.join()
        self._loop.close()


class Clients(ClientProcess):
    """The connections of the client process, seen from the server's process.

    Attributes:
        sample: The bytes that the first client received for the first commit.
    """

    def __init__(self, kind: str, port: int, count: int) -> None:
        super().__init__("benchmarks.wire", kind, port, count)
        self.sample = b""

    def wait(self, commits: int) -> None:
        """Waits until every client has received this number of commits."""
        answer = self.ask(str(commits))
        self.sample = self.sample or base64.b64decode(answer)


# Runs in the client process.


class Counter(asyncio.Protocol):
    """One client: counts events by a mark that each event contains."""

    behind: ClassVar[set["Counter"]] = set()
    due = 0
    told: Callable[[], None]

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.seen = 0
        self.rest = b""
        self.first = b""
        self.ready = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self.kind == "raw":
            self.ready.set_result(None)
            return
        transport.write(
            b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: " + base64.b64encode(os.urandom(16)) + b"\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: penstock.v1+json\r\n\r\n"
        )
        self.transport = transport

    def _subscribe(self) -> None:
        wish = {"criteria": [{"entity_types": ["flight"]}], "content": "BODY", "credits": 2**31 - 1}
        for message in (
            {"type": "connection_init"},
            {"type": "subscribe", "id": "a", "payload": {**wish, "heartbeatMs": 0}},
        ):
            data = json.dumps(message).encode()
            short = len(data) < 126
            head = bytes((0x81, 0x80 | len(data))) if short else b"\x81\xfe" + len(data).to_bytes(2, "big")
            self.transport.write(head + bytes(4) + data)

    def connection_lost(self, exc: Exception | None) -> None:
        # The server's process waits for an answer, and fails without one.
        print(f"a connection to the server is lost: {exc}", file=sys.stderr)
        os._exit(1)

    def data_received(self, data: bytes) -> None:
        if not self.ready.done():
            self.rest += data
            if self.rest.endswith(b"\r\n\r\n"):
                self._subscribe()
            if b'"type":"subscribed"' in self.rest:
                self.rest = b""
                self.ready.set_result(None)
            return
        if not self.seen:
            self.first += data
        data = self.rest + data
        self.seen += data.count(_MARK)
        self.rest = data[-len(_MARK) + 1 :]
        if self.seen >= Counter.due and self in Counter.behind:
            Counter.behind.discard(self)
            if not Counter.behind:
                Counter.told()


async def clients(kind: str, port: int, count: int) -> None:
    """Connects all clients, then answers each line of standard input once its condition holds."""
    loop = asyncio.get_running_loop()
    every: list[Counter] = []
    for _ in range(count):
        _, client = await loop.create_connection(lambda: Counter(kind), "127.0.0.1", port)
        await client.ready
        every.append(client)
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    os.write(1, b"\n")
    while line := await lines.readline():
        Counter.due = int(line) * SIZE
        there: asyncio.Future[None] = loop.create_future()
        Counter.told = staticmethod(lambda there=there: there.set_result(None))  # type: ignore[misc]  # bound early
        Counter.behind = {one for one in every if one.seen < Counter.due}
        if Counter.behind:
            await there
        os.write(1, base64.b64encode(every[0].first) + b"\n")


if __name__ == "__main__":
    arguments: Any = sys.argv[1:]
    asyncio.run(clients(arguments[0], int(arguments[1]), int(arguments[2])))

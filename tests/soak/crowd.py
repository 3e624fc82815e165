"""The clients of a soak, in a process of their own: commands come as lines on standard input, answers go as lines of JSON.

``ready`` waits until all are subscribed; ``measure SECONDS`` tells what LIVE clients got in that time, and how late, and how
long each commit took;
``worsen`` lets the others come; ``attacked COUNT`` waits until so many attacks were made; ``left`` waits until those whose
right was revoked were told so; ``written`` ends the appenders, and tells what was acknowledged; ``finish VERSION`` lets slow
clients read on, and tells of each honest client whether it got every change up to that version once and in order.
"""

import asyncio
import contextlib
import json
import random
import socket
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from publishers import Mutation, upsert
from tests.soak.asking import obey
from tests.soak.frames import greet, said
from tests.soak.hostile import ATTACKS
from transports import RemoteLog, connect

WINDOW: Final = 4_096  # credits that a client keeps with the server
SLOWLY: Final = 0.2  # seconds that a slow client takes for a change
TOGETHER: Final = 50  # connections that are dialled at a time
PATIENCE: Final = 120.0  # seconds in which honest clients get what there is
LEAST: Final = 8  # transactions of each appender, however little time it had


class _Event(msgspec.Struct):
    version: int
    index: int
    count: int
    timestamp: datetime


class _Message(msgspec.Struct):
    type: str
    events: list[_Event] = []
    cursor: str = ""
    payload: dict[str, Any] = {}


_message: Final = msgspec.json.Decoder(_Message)


class Client:
    """An honest connection: subscribes to everything from a version on, and checks that nothing lacks and nothing repeats.

    One that is cut off connects again, and goes on where it was.

    Attributes:
        events: How many came.
        next: The version and the index that have to come next.
        faults: What came otherwise.
        cut: How often it was cut off.
        subscribed: Set once it is subscribed.
        delays: Seconds from a commit to each message, while they are measured.
    """

    def __init__(self, port: int, *, slow: bool = False, token: str = "guest", first: int = 1) -> None:
        self.events = 0
        self.next = (first, 0)
        self.faults: list[str] = []
        self.cut = 0
        self.subscribed = asyncio.Event()
        self.delays: list[float] | None = None
        self._came = asyncio.Event()
        self._port = port
        self._slow = slow
        self._token = token
        self._begin: dict[str, Any] = {"start": {"version": first}}
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        """Lives until it is cancelled, or something came that must not."""
        while not self.faults:
            with contextlib.suppress(OSError, EOFError):
                await self._connected()
            self._came.set()
            self.cut += 1
            await asyncio.sleep(random.uniform(0.05, 0.5))

    async def ended(self) -> str:
        """Waits for what ends it for good."""
        while not self.faults:
            self._came.clear()
            await self._came.wait()
        return self.faults[0]

    async def reached(self, version: int) -> None:
        """Waits until everything up to a version has come, or something that must not."""
        while self.next <= (version, 0) and not self.faults:
            self._came.clear()
            await self._came.wait()

    def hurry(self) -> None:
        """Takes all that there is from now on."""
        self._slow = False
        if self._writer is not None:
            self._writer.write(said(type="request", id="a", n=WINDOW))

    async def _connected(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer = writer
        try:
            frames = await greet(reader, writer, self._token)
            left = 1 if self._slow else WINDOW
            wish = {"criteria": [], "credits": left, "batch": {"maxEvents": 100}, **self._begin}
            writer.write(said(type="subscribe", id="a", payload=wish))
            while data := await reader.read(1 << 16):
                for text in frames.texts(data):
                    left -= self._take(_message.decode(text))
                writer.write(frames.answers())
                if self._slow and left <= 0:
                    await asyncio.sleep(SLOWLY)
                least = 0 if self._slow else WINDOW // 2
                if left <= least:
                    more = 1 if self._slow else WINDOW - left
                    writer.write(said(type="request", id="a", n=more))
                    left += more
        finally:
            self._writer = None
            writer.close()

    def _take(self, message: _Message) -> int:
        match message.type:
            case "subscribed":
                self.subscribed.set()
            case "error":
                if not message.payload.get("retryable"):
                    self.faults.append(str(message.payload.get("code")))
                raise EOFError
            case "next":
                for event in message.events:
                    if (event.version, event.index) != self.next:
                        self.faults.append(
                            f"{event.version}:{event.index} came where {self.next} was to come"
                        )
                        raise EOFError
                    last = event.index + 1 == event.count
                    self.next = (event.version + 1, 0) if last else (event.version, event.index + 1)
                self.events += len(message.events)
                self._begin = {"since": message.cursor}
                if self.delays is not None:
                    # One clock for both processes of this machine, and no other one is in the change.
                    now = time.time()  # noqa: TID251 - see above
                    self.delays.append(now - message.events[-1].timestamp.timestamp())
        self._came.set()
        return len(message.events)


async def stall(port: int) -> None:
    """Subscribes to everything and reads nothing more, again and again."""
    while True:
        with contextlib.suppress(OSError, EOFError):
            taken = socket.create_connection(("127.0.0.1", port))
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            reader, writer = await asyncio.open_connection(sock=taken, limit=4_096)
            try:
                await greet(reader, writer)
                wish = {"criteria": [], "credits": 2**31 - 1, "start": "earliest"}
                writer.write(said(type="subscribe", id="a", payload=wish))
                while not writer.is_closing():  # what is written shows that the server has cut the connection
                    await asyncio.sleep(1)
                    writer.write(said(type="ping"))
                    await writer.drain()
            finally:
                writer.close()


async def attack(port: int, pace: float, done: Callable[[str], None]) -> None:
    """One hostile client: a random attack after the other."""
    chance = random.Random()
    while True:
        name = chance.choice(list(ATTACKS))
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(60):
                await ATTACKS[name](port)
        done(name)
        await asyncio.sleep(chance.expovariate(pace))


def processor_clock(process: int) -> int:
    """The clock of the processor time of a process of this machine, or of this one for 0, as ``clock_getcpuclockid`` gives it."""
    return time.CLOCK_PROCESS_CPUTIME_ID if not process else ~process << 3 | 2


class Writer:
    """An honest client that commits, a few transactions at a time.

    Attributes:
        number: Which one it is.
        acknowledged: The version of each of its transactions, in order.
        took: Seconds of each commit, while they are measured.
        worked: Seconds of processor time that the server took meanwhile, for whomever; the speed of the machine, and what else
            runs on it, are not in it.
        stop: Set to let it end.
    """

    def __init__(self, port: int, number: int, token: str, rest: float, server: int) -> None:
        self.number = number
        self.acknowledged: list[int] = []
        self.took: list[float] | None = None
        self.worked: list[float] = []
        self._clock = processor_clock(server)
        self.stop = asyncio.Event()
        self._port = port
        self._token = token
        self._rest = rest

    async def run(self) -> None:
        """Commits until it is stopped."""
        url = f"ws://127.0.0.1:{self._port}/ws"
        async with connect(url, reconnect=True, token=self._token) as log:
            while not self.stop.is_set() or len(self.acknowledged) < LEAST:
                begin = len(self.acknowledged)
                rows = [upsert("note", f"{self.number}:{begin + n}", {"n": begin + n}) for n in range(4)]
                self.acknowledged += await asyncio.gather(*(self._commit(log, row) for row in rows))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stop.wait(), random.uniform(0.5, 1.5) * self._rest)

    async def _commit(self, log: RemoteLog, row: Mutation) -> int:
        began, worked = time.monotonic(), time.clock_gettime(self._clock)
        commit = await log.commit_async([row])
        if self.took is not None:
            self.took.append(time.monotonic() - began)
            self.worked.append(time.clock_gettime(self._clock) - worked)
        return commit.version


def _late(delays: list[float]) -> dict[str, float | None]:
    ends = {"p50": 0.5, "p99": 0.99}
    return {name: delays[int(part * (len(delays) - 1))] if delays else None for name, part in ends.items()}


class Crowd:
    """All of them.

    Args:
        port: Of the server.
        live: Clients that take everything at once.
        slow: Clients that take a change now and then.
        stalled: Clients that read nothing.
        hostile: Clients that attack.
        pace: Attacks a second of each of those.
        appending: Clients that commit.
        leaving: Clients whose right to read is revoked.
        reader, writer: The tokens of those that read, and of those that commit.
        first: The version from which on all is read.
        server: The process of the server.
        rest: Seconds between four commits of an appending client and the next four, on average.
    """

    def __init__(
        self,
        port: int,
        live: int,
        slow: int,
        stalled: int,
        hostile: int,
        pace: float,
        appending: int,
        leaving: int,
        reader: str = "guest",
        writer: str = "guest",
        first: int = 1,
        server: int = 0,
        rest: float = 0.4,
    ) -> None:
        self._port = port
        self._live = [Client(port, token=reader, first=first) for _ in range(live)]
        self._slow = [Client(port, slow=True, token=reader, first=first) for _ in range(slow)]
        self._stalled = stalled
        self._hostile = hostile
        self._pace = pace
        self._leaving = [Client(port, token="leaver") for _ in range(leaving)]
        self._writers = [Writer(port, number, writer, rest, server) for number in range(appending)]
        self._attacks: dict[str, int] = {}
        self._attacked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._others: list[asyncio.Task[None]] = []

    async def ready(self) -> dict[str, Any]:
        """Connects the LIVE ones, some at a time."""
        await self._start(self._live)
        return {}

    async def worsen(self) -> dict[str, Any]:
        """Connects all others."""
        await self._start(self._slow)
        await self._start(self._leaving)
        self._appending = [asyncio.create_task(one.run()) for one in self._writers]
        self._others += [asyncio.create_task(stall(self._port)) for _ in range(self._stalled)]
        done = self._count
        self._others += [
            asyncio.create_task(attack(self._port, self._pace, done)) for _ in range(self._hostile)
        ]
        return {}

    async def measure(self, seconds: float) -> dict[str, Any]:
        """What the LIVE clients get in a time, and how long commits take."""
        for client in self._live:
            client.delays = []
        for one in self._writers:
            one.took, one.worked = [], []
        before = sum(client.events for client in self._live)
        began = time.monotonic()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        events = sum(client.events for client in self._live) - before
        delays = sorted(delay for client in self._live for delay in client.delays or ())
        commits = sorted(each for one in self._writers for each in one.took or ())
        worked = sorted(each for one in self._writers for each in one.worked)
        for client in self._live:
            client.delays = None
        for one in self._writers:
            one.took = None
        return {
            "rate": events / took,
            **_late(delays),
            "commits": len(commits),
            "commit": _late(commits),
            "worked": _late(worked),
        }

    async def attacked(self, count: int) -> dict[str, Any]:
        """Waits until so many attacks were made."""
        async with asyncio.timeout(120):
            while sum(self._attacks.values()) < count:
                self._attacked.clear()
                await self._attacked.wait()
        return {}

    async def left(self) -> dict[str, Any]:
        """Waits until those whose right was revoked were told so."""
        async with asyncio.timeout(120):
            told = await asyncio.gather(*(client.ended() for client in self._leaving))
        return {"told": sorted(set(told)), "next": [client.next for client in self._leaving]}

    async def written(self) -> dict[str, Any]:
        """Ends the appenders; what was acknowledged of each."""
        for one in self._writers:
            one.stop.set()
        async with asyncio.timeout(120):
            await asyncio.gather(*self._appending)
        return {str(one.number): one.acknowledged for one in self._writers}

    async def finish(self, version: int) -> dict[str, Any]:
        """Waits until every honest client has everything up to a version, or something came that must not."""
        for client in self._slow:
            client.hurry()
        honest = self._live + self._slow
        reached = [asyncio.create_task(client.reached(version)) for client in honest]
        _, late = await asyncio.wait(reached, timeout=PATIENCE) if reached else ((), ())
        for task, client in zip(reached, honest, strict=True):
            if task in late:
                task.cancel()
                client.faults.append(f"still at {client.next} of {version}, cut off {client.cut} times")
        for task in self._tasks + self._others:
            task.cancel()
        return {
            "faults": [fault for client in honest for fault in client.faults],
            "cut": {"live": sum(one.cut for one in self._live), "slow": sum(one.cut for one in self._slow)},
            "attacks": self._attacks,
        }

    def _count(self, name: str) -> None:
        self._attacks[name] = self._attacks.get(name, 0) + 1
        self._attacked.set()

    async def _start(self, clients: list[Client]) -> None:
        for at in range(0, len(clients), TOGETHER):
            some = clients[at : at + TOGETHER]
            self._tasks += [asyncio.create_task(client.run()) for client in some]
            async with asyncio.timeout(120):
                await asyncio.gather(*(client.subscribed.wait() for client in some))


async def main(arguments: dict[str, Any]) -> None:
    """Obeys until standard input ends."""
    await obey(Crowd(**arguments))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

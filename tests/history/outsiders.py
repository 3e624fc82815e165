"""The process of those who write through the owner's server, and of those who read a group of it over the Redis protocol.

Writers repeat a transaction, with its producer and number, until it is answered: the log writes it once.
"""

import asyncio
import http.client
import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

import redis

from publishers import upsert
from tests.history.record import Recorder, change_id, parts
from tests.history.words import orders, say
from transports import Backoff, ConnectionLost, RemoteError, RemoteLog, connect

__all__ = ["GROUP", "GROUP_TYPES", "attend"]

GROUP: Final = "packers"
GROUP_TYPES: Final = ["p0", "p1", "http0n0"]
"""What the group is given."""
WAITS: Final = ("accepted", "durable", "visible")
PATIENT: Final = Backoff(first=0.05, limit=0.5)
TASKS: Final = 2
"""Tasks that commit on one connection."""
APPEND: Final = (
    "mutation ($changes: [ChangeInput!]!, $producer: String, $sequence: Long) "
    "{ append(changes: $changes, producer: $producer, sequence: $sequence) { version duplicate } }"
)
DROPPED: Final = "TRANSACTION_REMOVED"
"""The code of a transaction that ``forget_after`` has dropped before it was acknowledged."""


class Refused(Exception):
    """A transaction was answered, and will not be written.

    Attributes:
        code: Why.
    """

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Outsiders:
    """All of them.

    Args:
        port: Of the owner's server.
        resp: Of the owner's server of the Redis protocol.
        record: Where they write down what they did.
        life: Number of this life.
        seed: Of all chance.
        pace: Mean pause between two commits, in seconds.
    """

    def __init__(self, port: int, resp: int, record: Recorder, life: int, seed: int, pace: float) -> None:
        self.port = port
        self.resp = resp
        self.record = record
        self.pace = pace
        self.life = life
        self.seed = seed
        self.stopping = threading.Event()
        self.drained = threading.Event()  # nothing more will be committed: the group may be read to its end
        self.rested = threading.Event()
        self.failed: list[str] = []
        self._writing: list[threading.Thread] = []
        self._reading: list[threading.Thread] = []

    def start(self, kinds: Mapping[str, int]) -> None:
        for kind, number in kinds.items():
            for one in range(number):
                name = f"{kind}{one}n{self.life}"
                thread = threading.Thread(
                    target=self._guarded, args=(KINDS[kind], name), name=name, daemon=True
                )
                (self._reading if kind == "group" else self._writing).append(thread)
                thread.start()

    def stop(self) -> None:
        """Lets the writers end; each has its answers then."""
        self.stopping.set()
        for thread in self._writing:
            thread.join()
        assert not self.failed, self.failed

    def drain(self) -> None:
        """Lets the readers of the group read to its end."""
        self.drained.set()
        for thread in self._reading:
            thread.join()
        assert not self.failed, self.failed

    def numbers(self, name: str) -> Iterator[tuple[int, random.Random]]:
        """Numbers of transactions, with a pause before each."""
        chance = random.Random(f"{self.seed} {name}")
        for number in count():
            if self.stopping.wait(chance.uniform(0, 2 * self.pace)):
                return
            yield number, chance

    def called(self, tx: str) -> list[str]:
        """Notes that a transaction is sent, perhaps once more; the names of its changes."""
        size = int(tx.rpartition("/")[2]) % 3 + 1
        self.record("commit?", tx=tx, count=size, hidden=False)
        return [change_id(tx, place, size) for place in range(size)]

    def answered(self, tx: str, version: int, *, duplicate: bool) -> None:
        self.record("commit!", tx=tx, version=version, duplicate=duplicate)

    def refused(self, tx: str, code: str) -> None:
        """Notes that a transaction is not written; only what was withheld and dropped may be."""
        self.record("commit-", tx=tx, error=code)
        if code != DROPPED:
            raise Refused(code)

    def post(
        self, name: str, send: Callable[[http.client.HTTPConnection, str, int], tuple[int, bool]]
    ) -> None:
        """Sends transactions on a connection that is made again after each fault."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        for number, chance in self.numbers(name):
            tx = f"{name}/{number}"
            while True:
                try:
                    version, duplicate = send(connection, tx, number)
                except Refused as error:
                    self.refused(tx, error.code)
                except (OSError, http.client.HTTPException):  # the owner was killed: once more
                    connection.close()
                    threading.Event().wait(chance.uniform(0.01, 0.1))
                    continue
                else:
                    self.answered(tx, version, duplicate=duplicate)
                break
        connection.close()

    def _guarded(self, body: "Kind", name: str) -> None:
        try:
            body(self, name)
        except BaseException as error:
            self.failed.append(f"{name}: {error!r}")
            raise


Kind = Callable[[Outsiders, str], None]


def _ask(connection: http.client.HTTPConnection, path: str, body: Any) -> tuple[int, Any]:
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    told = answer.read()
    if answer.status == 503:  # the owner is closing
        raise ConnectionError(told)
    return answer.status, json.loads(told)


def over_http(outsiders: Outsiders, name: str) -> None:
    """``POST /changes``."""
    chance = random.Random(f"{outsiders.seed} waits of {name}")

    def send(connection: http.client.HTTPConnection, tx: str, number: int) -> tuple[int, bool]:
        changes = [{"entity_type": name, "key": each, "body": {"id": each}} for each in outsiders.called(tx)]
        body = {"changes": changes, "producer": name, "sequence": number, "wait": chance.choice(WAITS)}
        status, told = _ask(connection, "/changes", body)
        if status not in (200, 201):
            raise Refused(told["code"])
        return told["version"], told["duplicate"]

    outsiders.post(name, send)


def over_graphql(outsiders: Outsiders, name: str) -> None:
    """The mutation ``append``."""

    def send(connection: http.client.HTTPConnection, tx: str, number: int) -> tuple[int, bool]:
        changes = [{"entityType": name, "key": each, "body": {"id": each}} for each in outsiders.called(tx)]
        variables = {"changes": changes, "producer": name, "sequence": number}
        _, told = _ask(connection, "/graphql", {"query": APPEND, "variables": variables})
        if "errors" in told:
            raise Refused(told["errors"][0]["extensions"]["code"])
        done = told["data"]["append"]
        return int(done["version"]), done["duplicate"]

    outsiders.post(name, send)


def over_websocket(outsiders: Outsiders, name: str) -> None:
    """Some tasks on one connection, which repeats by itself what was not answered."""

    async def task(remote: Any, own: str) -> None:
        chance = random.Random(f"{outsiders.seed} {own}")
        for number in count():
            await asyncio.sleep(chance.uniform(0, 2 * outsiders.pace))
            if outsiders.stopping.is_set():
                return
            tx = f"{own}/{number}"
            rows = [upsert(own, each, {"id": each}) for each in outsiders.called(tx)]
            try:
                done = await remote.commit_async(rows)
            except RemoteError as error:
                outsiders.refused(tx, error.code)
            else:
                outsiders.answered(tx, done.version, duplicate=done.duplicate)

    async def tasks() -> None:
        remote = await reached(f"ws://127.0.0.1:{outsiders.port}/ws")
        await asyncio.gather(*(task(remote, f"{name}t{number}") for number in range(TASKS)))
        await remote.close()

    asyncio.run(tasks())


async def reached(url: str) -> RemoteLog:
    """Connects, however long the server is away."""
    while True:
        remote = connect(url, reconnect=PATIENT, open_timeout=5)
        try:
            return await remote.open()
        except ConnectionLost:
            await asyncio.sleep(0.05)


def in_a_group(outsiders: Outsiders, name: str) -> None:
    """Reads what the group is given, and acknowledges it, some of it durably; to the end of the group when it is told to."""
    chance = random.Random(f"{outsiders.seed} {name}")
    client = redis.Redis(port=outsiders.resp, socket_timeout=60)
    while True:
        last = outsiders.drained.is_set()
        try:
            events = client.execute_command("CDC.GROUP", "READ", "log", GROUP, name, 100, "BLOCK", 50)
            if events:
                outsiders.record("did", items=[_item(event) for event in events])
                durable = ("DURABLE",) if chance.random() < 0.1 else ()
                client.execute_command("CDC.ACK", "log", GROUP, *durable, *(event[0] for event in events))
            elif last and not client.execute_command("CDC.PENDING", "log", GROUP):
                break
        except (redis.ConnectionError, redis.TimeoutError, ConnectionError):  # the owner was killed
            threading.Event().wait(chance.uniform(0.01, 0.1))
    client.close()


def _item(event: Any) -> list[Any]:
    """An event of the Redis protocol as a history has it."""
    name = event[3].decode().partition(":")[2]
    _, _, place, size = parts(name)
    version, index = divmod(event[0], 1 << 24)
    assert index == place + 1, event
    return [version, index, size + 1, name, json.loads(event[4])["id"]]


KINDS: Final[dict[str, Kind]] = {
    "http": over_http,
    "graphql": over_graphql,
    "websocket": over_websocket,
    "group": in_a_group,
}


def attend(
    port: int, resp: int, history: str, life: int, seed: int, kinds: Mapping[str, int], pace: float
) -> None:
    record = Recorder(Path(history))
    outsiders = Outsiders(port, resp, record, life, seed, pace)
    outsiders.start(kinds)
    say("open")
    orders()
    outsiders.stop()
    say("stopped")
    visible = int(orders())
    outsiders.drain()
    if kinds.get("group"):
        record("drained", visible=visible, types=GROUP_TYPES)
    say("rested")
    orders()
    say("closed")

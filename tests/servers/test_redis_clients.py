"""Stock clients of Redis against our port: each cell of the table of ``docs/resp.md``.

Without ``PENSTOCK_KILLS``, which ``make servers`` sets, they get fewer changes, and the server is soon there again.
"""

import contextlib
import json
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.publishers.support import wait_until
from tests.servers.redis_clients import CLIENTS, ClientError, opened
from tests.servers.resp_server import RespProgram
from tests.transports.certificates import Authority

PAGE = (Path(__file__).parents[2] / "docs" / "resp.md").read_text()
PLACE = Path(__file__).parent / "clients"
WHOLE = bool(int(os.environ.get("PENSTOCK_KILLS", "0")))
CHANGES, TOTAL = 10, 3_000 if WHOLE else 300
LONG = (
    7_000 if WHOLE else 1_500
)  # milliseconds of a wait, longer than most clients wait for a reply by themselves
pytestmark = pytest.mark.timeout(300)


def sequence(number):
    return (number << 24) + 1


def expected(first, last):
    return [[sequence(number), f"order:{number}"] for number in range(first, last + 1)]


def seen(events):
    return [[event[0], event[3]] for event in events]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RespProgram(tmp_path_factory.mktemp("resp"), CHANGES) as server:
        yield server


@pytest.fixture(scope="module", params=CLIENTS)
def client(request, server):
    with opened(request.param, port=server.port) as client:
        yield client


@pytest.fixture
def group(request, client):
    """A group that has read nothing."""
    name = re.sub(r"\W+", "-", request.node.name).lower()[:64]
    assert client.ask("CDC.GROUP", "CREATE", "shop", name, 0) == "OK"
    return name


def test_connect(client):
    """F133: with the defaults of the client."""
    assert client.ask("PING") in ("PONG", True)


def test_group_read(client, group):
    """F133."""
    assert seen(client.ask("CDC.GROUP", "READ", "shop", group, "a", 4)) == expected(1, 4)
    assert seen(client.ask("CDC.GROUP", "READ", "shop", group, "b", 100)) == expected(5, CHANGES)


def test_acknowledge(client, group):
    """F133."""
    events = client.ask("CDC.GROUP", "READ", "shop", group, "a", 4)
    assert client.ask("CDC.ACK", "shop", group, *(event[0] for event in events[:3])) == 3
    ((pending, consumer, _),) = client.ask("CDC.PENDING", "shop", group)
    assert (pending, consumer) == (sequence(4), "a")


@pytest.mark.parametrize("way", ["pipeline", "multi"])
def test_pipeline_and_multi(client, group, way):
    """F133: what a group read gives is never lost."""
    read = ["CDC.GROUP", "READ", "shop", group, "a"]
    first, nothing, second = client.run(way, [*read, 3], ["CDC.ACK", "shop", group, 1], [*read, 100])
    assert (seen(first), nothing, seen(second)) == (expected(1, 3), 0, expected(4, CHANGES))
    done = [event[0] for event in first + second]
    assert client.run(way, ["CDC.ACK", "shop", group, *done], ["CDC.PENDING", "shop", group]) == [CHANGES, []]


def test_an_error_of_a_client_says_what_was_wrong(client, group):
    """F133: and the connection goes on."""
    with pytest.raises(ClientError, match="unknown command 'NONSENSE'"):
        client.ask("NONSENSE")
    with contextlib.suppress(ClientError):  # go-redis gives it as the reply of each command
        replies = client.run("multi", ["CDC.GROUP", "READ", "shop", group, "a", 3], ["NONSENSE"])
        assert all("error" in reply for reply in replies)
    assert seen(client.ask("CDC.GROUP", "READ", "shop", group, "a", 1)) == expected(1, 1)


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A server that speaks TLS and wants a token, and what a client has to know of it."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    (folder / "tokens").write_text("ann:secret\n")
    served = {"tokens": str(folder / "tokens"), "certificate": authority.issue("server")}
    with RespProgram(folder / "log", CHANGES, **served) as server:
        yield {"port": server.port, "ca": authority.path, "token": "secret"}


@pytest.mark.parametrize("name", CLIENTS)
def test_tls_and_token(name, secured):
    """F133."""
    with opened(name, **secured) as client:
        assert seen(client.ask("CDCPOLL", 0, 1)) == expected(1, 1)


def everyone(work):
    """What work gives for each client, or how it fails; all of them at the same time, because they mostly wait."""
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        running = {name: pool.submit(work, name) for name in CLIENTS}
    return {name: one.exception() or one.result() for name, one in running.items()}


def result_of(results, name):
    if isinstance(results[name], BaseException):
        raise results[name]
    return results[name]


@pytest.fixture(scope="module")
def waits(server):
    """The seconds of two waits of each client: with its defaults, and longer ones for which it is told to be patient."""

    def wait(name):
        found = []
        for millis, more in ((1_000, {}), (LONG, {"timeout": LONG / 500})):
            with opened(name, port=server.port, **more) as client:
                client.ask("PING")
                began = time.monotonic()
                assert client.ask("CDCPOLL", "$", 1, "BLOCK", millis) == []
                found.append(time.monotonic() - began)
        return found

    return everyone(wait)


@pytest.mark.parametrize("name", CLIENTS)
def test_blocking_read(name, waits):
    """F133."""
    short, long = result_of(waits, name)
    assert short > 0.9
    assert long > 0.9 * LONG / 1000


class Reader:
    """One client, which polls, and reads as the only consumer of a group, until it has everything.

    Args:
        name: Its client.
    """

    def __init__(self, name):
        self.name = name
        self.polled = []
        self.delivered = set()
        self.confirmed = set()
        self.ended = False

    def ask(self, client, *words):
        """The reply, once there is one: what the client does not repeat itself is repeated."""
        while True:
            try:
                return client.ask(*words)
            except ClientError as error:
                if "BUSYGROUP" in str(error):  # the reply was lost, and the client has asked again
                    return "OK"
                threading.Event().wait(0.05)

    def read(self, port):
        try:
            self._read(port)
        finally:
            self.ended = True

    def _read(self, port):
        group = self.name.lower()
        with opened(self.name, port=port) as client:
            assert self.ask(client, "CDC.GROUP", "CREATE", "shop", group, 0, "ACKWAIT", 1000) == "OK"
            following = 0
            while len(self.polled) < TOTAL or len(self.delivered) < TOTAL:
                events = self.ask(client, "CDCPOLL", following, 50, "BLOCK", 100)
                self.polled += seen(events)
                following = events[-1][0] + 1 if events else following
                numbers = [
                    event[0] for event in self.ask(client, "CDC.GROUP", "READ", "shop", group, "a", 50)
                ]
                assert not self.confirmed & {*numbers}, "it was acknowledged"
                self.delivered |= {*numbers}
                if numbers:
                    done = self.ask(client, "CDC.ACK", "shop", group, "DURABLE", *numbers)
                    self.confirmed |= {*numbers} if done == len(numbers) else set()


@pytest.fixture(scope="module")
def restarts(tmp_path_factory):
    """What each client gets while the server is killed, stopped for ten seconds, and killed once more."""
    readers = {name: Reader(name) for name in CLIENTS}
    with RespProgram(tmp_path_factory.mktemp("restarts"), TOTAL) as server, ThreadPoolExecutor(1) as pool:
        everything = pool.submit(everyone, lambda name: readers[name].read(server.port))
        for count, end, seconds in (
            (TOTAL // 8, server.kill, 0.0),
            (TOTAL // 3, server.stop, 10.0 if WHOLE else 0.0),
            (TOTAL // 2, server.kill, 0.0),
        ):
            wait_until(
                lambda count=count: (
                    everything.done() or all(len(one.polled) > count or one.ended for one in readers.values())
                )
            )
            end()
            threading.Event().wait(seconds)
            server.start()
        failed = everything.result()
    return {name: failed[name] or readers[name] for name in CLIENTS}


@pytest.mark.parametrize("name", CLIENTS)
def test_restarts(name, restarts):
    """F130, F133: everything once and in its order, and everything at least once from a group, nothing of it again that was acknowledged."""
    reader = result_of(restarts, name)
    both = zip(reader.polled, expected(1, TOTAL), strict=True)
    assert next((pair for pair in both if pair[0] != pair[1]), None) is None
    assert reader.delivered == {sequence(number) for number in range(1, TOTAL + 1)}
    assert len(reader.confirmed) > TOTAL // 2


FEATURES = {
    "connect": test_connect,
    "group read": test_group_read,
    "acknowledge": test_acknowledge,
    "pipeline": test_pipeline_and_multi,
    "multi": test_pipeline_and_multi,
    "blocking read": test_blocking_read,
    "restarts": test_restarts,
    "TLS and token": test_tls_and_token,
}


def versions():
    """The version of each client that is tested."""
    node = json.loads((PLACE / "node" / "package.json").read_text())["dependencies"]
    go = re.search(r"go-redis/v9 v(\S+)", (PLACE / "go" / "go.mod").read_text())
    java = dict(
        re.findall(
            r"<artifactId>(.*?)</artifactId><version>(.*?)</version>",
            (PLACE / "java" / "pom.xml").read_text(),
        )
    )
    return {
        "redis-py": version("redis"),
        "ioredis": node["ioredis"],
        "node-redis": node["redis"],
        "go-redis": go[1],
        "Jedis": java["jedis"],
        "Lettuce": java["lettuce-core"].removesuffix(".RELEASE"),
        "Redisson": java["redisson"],
    }


def test_the_table_of_the_guide_is_what_is_tested():
    """F133."""
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.search(r"^\| client \| version \|.*?\n\n", PAGE, re.DOTALL | re.MULTILINE)[
            0
        ].splitlines()
        if line
    ]
    assert head == ["client", "version", *FEATURES]
    assert rows == [[name, number, *["yes"] * len(FEATURES)] for name, number in versions().items()]

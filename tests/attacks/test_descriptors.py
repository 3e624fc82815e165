"""Connections that say nothing, in a process with few file descriptors: what they take is bounded, and they give way."""

import asyncio
import contextlib
import errno
import os
import resource
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from publishers import upsert
from tests.harness.constants import set_constant
from tests.harness.inside import ended_of
from transports import serve
from transports.resp.server import serve_resp
from transports.tcp import accepting
from transports.tcp.accepting import SILENT

ROOT = Path(__file__).parents[2]
KEPT = 20
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture
def few(monkeypatch):
    """The process may have some 60 descriptors more than it has, a quarter of which connections have to leave."""
    set_constant(monkeypatch, accepting, "_SHARE", 10**6)  # as it has many already
    taken = set(map(int, os.listdir("/proc/self/fd")))
    soft = [number for number in range(10_000) if number not in taken][60]
    monkeypatch.setattr(accepting.resource, "getrlimit", lambda _: (soft, soft))
    monkeypatch.setattr(accepting, "min", lambda *_: KEPT, raising=False)
    return soft


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def healthy(url: str) -> bool:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.status == 200


@contextlib.contextmanager
def silent(port: int, count: int):
    """A process with connections that say nothing."""
    script = f"""
import socket
kept = [socket.create_connection(("127.0.0.1", {port}), 60) for _ in range({count})]
print("there", flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"there\n"
        yield
        other.communicate(b"\n", timeout=60)


def test_silent_connections_give_way_to_whoever_comes(log, few, caplog):
    """Of both ports together: what is silent at one of them gives way to a client of the other."""
    before = descriptors()
    with serve(log) as server, serve_resp(log) as redis:
        with silent(redis.port, 100), silent(server.port, 100):
            for _ in range(100):
                assert healthy(server.health_url)
            assert len(SILENT) <= few - KEPT
            assert descriptors() < before + 60
            with socket.create_connection(("127.0.0.1", redis.port), 60) as client:
                client.sendall(b"PING\r\n")
                assert client.recv(100) == b"+PONG\r\n"
            log.commit([upsert("order", "1", {})])
            gone = ended_of(server.application)["CROWDED"] + redis.figures()["ended"]["CROWDED"]
        assert gone >= 100
    assert [line for line in caplog.records if "Limits.connections" not in line.getMessage()] == []
    assert not len(SILENT)


async def test_who_has_asked_does_not_give_way_and_who_comes_is_told(log, few, caplog):
    with serve(log) as server:
        open_ones = []
        for _ in range(80):
            refused = b""
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            open_ones.append(writer)
            writer.write(UPGRADE)
            with contextlib.suppress(ConnectionError):  # it is closed before it has asked
                refused = await reader.read(12)
            if refused != b"HTTP/1.1 101":
                break
        assert refused in (b"HTTP/1.1 503", b"")
        assert ended_of(server.application)["CROWDED"] == 1
        assert 5 < len(open_ones) < 60
        for writer in open_ones:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
    lines = [line for line in caplog.records if "descriptors" in line.getMessage()]
    assert len(lines) == 1


class Listener:
    """A listening socket for which the process has no descriptor, and then has one."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.failures = 5
        self.accepted = 0

    def __getattr__(self, name):
        return getattr(self.listening, name)

    def accept(self):
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        self.accepted += 1
        return self.listening.accept()


async def test_a_port_without_a_descriptor_pauses_says_so_once_and_goes_on(monkeypatch, caplog):
    set_constant(monkeypatch, accepting, "_PAUSE", 0.001)
    listener = Listener()
    served = asyncio.Event()

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport):
            served.set()
            SILENT.discard(self)
            transport.close()

    acceptor = accepting.Acceptor(listener, Protocol, lambda _: None)
    with socket.create_connection(listener.getsockname()) as client:
        client.setblocking(False)
        await asyncio.wait_for(served.wait(), 60)
        assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
    acceptor.close()
    acceptor.close()
    assert listener.failures == 0
    assert [line.getMessage()[:25] for line in caplog.records] == ["no connection can be acce"]


LIMITED = """
import resource, subprocess, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
import flow, transports
from publishers import ChangeLog, upsert
body = {"x": "y" * 3000}
log = ChangeLog.open(sys.argv[1], segment_bytes=65536, fill_step=0, sync="os", retain_bytes=2_000_000, state=True)
log.commit([upsert("o", "0", {})])
follower = ChangeLog.open(sys.argv[1], read_only=True)
seen, begun, done = [], threading.Event(), threading.Event()
def follow():
    with flow.iter_blocking(follower.changes(since="earliest")) as changes:
        for change in changes:
            seen.append(change.version)
            begun.set()
            if change.key == "last":
                return done.set()
threading.Thread(target=follow, daemon=True).start()
assert begun.wait(60)
with transports.serve(log) as server:
    clients = subprocess.Popen([sys.executable, "-c", '''
import socket, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
kept = [socket.create_connection(("127.0.0.1", %d), 60) for _ in range(1100)]
print("there", flush=True)
input()
''' % server.port], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    clients.stdout.readline()
    for number in range(100):
        log.commit([upsert("o", str(number), body)])
    hoard = []  # whatever the server leaves is taken as well
    try:
        while True:
            hoard.append(open("/dev/null"))
    except OSError:
        pass
    for number in range(100):  # five segments, with what is kept back
        log.commit([upsert("o", str(number), body)])
    del hoard
    clients.communicate(b"\\n")
    version = log.commit([upsert("o", "last", {})]).version
    assert done.wait(60), seen[-3:]
    assert sorted(set(seen)) == list(range(1, version + 1))
    log.state.wait(version, 60)
    for one in (log, follower):
        while one.health().why is not None:
            threading.Event().wait(0.01)
follower.close()
log.close()
print("sound")
"""


def test_with_256_descriptors_and_1100_silent_connections_the_log_rolls_on(tmp_path):
    """Followers and the state go on, too, and what is printed is a few lines."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout == "sound\n", done.stderr[-3000:]
    assert done.stderr.count("\n") < 30, done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_raises_the_limit_and_a_program_is_warned_of_it(monkeypatch, caplog):
    set_to = []
    monkeypatch.setattr(accepting, "_said", set())
    monkeypatch.setattr(accepting.resource, "setrlimit", lambda _, pair: set_to.append(pair))
    for found in ((1024, 4096), (1024, resource.RLIM_INFINITY), (1024, 10**6), (20_000, 20_000)):
        monkeypatch.setattr(accepting.resource, "getrlimit", lambda _, found=found: found)
        accepting.raise_limit()
        accepting.warn_if_few(accepting.Limits())
    assert set_to == [(4096, 4096), (16_384, resource.RLIM_INFINITY), (16_384, 10**6)]
    (line,) = caplog.records
    assert "10000" in line.getMessage()
    assert "1024" in line.getMessage()

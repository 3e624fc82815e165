"""Stock clients of Redis, each a program that sends the commands it is told by lines of JSON; see ``clients/node/lines.mjs``."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.missing import skip_without, skip_without_package
from tests.servers.program import HERE, jars, java

__all__ = ["CLIENTS", "ClientError", "StockClient", "opened"]

_PLACE = HERE / "clients"
_DEADLINE = 120.0


def _node(script: str) -> list[str]:
    if shutil.which("node") is None or not (_PLACE / "node" / "node_modules").exists():
        skip_without(
            "the packages of tests/servers/clients/node (make servers brings them, with Node and npm)"
        )
    return ["node", str(_PLACE / "node" / script)]


def _go() -> list[str]:
    built = _PLACE / "go" / "built"
    if not built.exists():
        skip_without("the program of tests/servers/clients/go (make servers builds it, with Go)")
    return [str(built)]


def _java(name: str) -> list[str]:
    found = jars("clients/java")
    if not (found[0].parent / f"{name}.class").exists():
        skip_without("the classes of tests/servers/clients/java (make servers compiles them, with a JDK)")
    classes = os.pathsep.join(map(str, [found[0].parent, *found]))
    return [java(), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes, name]


def _python() -> list[str]:
    skip_without_package("redis")
    return [sys.executable, str(_PLACE / "redis_py.py")]


CLIENTS = {
    "redis-py": _python,
    "ioredis": lambda: _node("ioredis.mjs"),
    "node-redis": lambda: _node("node_redis.mjs"),
    "go-redis": _go,
    "Jedis": lambda: _java("WithJedis"),
    "Lettuce": lambda: _java("WithLettuce"),
    "Redisson": lambda: _java("WithRedisson"),
}
"""The command that starts each of them."""


class ClientError(Exception):
    """The client has raised an error."""


class StockClient:
    """A running client.

    Args:
        process: Its process.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.complaints: list[str] = []

    def run(self, way: str, *commands: list[Any]) -> list[Any]:
        """The replies to commands that are sent in a way: ``single``, ``pipeline`` or ``multi``.

        Raises:
            ClientError: If the client raises one.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(
            json.dumps({"run": way, "commands": [[*map(str, one)] for one in commands]}) + "\n"
        )
        self._process.stdin.flush()
        timer = threading.Timer(_DEADLINE, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        assert line, f"the client has ended, or did not answer {commands} in time: {self.complaints}"
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"])
        replies: list[Any] = answer["replies"]
        return replies

    def ask(self, *words: Any) -> Any:
        """The reply to one command. Raises as `run`."""
        (reply,) = self.run("single", [*words])
        return reply


@contextmanager
def opened(name: str, **told: Any) -> Iterator[StockClient]:
    """Runs a client.

    Args:
        name: Which.
        told: Its ``port``; with TLS ``ca`` and ``token``; and ``timeout``, the seconds that it waits for a reply, where its
            own default is shorter.
    """
    process = subprocess.Popen(
        [*CLIENTS[name](), json.dumps(told)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
    )
    client = StockClient(process)

    def listen() -> None:
        assert process.stderr is not None
        client.complaints.extend(process.stderr)

    listening = threading.Thread(target=listen)
    listening.start()
    try:
        yield client
    finally:
        process.kill()
        process.wait()
        listening.join()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()

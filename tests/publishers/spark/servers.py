"""Servers of a log in processes of their own, which may be killed."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from publishers import ChangeLog
from tests.harness.ports import free_port

ROOT = Path(__file__).parents[3]


@contextmanager
def processes(path: Path) -> Iterator[Callable[[], str]]:
    """Starts servers of a log, each of which kills the one before it; tells their address."""
    with ChangeLog.open(path):
        pass
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-m", "transports.cli", "serve", str(path), "--own", "--writable", "--port"]
    port, running = str(free_port()), []

    def serve() -> str:
        while running:
            server = running.pop()
            server.kill()
            server.communicate()
        running.append(subprocess.Popen([*command, port], env=environ, stdout=subprocess.PIPE, text=True))
        assert f":{port}/" in running[0].stdout.readline()
        return f"ws://127.0.0.1:{port}/ws"

    try:
        yield serve
    finally:
        for server in running:
            server.terminate()
            server.communicate()

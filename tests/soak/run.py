"""A server in a crowd: LIVE clients are measured alone, and again beside slow, stalled and hostile ones."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from publishers import ChangeLog, Criterion, upsert
from tests.harness.inside import ended_of
from tests.harness.resident import resident
from tests.publishers.support import wait_until
from tests.soak.asking import asking
from transports import Credentials, Grant, Limits, LogAction, Principal, serve

__all__ = ["Plan", "Report", "lost", "play"]

ROWS = [upsert("order", str(n), {"status": "open", "note": "x" * 500, "n": n}) for n in range(10)]


@dataclass(frozen=True)
class Plan:
    """Who comes, and for how long.

    Attributes:
        live, slow, stalled, hostile, appending, leaving: How many clients of each kind.
        pace: Attacks a second of each hostile client.
        commits: Commits a second, of ten changes each.
        seconds: How long is measured, each time; longer if less than the following was done until then.
        attacks: How many there are at least.
        cut: How many stalled clients are cut off at least.
    """

    live: int = 750
    slow: int = 100
    stalled: int = 100
    hostile: int = 50
    appending: int = 20
    leaving: int = 20
    pace: float = 1.0
    commits: float = 20.0
    seconds: float = 30.0
    attacks: int = 10
    cut: int = 1


@dataclass
class Report:
    """What was found.

    Attributes:
        alone: What LIVE clients got among themselves: ``rate`` (events a second, of all), ``p50`` and ``p99`` (seconds).
        beside: The same beside the others.
        end: What the clients told at the end: ``faults``, ``cut``, ``attacks``.
        left: What those were told whose right was revoked.
        lost: Transactions that were acknowledged and are not in the log, or that are in it twice or in another order.
        appended: How many were acknowledged.
        ended: How many connections the server ended, and why.
        resident: Bytes of the serving process: before anybody came, alone, beside the others.
    """

    alone: dict[str, Any] = field(default_factory=dict)
    beside: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    appended: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    resident: list[int] = field(default_factory=list)


def play(plan: Plan) -> Report:
    """Runs it."""
    report = Report()
    limits = Limits(stall_timeout=5.0, revocation=1.0)
    revoked: set[str] = set()

    def authenticate(credentials: Credentials) -> Principal:
        return Principal(credentials.token or "guest")

    def authorise(principal: Principal, _log: str, _action: LogAction) -> Grant:
        return Grant(() if principal.name in revoked else (LogAction.READ, LogAction.WRITE))

    with (
        TemporaryDirectory(prefix="soak-") as place,
        ChangeLog.open(Path(place) / "shop", sync="os") as log,
        serve(log, port=0, limits=limits, authenticate=authenticate, authorise=authorise) as server,
        asking("tests.soak.crowd", _wanted(plan, server.port)) as (ask, _),
    ):
        stop = threading.Event()

        def write() -> None:
            while not stop.wait(1 / plan.commits):
                log.commit(ROWS)

        report.resident.append(resident())
        writer = threading.Thread(target=write)
        writer.start()
        try:
            ask("ready")
            report.alone = ask("measure", plan.seconds)
            report.resident.append(resident())
            ask("worsen")
            report.beside = ask("measure", plan.seconds)
            ask("attacked", plan.attacks)
            wait_until(
                lambda: ended_of(server.application)["STALLED"] >= plan.cut, ended_of(server.application)
            )
            report.resident.append(resident())
            revoked.add("leaver")
            report.left = ask("left")["told"]
            written = ask("written")
        finally:
            stop.set()
            writer.join()
        report.appended = sum(map(len, written.values()))
        report.lost = lost(log, written)
        report.end = ask("finish", log.visible)
        report.ended = dict(ended_of(server.application))
    return report


def lost(log: ChangeLog, written: dict[str, list[int]]) -> list[str]:
    """Compares what was acknowledged with what is in the log."""
    found: dict[str, list[int]] = {number: [] for number in written}
    wrong: list[str] = []
    place: Any = "earliest"
    while True:
        page = log.history(Criterion(entity_types={"note"}), since=place, limit=10_000)
        for change in page.changes:
            assert change.key is not None
            number, _, nth = change.key.partition(":")
            if len(found[number]) != int(nth):
                wrong.append(f"{change.key} came where {len(found[number])} was to come")
            found[number].append(change.version)
        if not page.more:
            break
        place = page.next
    return wrong + [
        number for number, versions in written.items() if found[number][: len(versions)] != versions
    ]


def _wanted(plan: Plan, port: int) -> dict[str, Any]:
    return {
        "port": port,
        "live": plan.live,
        "slow": plan.slow,
        "stalled": plan.stalled,
        "hostile": plan.hostile,
        "pace": plan.pace,
        "appending": plan.appending,
        "leaving": plan.leaving,
    }

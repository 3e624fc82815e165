"""The compacted state: its cost for writers, and the time of a new subscriber to receive all rows and the first change after them.

The state lags while commits come without a pause. So there are two figures: its cost during the commits, and its whole cost, which
includes catching up when they pause. The handover is compared with reading the same rows from an SQLite table of keys and bodies,
which delivers no later changes.
"""

import sqlite3
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Table, Variant, compare, cpu, timed
from publishers import ChangeLog, Content, Criterion, upsert

CHANGES = {1: 60_000, 100: 400_000}
"""Changes of a round, by the size of a commit."""
ROWS = 1_000_000
_BODY = b'{"carrier":"B6","flight":725,"origin":"JFK","dest":"BQN","status":"DEPARTED","delay":-1,"tailnum":"N804JB"}'
_WITHOUT, _WITH = "without a state", "with a state"
_ALL = "with a state, until it has everything"


def run(directory: Path) -> dict[str, Table]:
    """Commits of 1 and 100 changes beside the state, and a million rows to a new subscriber."""
    place = Path(tempfile.mkdtemp(dir=directory))
    found = {}
    for size in CHANGES:
        found[f"beside writers, {size} a commit"] = beside(place, size)
    return {**found, "handing over": handing_over(place)}


def beside(place: Path, size: int) -> Table:
    """The writer's own rate, and the CPU time of the process until the state has caught up."""
    logs = {
        name: ChangeLog.open(place / f"{size}-{number}", sync="os", state=name != _WITHOUT, retain_bytes=None)
        for number, name in enumerate((_WITHOUT, _WITH))
    }
    commits = CHANGES[size] // size
    batches = [
        [upsert("flight", f"B6/{number * size + row}", _BODY) for row in range(size)]
        for number in range(min(commits, 1_000))
    ]

    def write(name: str) -> int:
        log = logs[name]
        for number in range(commits):
            log.commit(batches[number % len(batches)])
        return commits * size

    def settle() -> None:
        """Waits until the state has caught up, so that no other variant pays for it."""
        logs[_WITH].state.wait(logs[_WITH].visible)

    def beside_it(name: str) -> tuple[int, float]:
        settle()
        found = timed(lambda: write(name))
        settle()
        return found

    def stored() -> int:
        done = write(_WITH)
        settle()
        return done

    for name in logs:  # creates tables and files
        write(name)
    figures = compare(
        f"commits of {size} beside the compacted state",
        "changes/s",
        [Variant(name, lambda name=name: beside_it(name)) for name in (_WITHOUT, _WITH)],  # type: ignore[misc]  # bound early
        sizes=f"S=0, B={size}, C=1; left to the operating system; wall-clock time of the writer",
    )
    figures.reach(_WITH, ">=", 0.95, _WITHOUT)
    spent = compare(
        f"the same, CPU time of the process, {size} a commit",
        "changes/s of CPU time",
        [Variant(_WITHOUT, lambda: cpu(lambda: write(_WITHOUT))), Variant(_ALL, lambda: cpu(stored))],
    )
    each = {figure.variant: 1e6 / figure.rate for figure in spent}
    figures.note(
        f"until the state has everything: {each[_ALL]:.1f} us of CPU time a change, and {each[_WITHOUT]:.1f} us without a state"
    )
    print()
    for log in logs.values():
        log.close()
    return figures


class Newcomer:
    """Receives the rows and the first change after them."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.seen = 0
        self.behind = 0
        self.done = threading.Event()
        self.failure: Exception | None = None

    def on_subscribe(self, subscription: Any) -> None:
        subscription.request(2**62)

    def on_next(self, change: Any) -> None:
        if change.operation.name == "READ":
            self.seen += 1
        else:
            self.behind += 1
            self.done.set()

    def on_error(self, error: Exception) -> None:
        self.failure = error
        self.done.set()

    def on_complete(self) -> None: ...


def handing_over(place: Path) -> Table:
    """Rows and the first change after them, to a subscriber with bodies, beside a `SELECT` of all rows."""
    log = ChangeLog.open(place / "rows", sync="os", state=True, retain_bytes=None)
    step = min(ROWS, 1_000)
    for start in range(0, ROWS, step):
        log.commit([upsert("flight", f"B6/{number}", _BODY) for number in range(start, start + step)])
    log.state.wait(log.visible)
    database = sqlite3.connect(place / "rows.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE rows(key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID")
    database.execute("BEGIN")
    database.executemany("INSERT INTO rows VALUES (?, ?)", sorted((f"B6/{n}", _BODY) for n in range(ROWS)))
    database.execute("COMMIT")

    def rows() -> int:
        found = 0
        for _key, _body in database.execute("SELECT key, body FROM rows ORDER BY key"):
            found += 1
        assert found == ROWS
        return found

    def pages() -> int:
        found, last = 0, ""
        query = "SELECT key, body FROM rows WHERE key > ? ORDER BY key LIMIT 1000"
        while page := database.execute(query, (last,)).fetchall():
            found, last = found + len(page), page[-1][0]
        assert found == ROWS
        return found

    def snapshot() -> int:
        newcomer = Newcomer(ROWS)
        criterion = Criterion(entity_types={"flight"})
        log.changes(criterion, since="state", content=Content.BODY).subscribe(newcomer)
        while newcomer.seen < ROWS and newcomer.failure is None:
            time.sleep(0.001)  # noqa: TID251 - it is the subscriber's thread that is measured
        log.commit([upsert("flight", "B6/0", _BODY)])
        assert newcomer.done.wait(600)
        assert newcomer.failure is None
        assert (newcomer.seen, newcomer.behind) == (ROWS, 1)
        return ROWS

    figures = compare(
        f"{ROWS:,} rows to a newcomer",
        "rows/s",
        [
            Variant("SQLite, one SELECT", lambda: timed(rows)),
            Variant("SQLite, pages of 1,000 by key", lambda: timed(pages)),
            Variant("penstock, since=state, and the first change behind the rows", lambda: timed(snapshot)),
        ],
        sizes=f"S=1, bodies of {len(_BODY)} bytes; read from the page cache",
    )
    print()
    database.close()
    log.close()
    return figures

"""Reading a backlog from the log, against selecting it from SQLite."""

import sqlite3
import tempfile
import threading
from pathlib import Path

import flow
from benchmarks.fanout import Counting
from benchmarks.harness import Figure, Variant, compare, timed
from publishers import ChangeLog, Content, Criterion, Position, upsert

CHANGES = 100_000


class Waiting(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.done = threading.Event()

    def on_complete(self) -> None:
        self.done.set()


def run(directory: Path) -> dict[str, list[Figure]]:
    """A backlog of 100,000 changes, 100 a transaction."""
    place = Path(tempfile.mkdtemp(dir=directory))
    log = ChangeLog.open(place / "log", sync="os", replay_bytes=1)
    database = sqlite3.connect(place / "rows.db", isolation_level=None)
    database.executescript(
        "PRAGMA journal_mode=WAL; CREATE TABLE changes (id INTEGER PRIMARY KEY, key BLOB, body BLOB);"
    )
    for start in range(0, CHANGES, 100):
        rows = [
            upsert("flight", f"B6/{n % 100}", b'{"status":"DEPARTED","n":%d}' % n)
            for n in range(start, start + 100)
        ]
        log.commit(rows)
        database.executemany(
            "INSERT INTO changes (key, body) VALUES (?, ?)", [(row.key, row.body) for row in rows]
        )
    newest = log.head.version - 1

    def replay(criterion: Criterion, expected: int) -> int:
        reader = Waiting()
        log.changes(criterion, since=Position(1), until=newest, content=Content.BODY).subscribe(
            reader, executor=flow.INLINE
        )
        assert reader.done.wait(120)
        assert reader.count == expected
        return CHANGES

    def select() -> int:
        found = 0
        for _ in database.execute("SELECT id, key, body FROM changes ORDER BY id"):
            found += 1
        return found

    everything = Criterion(entity_types={"flight"})
    few = Criterion(entity_types={"flight"}, keys={"B6/7"})
    figures = compare(
        "a backlog of 100,000 changes",
        "changes/s",
        [
            Variant("SQLite range select", lambda: timed(select)),
            Variant("penstock, all as Change objects", lambda: timed(lambda: replay(everything, CHANGES))),
            Variant("penstock, one in a hundred", lambda: timed(lambda: replay(few, CHANGES // 100))),
        ],
    )
    log.close()
    database.close()
    return {"resync": figures}

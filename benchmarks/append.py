"""Appending without a sync, against writing ready bytes and against SQLite rows of the same content."""

import os
import sqlite3
import tempfile
from pathlib import Path

from benchmarks.harness import Figure, Variant, compare, timed
from publishers import ChangeLog, upsert

BODY = b'{"carrier":"B6","flight":725,"origin":"JFK","dest":"BQN","status":"DEPARTED","delay":-1,"tailnum":"N804JB"}'


def run(directory: Path) -> dict[str, list[Figure]]:
    """1, 10, 100 and 1,000 changes in a transaction."""
    return {f"append, {size} a transaction": table(directory, size) for size in (1, 10, 100, 1000)}


def table(directory: Path, size: int) -> list[Figure]:
    changes = max(2_000, min(50_000, size * 200))
    rounds = changes // size
    rows = [upsert("flight", f"B6/{n}/2013-01-01/JFK", BODY) for n in range(size)]
    place = Path(tempfile.mkdtemp(dir=directory))
    log = ChangeLog.open(place / "log", sync="os")
    raw = os.open(place / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    database = sqlite3.connect(place / "rows.db", isolation_level=None)
    database.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"
        "CREATE TABLE changes (version INTEGER, idx INTEGER, type TEXT, key BLOB, body BLOB, PRIMARY KEY (version, idx));"
    )
    payload = b"".join(row.key + row.body + bytes(80) for row in rows)
    version = 0

    def write() -> int:
        for _ in range(rounds):
            os.write(raw, payload)
        return changes

    def penstock() -> int:
        for _ in range(rounds):
            log.commit(rows)
        return changes

    def sqlite() -> int:
        nonlocal version
        for _ in range(rounds):
            version += 1
            database.execute("BEGIN")
            database.executemany(
                "INSERT INTO changes VALUES (?, ?, ?, ?, ?)",
                [(version, n, row.entity_type, row.key, row.body) for n, row in enumerate(rows)],
            )
            database.execute("COMMIT")
        return changes

    figures = compare(
        f"append without sync, {size} a transaction",
        "changes/s",
        [
            Variant("SQLite, synchronous=OFF", lambda: timed(sqlite)),
            Variant("penstock, sync=os", lambda: timed(penstock)),
            Variant("os.write of ready bytes", lambda: timed(write)),
        ],
    )
    assert log.head.version - 1 == 5 * rounds
    log.close()
    database.close()
    os.close(raw)
    return figures

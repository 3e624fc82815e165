"""Durable commits: one caller against a bare write and sync, and many callers who share one."""

import os
import sqlite3
import tempfile
import threading
from pathlib import Path

from benchmarks.harness import Figure, Variant, compare, timed
from publishers import ChangeLog, upsert

ROW = upsert(
    "flight", "B6/725/2013-01-01/JFK", b'{"status":"DEPARTED","delay":-1,"tailnum":"N804JB","dest":"BQN"}'
)
COMMITS = 200


def run(directory: Path) -> dict[str, list[Figure]]:
    """One caller, then 10 and 100."""
    return {
        "durable commit, one caller": one(directory),
        **{f"durable commit, {n} callers": many(directory, n) for n in (10, 100)},
    }


def bare(place: Path) -> int:
    """Writes into space that is there already, and syncs."""
    file = os.open(place / "bare", os.O_RDWR | os.O_CREAT)
    if os.fstat(file).st_size == 0:
        os.write(file, bytes(1 << 20))
        os.fdatasync(file)
    for number in range(COMMITS):
        os.pwrite(file, bytes(240), number * 240)
        os.fdatasync(file)
    os.close(file)
    return COMMITS


def one(directory: Path) -> list[Figure]:
    place = Path(tempfile.mkdtemp(dir=directory))
    log = ChangeLog.open(place / "log")
    database = sqlite3.connect(place / "rows.db", isolation_level=None)
    database.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE changes (key BLOB, body BLOB);"
    )

    def penstock() -> int:
        for _ in range(COMMITS):
            log.commit([ROW])
        return COMMITS

    def sqlite() -> int:
        for _ in range(COMMITS):
            database.execute("INSERT INTO changes VALUES (?, ?)", (ROW.key, ROW.body))
        return COMMITS

    figures = compare(
        "durable commit of one change, one caller",
        "commits/s",
        [
            Variant("bare write + fdatasync", lambda: timed(lambda: bare(place))),
            Variant("penstock, sync=always", lambda: timed(penstock)),
            Variant("SQLite, synchronous=FULL", lambda: timed(sqlite)),
        ],
    )
    log.close()
    database.close()
    return figures


def many(directory: Path, callers: int) -> list[Figure]:
    place = Path(tempfile.mkdtemp(dir=directory))
    log = ChangeLog.open(place / "log")
    each = max(4, 2_000 // callers)

    def penstock() -> int:
        def work() -> None:
            for _ in range(each):
                log.commit([ROW])

        threads = [threading.Thread(target=work) for _ in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return callers * each

    figures = compare(
        f"durable commit of one change, {callers} callers",
        "commits/s",
        [
            Variant("bare write + fdatasync, one after the other", lambda: timed(lambda: bare(place))),
            Variant("penstock, sync=always", lambda: timed(penstock)),
        ],
    )
    assert log.head.version - 1 == 5 * callers * each
    log.close()
    return figures

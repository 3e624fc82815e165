"""Acknowledgements to a slot, every 1, 100 and 1,000 changes, beside an SQLite row that stores the position.

A consumer reads a backlog and acknowledges its position after each so many changes. The log stores it within 0.2 s; SQLite stores it in
each transaction without a sync. A durable acknowledgement is synced before it returns: twice by the log, once by SQLite.
"""

import sqlite3
import tempfile
from pathlib import Path

from benchmarks.harness import Table, Variant, compare, timed
from publishers import ChangeLog, Position, upsert

EVERY = (1, 100, 1_000)
CHANGES = 100_000
"""Changes of a round; its acknowledgements follow from them, and are at most `ACKS`."""
ACKS = 20_000
DURABLE = 200
"""Durable acknowledgements of a round."""
_SLOT, _ROW = "penstock, ack", "SQLite WAL, synchronous=OFF, one row"
_SYNCED, _SYNCED_ROW = "penstock, ack(durable=True)", "SQLite WAL, synchronous=FULL, one row"


class Row:
    """The position of a consumer in a table."""

    def __init__(self, path: Path, *, synced: bool) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {'FULL' if synced else 'OFF'}")
        self._database.execute("CREATE TABLE place(name TEXT PRIMARY KEY, version INTEGER NOT NULL)")
        self._database.execute("INSERT INTO place VALUES ('stock', 0)")

    def ack(self, version: int) -> None:
        self._database.execute("UPDATE place SET version = ? WHERE name = 'stock'", (version,))

    @property
    def version(self) -> int:
        (found,) = self._database.execute("SELECT version FROM place").fetchone()
        return int(found)

    def close(self) -> None:
        self._database.close()


def run(directory: Path) -> dict[str, Table]:
    """Acknowledgements a second."""
    place = Path(tempfile.mkdtemp(dir=directory))
    log = ChangeLog.open(place / "log", sync="os")
    for start in range(0, CHANGES, 10):
        log.commit([upsert("order", str(start + n), b'{"n":1}') for n in range(10)])
    found = {f"acknowledging, every {size:,}": table(log, place, size) for size in EVERY}
    found["acknowledging, durable"] = durable(log, place)
    log.close()
    return found


def table(log: ChangeLog, place: Path, size: int) -> Table:
    """One acknowledgement for each ``size`` changes; the time to read them is included."""
    row = Row(place / f"every-{size}.sqlite", synced=False)
    most = min(CHANGES, ACKS * size)

    def to(name: str) -> int:
        if "stock" in log.slots:
            log.slots.drop("stock")
        log.slots.create("stock", since="earliest", granularity="change")
        acks = seen = 0
        with log.slots.open("stock") as slot:
            for change in slot.changes():
                if change.index == 0:
                    continue
                seen += 1
                if seen % size == 0:
                    acks += 1
                    if name == _SLOT:
                        slot.ack(change)
                    else:
                        row.ack(change.version)
                    last = change
                if seen == most:
                    break
            if name == _SLOT:
                assert slot.position in (Position(last.version, last.index + 1), Position(last.version + 1))
            else:
                assert row.version == last.version
        return acks

    figures = compare(
        f"an acknowledgement for {size:,} changes",
        "acknowledgements/s",
        [Variant(name, lambda name=name: timed(lambda: to(name))) for name in (_ROW, _SLOT)],  # type: ignore[misc]  # bound early
        sizes=f"S=1, B=10; {most:,} changes are read for them; left to the operating system",
    )
    figures.reach(_SLOT, ">=", 1, _ROW)
    print()
    row.close()
    return figures


def durable(log: ChangeLog, place: Path) -> Table:
    """Durable acknowledgements, each synced before it returns; no changes are read."""
    row = Row(place / "durable.sqlite", synced=True)

    def slot() -> int:
        log.slots.drop("stock")
        log.slots.create("stock", since="earliest")
        with log.slots.open("stock") as opened:
            reader = iter(opened.changes())
            while opened.delivered.version < DURABLE + 1:
                next(reader)
            for version in range(2, DURABLE + 2):
                assert opened.ack(Position(version), durable=True)
        return DURABLE

    def rows() -> int:
        for version in range(DURABLE):
            row.ack(version)
        return DURABLE

    figures = compare(
        "a durable acknowledgement",
        "acknowledgements/s",
        [Variant(_SYNCED_ROW, lambda: timed(rows)), Variant(_SYNCED, lambda: timed(slot))],
        sizes="S=1; synced before the call returns",
    )
    print()
    row.close()
    return figures

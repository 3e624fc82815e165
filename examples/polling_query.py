"""A polling query: moves rows with a revision above the last seen one to a change log.

Each row has a revision that rises with every change of the table; a deletion is a mark in the row. The log stores the last
revision with the changes, as the sequence of the producer. So a kill neither loses a change nor commits one twice.

Run it: python examples/polling_query.py
"""

import sqlite3
import tempfile
from pathlib import Path

from penstock_cdc import ChangeLog, Content, Criterion, Mutation, remove, upsert

TABLE = """
CREATE TABLE IF NOT EXISTS orders (
    id TEXT PRIMARY KEY,
    total TEXT NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL UNIQUE
);
"""


def put_order(db: sqlite3.Connection, key: str, total: str, *, deleted: bool = False) -> None:
    """The application: assigns the next revision to each change of a row."""
    with db:
        db.execute(
            "INSERT INTO orders VALUES (?, ?, ?, (SELECT coalesce(max(revision), 0) + 1 FROM orders))"
            " ON CONFLICT (id) DO UPDATE"
            " SET total = excluded.total, deleted = excluded.deleted, revision = excluded.revision",
            (key, total, deleted),
        )


def poll(db: sqlite3.Connection, log: ChangeLog, most: int = 1000) -> int:
    """Commits the rows changed since the last poll as one version, and returns their number."""
    last = log.produced("orders")
    rows = db.execute(
        "SELECT id, total, deleted, revision FROM orders WHERE revision > ? ORDER BY revision LIMIT ?",
        (last.sequence if last else 0, most),
    ).fetchall()
    if rows:
        *_, revision = rows[-1]
        log.commit([change(*row) for row in rows], producer=("orders", revision))
    return len(rows)


def change(key: str, total: str, deleted: int, revision: int) -> Mutation:
    if deleted:
        return remove("order", key, entry_version=revision)
    return upsert("order", key, {"total": total}, entry_version=revision)


def main() -> None:
    with tempfile.TemporaryDirectory() as place, ChangeLog.open(Path(place, "log")) as log:
        db = sqlite3.connect(Path(place, "shop.db"))
        db.executescript(TABLE)
        put_order(db, "42", "10.00")
        put_order(db, "42", "12.00")  # before the first poll, so the log never has 10.00
        poll(db, log)
        put_order(db, "42", "12.00", deleted=True)
        while poll(db, log):  # a real program repeats this, for example every second
            pass
        orders = log.changes(
            Criterion(entity_types={"order"}), since="earliest", until=log.visible, content=Content.BODY
        )
        for order in orders:
            print(order.operation.name, order.key, order.body, order.entry_version)
        db.close()


if __name__ == "__main__":
    main()

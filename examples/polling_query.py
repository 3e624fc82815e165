"""A polling query: rows whose revision is above the last one that was seen, moved to a change log.

Each row has a revision that rises with every change of the table, and a deletion is a mark. The log itself remembers the last
revision: it is the sequence of the producer, stored with the changes, so nothing is left out or committed twice by a kill.

Run it: python examples/polling_query.py
"""

import sqlite3
import tempfile
from pathlib import Path

from publishers import ChangeLog, Content, Criterion, Mutation, remove, upsert

TABLE = """
CREATE TABLE IF NOT EXISTS orders (
    id TEXT PRIMARY KEY,
    total TEXT NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL UNIQUE
);
"""


def put_order(db: sqlite3.Connection, key: str, total: str, *, deleted: bool = False) -> None:
    """The application, which gives each change of a row the next revision."""
    with db:
        db.execute(
            "INSERT INTO orders VALUES (?, ?, ?, (SELECT coalesce(max(revision), 0) + 1 FROM orders))"
            " ON CONFLICT (id) DO UPDATE"
            " SET total = excluded.total, deleted = excluded.deleted, revision = excluded.revision",
            (key, total, deleted),
        )


def poll(db: sqlite3.Connection, log: ChangeLog, most: int = 1000) -> int:
    """Commits what has changed since the last poll as one version, and returns how many rows that were."""
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
        put_order(db, "42", "12.00")  # before anybody polls, so 10.00 is never seen
        poll(db, log)
        put_order(db, "42", "12.00", deleted=True)
        while poll(db, log):  # in a program of yours: every second, say
            pass
        orders = log.changes(
            Criterion(entity_types={"order"}), since="earliest", until=log.visible, content=Content.BODY
        )
        for order in orders:
            print(order.operation.name, order.key, order.body, order.entry_version)
        db.close()


if __name__ == "__main__":
    main()

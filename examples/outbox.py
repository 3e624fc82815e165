"""An outbox: the transaction that changes a row writes the change into a table too, and a relay moves it to a change log.

What the database committed comes into the log once, whatever is killed in between. The batch that a row belongs to is noted in
the database first; then the batch is committed under its number; then its rows are deleted. A batch that comes again is
recognised by its number, and writes nothing.

Run it: python examples/outbox.py
"""

import json
import sqlite3
import tempfile
from pathlib import Path

from publishers import ChangeLog, Content, Criterion, Mutation, remove, upsert

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, total TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    entity_type TEXT NOT NULL,
    key TEXT NOT NULL,
    body TEXT,        -- JSON; NULL is a removal
    batch INTEGER     -- NULL until the relay has taken it
);
"""


def put_order(db: sqlite3.Connection, key: str, total: str) -> None:
    """The application: both rows, or neither. The outbox comes last, so that its order is that of the rows."""
    with db:
        db.execute(
            "INSERT INTO orders VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET total = excluded.total",
            (key, total),
        )
        db.execute(
            "INSERT INTO outbox (entity_type, key, body) VALUES ('order', ?, ?)",
            (key, json.dumps({"total": total})),
        )


def delete_order(db: sqlite3.Connection, key: str) -> None:
    with db:
        db.execute("DELETE FROM orders WHERE id = ?", (key,))
        db.execute("INSERT INTO outbox (entity_type, key) VALUES ('order', ?)", (key,))


def relay(db: sqlite3.Connection, log: ChangeLog, most: int = 1000) -> int:
    """Moves one batch, and returns how many changes it had; 0 if nothing waits."""
    (batch,) = db.execute("SELECT max(batch) FROM outbox").fetchone()  # left by a relay that was killed?
    if batch is None:
        last = log.produced("outbox")
        batch = last.sequence + 1 if last else 1
        with db:
            db.execute(
                "UPDATE outbox SET batch = ? WHERE id IN (SELECT id FROM outbox ORDER BY id LIMIT ?)",
                (batch, most),
            )
    rows = db.execute(
        "SELECT entity_type, key, body FROM outbox WHERE batch = ? ORDER BY id", (batch,)
    ).fetchall()
    if rows:
        log.commit([change(*row) for row in rows], producer=("outbox", batch), durable=True)
        with db:
            db.execute("DELETE FROM outbox WHERE batch = ?", (batch,))
    return len(rows)


def change(entity_type: str, key: str, body: str | None) -> Mutation:
    return remove(entity_type, key) if body is None else upsert(entity_type, key, body.encode())


def main() -> None:
    with tempfile.TemporaryDirectory() as place, ChangeLog.open(Path(place, "log")) as log:
        db = sqlite3.connect(Path(place, "shop.db"))
        db.executescript(TABLES)
        put_order(db, "42", "10.00")
        put_order(db, "42", "12.00")
        delete_order(db, "42")
        while relay(db, log):  # in a program of yours: again after each commit, or every tenth of a second
            pass
        orders = log.changes(
            Criterion(entity_types={"order"}), since="earliest", until=log.visible, content=Content.BODY
        )
        for order in orders:
            print(order.operation.name, order.key, order.body)
        db.close()


if __name__ == "__main__":
    main()

"""An outbox: the transaction that changes a row also inserts the change into an outbox table; a relay moves it to a change log.

Each committed change reaches the log exactly once, even if the relay is killed at any point. The relay first records in the
database which rows form a batch, then commits the batch to the log under its number, and then deletes the rows. The log
recognises a repeated batch by its number, and writes nothing.

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
    """The application: writes both rows or neither. The outbox row comes last, so that the outbox has the order of the updates."""
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
    """Moves one batch, and returns the number of its changes; 0 if the outbox is empty."""
    (batch,) = db.execute("SELECT max(batch) FROM outbox").fetchone()  # the batch of a killed relay, if any
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
        while relay(db, log):  # a real program repeats this after each commit, or every tenth of a second
            pass
        orders = log.changes(
            Criterion(entity_types={"order"}), since="earliest", until=log.visible, content=Content.BODY
        )
        for order in orders:
            print(order.operation.name, order.key, order.body)
        db.close()


if __name__ == "__main__":
    main()

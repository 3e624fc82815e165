"""An outbox: the transaction that changes a row also inserts the change into an outbox table; a relay moves it to a change log.

Each committed change reaches the log exactly once, even if the relay is killed at any point, and whatever the number of threads
that use it.

    pip install 'penstock-cdc[sql]'
    python examples/outbox.py
"""

import tempfile
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, text

from penstock_cdc import ChangeLog, Content, Criterion, Outbox

ORDERS = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, total TEXT NOT NULL)"
PUT = "INSERT INTO orders VALUES (:id, :total) ON CONFLICT (id) DO UPDATE SET total = excluded.total"


def put_order(db: Connection, outbox: Outbox, key: str, total: str) -> int:
    """The application: writes both rows or neither. The outbox row comes last, so that the outbox has the order of the updates."""
    db.execute(text(PUT), {"id": key, "total": total})
    return outbox.upsert(db, "order", key, {"total": total})


def delete_order(db: Connection, outbox: Outbox, key: str) -> int:
    db.execute(text("DELETE FROM orders WHERE id = :id"), {"id": key})
    return outbox.remove(db, "order", key)


def tables(engine: Engine, outbox: Outbox) -> None:
    with engine.begin() as db:
        db.execute(text(ORDERS))
    outbox.table.create(engine, checkfirst=True)


def sell(engine: Engine, log: ChangeLog) -> int:
    """Writes orders, and returns a version of the log that has them."""
    outbox = Outbox(engine, log)
    tables(engine, outbox)
    with outbox:  # a thread moves what is committed
        with engine.begin() as db:
            put_order(db, outbox, "42", "10.00")
        with engine.begin() as db:
            put_order(db, outbox, "42", "12.00")
            last = delete_order(db, outbox, "42")
        return outbox.wait(last)  # the version has the row and all before it


def main() -> None:
    with tempfile.TemporaryDirectory() as place, ChangeLog.open(Path(place, "log")) as log:
        engine = create_engine(f"sqlite:///{place}/shop.db")
        version = sell(engine, log)
        orders = log.changes(
            Criterion(entity_types={"order"}), since="earliest", until=version, content=Content.BODY
        )
        for order in orders:
            print(order.operation.name, order.key, order.body)
        engine.dispose()


if __name__ == "__main__":
    main()

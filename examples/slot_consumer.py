"""A consumer that stores no position itself: it acknowledges to a slot, crashes, and resumes at the slot's position.

Run it: python examples/slot_consumer.py
"""

import tempfile
from pathlib import Path

from penstock_cdc import ChangeLog, Content, Criterion, Deduplicator, upsert


def consume(log: ChangeLog, known: Deduplicator, most: int) -> None:
    """Handles ``most`` changes, but does not acknowledge the last one, like a process that crashes at that point."""
    with log.slots.open("stock", owner="example") as slot:
        print(f"generation {slot.generation}, from {slot.position}")
        for count, change in enumerate(slot.changes(content=Content.BODY), 1):
            repeat = not known.add(log.idempotency_key(change))
            print(f"  order {change.key}: {change.body['total']}{' (again)' if repeat else ''}")
            if count == most:
                return
            slot.ack(change)


def main() -> None:
    path = Path(tempfile.mkdtemp()) / "orders"
    known = Deduplicator()
    with ChangeLog.open(path) as log:
        log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest")
        for number in range(1, 6):
            log.commit([upsert("order", str(number), {"total": f"{number}.00"})])
        consume(log, known, 3)
    with ChangeLog.open(path) as log:  # another process, later
        lag = log.slots.info("stock").lag
        print(f"behind by {lag.versions} versions")
        consume(log, known, 3)


if __name__ == "__main__":
    main()

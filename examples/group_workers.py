"""Two workers share the orders of a log: one worker handles the changes of an order in sequence; failed changes are redelivered.

Run it: python examples/group_workers.py
"""

import tempfile
import threading
from pathlib import Path

from penstock_cdc import ChangeLog, Criterion, GroupDelivery, upsert

LOCK = threading.Lock()
STATES: dict[str, list[str]] = {}


def handle(delivery: GroupDelivery) -> None:
    """Handles one change; the first attempt at order 3 fails."""
    change = delivery.change
    if change.key == "3" and delivery.count == 1:
        raise ConnectionError("the warehouse does not answer")
    with LOCK:
        STATES.setdefault(str(change.key), []).append(change.body["state"])


def main() -> None:
    with ChangeLog.open(Path(tempfile.mkdtemp()) / "orders") as log:
        orders = Criterion(entity_types={"order"})
        group = log.groups.create("pickers", orders, since="earliest", backoff=(0.01,))
        with group.work("worker 1", handle, concurrency=2), group.work("worker 2", handle, concurrency=2):
            for state in ("new", "paid", "sent"):
                log.commit([upsert("order", str(number), {"state": state}) for number in range(1, 6)])
            done = threading.Event()
            while group.info().floor < log.head:
                done.wait(0.01)
        for number, states in sorted(STATES.items()):
            print(f"order {number}: {', '.join(states)}")
        print(f"failed attempts: {group.info().redelivered >= 1}, dead letters: {group.info().dead}")


if __name__ == "__main__":
    main()

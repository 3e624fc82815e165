"""Many logs in one store: what they cost while they are idle, to create, to open, and to commit to."""

import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Table
from penstock_cdc import ChangeLog, ChangeStore, mutations

LOGS = 1_000
CHANGES = 20
"""Changes of a commit; each log gets one before it is measured."""
QUIET = 20.0
"""Seconds for which the store is left alone: several steps of an idle log."""
ROWS = [mutations.upsert("order", str(number), b'{"total":"10.00"}') for number in range(CHANGES)]


def run(directory: Path) -> dict[str, Table]:
    """Measures one store."""
    place = Path(tempfile.mkdtemp(dir=directory))
    names = [f"tenant-{number}" for number in range(LOGS)]
    threads = threading.active_count()
    store = ChangeStore.open(place / "store", sync="os")
    created = _each(names, store.create)
    for name in names:
        store[name].commit(ROWS)
    settled = time.monotonic() + QUIET / 2
    second = _each(names, lambda name: store[name].commit(ROWS))
    with ChangeLog.open(place / "alone", sync="os") as log:
        log.commit(ROWS)
        alone = _each(names, lambda _: log.commit(ROWS))
    pause = threading.Event()
    pause.wait(max(settled - time.monotonic(), 0))
    cpu = time.process_time()
    pause.wait(QUIET)
    idle = 100 * (time.process_time() - cpu) / QUIET
    more, used = threading.active_count() - threads, _disk(place / "store")
    descriptors = len(os.listdir("/proc/self/fd"))
    store.close()
    cpu = time.process_time()
    with ChangeStore.open(place / "store", sync="os") as again:
        again.open_all()
        opened = time.process_time() - cpu
    sizes = f"logs={LOGS:,}, B={CHANGES}; left to the operating system"
    costs = Table(
        "a store of many logs",
        "as each says",
        {
            "idle, percent of a core": [idle],
            "threads": [more],
            "descriptors of a log": [descriptors / LOGS],
            "disk, MB": [used / 1e6],
            "to open all, CPU seconds": [opened],
        },
        sizes,
    ).show()
    costs.reach("idle, percent of a core", "<=", 1)
    costs.reach("threads", "<=", 4)
    costs.reach("disk, MB", "<=", 200)
    costs.reach("to open all, CPU seconds", "<=", 3)
    times = Table(
        "the time of one", "ms", {"a commit to a lone log": alone, "a commit to one of many": second}, sizes
    ).show()
    times.reach("a commit to one of many", "<=", 1.5, "a commit to a lone log")
    making = Table("to create a log", "ms", {"a log of a store": created}, sizes).show()
    making.reach("a log of a store", "<=", 5)
    return {"store": costs, "commit": times, "create": making}


def _each(names: list[str], act: Callable[[str], object]) -> list[float]:
    """Milliseconds for each of the names."""
    found = []
    for name in names:
        began = time.perf_counter()
        act(name)
        found.append((time.perf_counter() - began) * 1000)
    return found


def _disk(place: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in place.rglob("*") if path.is_file())

"""Ten subscribers of one publisher: behind a backlog, and beside a writer that never pauses, on the default executor."""

import tempfile
import time
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import Table, Variant, compare, progress
from benchmarks.resync import Waiting
from publishers import ChangeLog, Position, upsert

COMMITS = 10_000
SIZE = 10
READERS = 10
SECONDS = 2.0
_ONE = "one subscriber"
_TEN = "ten subscribers together"
_DUE = "written for ten subscribers"
_GIVEN = "delivered while it writes"
_DRAINED = "delivered in all, with the time to drain"
ROWS = [upsert("flight", f"B6/{n}", b'{"status":"DEPARTED","n":%d}' % n) for n in range(SIZE)]


def run(directory: Path) -> dict[str, Table]:
    """Delivery of a backlog of 10,000 transactions, and beside a writer at full speed."""
    return {"backlog": backlog(directory), "beside a writer": beside(directory)}


def backlog(directory: Path) -> Table:
    """Ten subscribers that read the same backlog, beside a single one."""
    with ChangeLog.open(
        Path(tempfile.mkdtemp(dir=directory)) / "log", sync="os", replay_bytes=16 << 20
    ) as log:
        for _ in range(COMMITS):
            log.commit(ROWS)

        def read(count: int) -> tuple[int, float]:
            readers = [Waiting() for _ in range(count)]
            began = time.perf_counter()
            for reader in readers:
                log.changes(since=Position(1), until=COMMITS).subscribe(reader)
            for reader in readers:
                assert reader.done.wait(120)
                assert reader.count == COMMITS * (SIZE + 1)
            return sum(reader.count for reader in readers), time.perf_counter() - began

        found = compare(
            f"a backlog of {COMMITS:,} transactions",
            "deliveries/s",
            [Variant(_ONE, lambda: read(1)), Variant(_TEN, lambda: read(READERS))],
            sizes=f"S=1 and {READERS}, B={SIZE}, P=1; on_next, the default executor",
        )
    found.reach(_TEN, ">=", 3, _ONE)
    return found


def beside(directory: Path) -> Table:
    """A writer that never pauses: changes written, and changes delivered."""
    rounds: dict[str, list[float]] = {_DUE: [], _GIVEN: [], _DRAINED: []}
    for number in range(harness.ROUNDS):
        with ChangeLog.open(Path(tempfile.mkdtemp(dir=directory)) / "log", sync="os") as log:
            readers = [Waiting() for _ in range(READERS)]
            for reader in readers:
                log.changes().subscribe(reader)
            written, began = 0, time.perf_counter()
            while time.perf_counter() - began < SECONDS:
                log.commit(ROWS)
                written += SIZE + 1
            took = time.perf_counter() - began
            given = sum(reader.count for reader in readers)
            while any(reader.count < written for reader in readers):
                readers[0].done.wait(0.001)
            drained = time.perf_counter() - began
        rounds[_DUE].append(READERS * written / took)
        rounds[_GIVEN].append(given / took)
        rounds[_DRAINED].append(READERS * written / drained)
        progress(f"a writer that never pauses: round {number + 1} of {harness.ROUNDS}")
    progress()
    sizes = f"S={READERS}, B={SIZE}, P=1; sync=os, on_next, the default executor"
    found = Table("a writer that never pauses", "deliveries/s", rounds, sizes).show()
    found.reach(_GIVEN, ">=", 150_000)
    found.reach(_GIVEN, ">=", 0.9, _DUE)
    found.reach(_DRAINED, ">=", 0.5, _DUE)
    return found

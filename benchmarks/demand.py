"""``request(1)`` for each change of a backlog: inside ``on_next``, and from another thread that waits for each change."""

import tempfile
import threading
from pathlib import Path

import flow
from benchmarks.harness import Table, Variant, compare, timed
from publishers import ChangeLog, Position, upsert

COMMITS = 500
SIZE = 10
_INSIDE = "request(1) inside on_next"
_THREAD = "request(1) from another thread, INLINE"
_POOL = "request(1) from another thread, default executor"
ROWS = [upsert("flight", f"B6/{n}", b'{"status":"DEPARTED","n":%d}' % n) for n in range(SIZE)]


class Stepwise:
    """Takes one change at a time."""

    def __init__(self, *, inside: bool) -> None:
        self.inside = inside
        self.count = 0
        self.subscription: flow.Subscription | None = None
        self.came = threading.Semaphore(0)

    def on_subscribe(self, subscription: flow.Subscription) -> None:
        self.subscription = subscription
        if self.inside:
            subscription.request(1)
        else:
            self.came.release()

    def on_next(self, _change: object) -> None:
        self.count += 1
        if self.inside:
            assert self.subscription is not None
            self.subscription.request(1)
        else:
            self.came.release()

    def on_error(self, error: Exception) -> None:
        raise AssertionError(error)

    def on_complete(self) -> None:
        self.came.release()


def run(directory: Path) -> dict[str, Table]:
    """One subscriber that reads a backlog from the log."""
    changes = COMMITS * (SIZE + 1)
    with ChangeLog.open(Path(tempfile.mkdtemp(dir=directory)) / "log", sync="os") as log:
        for _ in range(COMMITS):
            log.commit(ROWS)

        def read(executor: flow.Executor | None, *, inside: bool) -> int:
            reader = Stepwise(inside=inside)
            log.changes(since=Position(1), until=COMMITS).subscribe(reader, executor=executor)
            assert reader.came.acquire(timeout=120)  # on_subscribe, or on_complete
            while reader.count < changes:
                assert reader.subscription is not None
                reader.subscription.request(1)
                assert reader.came.acquire(timeout=120)
            assert inside or reader.came.acquire(timeout=120)  # on_complete
            assert reader.count == changes
            return changes

        found = compare(
            f"one by one, a backlog of {changes:,} changes",
            "changes/s",
            [
                Variant(_INSIDE, lambda: timed(lambda: read(flow.INLINE, inside=True))),
                Variant(_THREAD, lambda: timed(lambda: read(flow.INLINE, inside=False))),
                Variant(_POOL, lambda: timed(lambda: read(None, inside=False))),
            ],
            sizes=f"S=1, B={SIZE}, P=1; read from the log",
        )
    found.reach(_INSIDE, ">=", 1e6 / 10)
    found.reach(_THREAD, ">=", 1e6 / 20)
    found.reach(_POOL, ">=", 1e6 / 20)
    print()
    return {"one by one": found}

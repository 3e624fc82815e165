"""From commit to ``on_next``, against a loop that calls nothing and against a reactivex ``Subject``."""

import tempfile
from pathlib import Path

from reactivex import Subject

import flow
from benchmarks import harness
from benchmarks.harness import Table, Variant, compare, timed
from publishers import ChangeLog, upsert

COMMITS = 200
SIZE = 10
SUBSCRIBERS = (1, 100, 1000)
BESIDE = {1: 1 / 6, 100: 0.7, 1000: 1.2}
"""The goal, as a part of the rate of reactivex, which writes no log, by number of subscribers."""
ROWS = [upsert("flight", f"B6/{n}", b'{"status":"DEPARTED"}') for n in range(SIZE)]
_LOOP = "a loop that calls on_next"
_NEXT = "penstock, commit included, on_next"
_BATCH = "penstock, commit included, on_next_batch"
_RX = "reactivex Subject, no log"


class Counting:
    def __init__(self) -> None:
        self.count = 0

    def on_subscribe(self, subscription: flow.Subscription) -> None:
        subscription.request(flow.UNBOUNDED)

    def on_next(self, _item: object) -> None:
        self.count += 1

    def on_error(self, error: Exception) -> None:
        raise AssertionError(error)

    def on_complete(self) -> None:
        return


class Batched(Counting):
    def on_next_batch(self, items: list[object]) -> None:
        self.count += len(items)


def run(directory: Path) -> dict[str, Table]:
    """1, 100 and 1,000 subscribers to everything, 10 changes a commit."""
    return {f"fan-out to {n}": table(directory, n) for n in SUBSCRIBERS}


def followed(place: Path, kind: type[Counting], subscribers: int) -> tuple[ChangeLog, list[Counting]]:
    """A log, and its subscribers."""
    log = ChangeLog.open(place, sync="os")
    followers = [kind() for _ in range(subscribers)]
    for follower in followers:
        log.changes().subscribe(follower, executor=flow.INLINE)
    return log, followers


def table(directory: Path, subscribers: int) -> Table:
    place = Path(tempfile.mkdtemp(dir=directory))
    commits = max(10, COMMITS // max(1, subscribers // 100))
    logs = {
        name: followed(place / name, kind, subscribers)
        for name, kind in (("plain", Counting), ("batched", Batched))
    }
    subject: Subject[object] = Subject()
    observers = [Counting() for _ in range(subscribers)]
    for one in observers:
        subject.subscribe(one.on_next)
    targets = [Counting() for _ in range(subscribers)]
    deliveries = subscribers * commits * (SIZE + 1)

    def commit(name: str) -> int:
        for _ in range(commits):
            logs[name][0].commit(ROWS)
        return deliveries

    def loop() -> int:
        for _ in range(commits):
            for item in range(SIZE + 1):
                for target in targets:
                    target.on_next(item)
        return deliveries

    def emit() -> int:
        for _ in range(commits * (SIZE + 1)):
            subject.on_next(None)
        return deliveries

    figures = compare(
        f"commit to on_next, {subscribers} subscribers, {SIZE} changes a commit",
        "deliveries/s",
        [
            Variant(_LOOP, lambda: timed(loop)),
            Variant(_NEXT, lambda: timed(lambda: commit("plain"))),
            Variant(_BATCH, lambda: timed(lambda: commit("batched"))),
            Variant(_RX, lambda: timed(emit)),
        ],
        sizes=f"S={subscribers}, B={SIZE}, C=1, P=1; left to the operating system",
    )
    figures.reach(_NEXT, ">=", BESIDE.get(subscribers, 2), _RX)
    if subscribers >= 100:
        figures.reach(_NEXT, ">=", 0.8, _LOOP)
        figures.reach(_BATCH, ">=", 15, _RX)
    print()
    for log, kinds in logs.values():
        assert all(one.count == harness.ROUNDS * commits * (SIZE + 1) for one in kinds)
        log.close()
    return figures

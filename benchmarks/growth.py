"""The cost of a commit as its surroundings grow: the log, idle subscribers, predicates that match nothing, laggards."""

import gc
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import flow
from benchmarks import harness
from benchmarks.harness import Table, Variant, compare, cpu, percentile
from penstock_cdc.errors import LogClosed
from publishers import ChangeLog, Content, Criterion, Position, upsert

COMMITS = 500
"""Commits of a round."""
SIZE = 10
HISTORIES = (0, 1_000_000)
"""Changes in the log before the measurement."""
IDLE = (10, 10_000)
PREDICATES = (10, 1_000, 100_000)
LIVE = 100
LAGGARDS = 1_000
BACKLOG = 100_000
PACE = 0.002
"""Seconds between two commits beside laggards."""
ROWS = [upsert("flight", f"B6/{n}/2013-01-01/JFK", b'{"status":"DEPARTED","n":%d}' % n) for n in range(SIZE)]
_BULK = [upsert("flight", f"B6/{n}", b'{"status":"DEPARTED","n":%d}' % n) for n in range(1000)]
_FLAT = 0.8


class Silent:
    """A subscriber that requests a given number of changes, or none."""

    __slots__ = ("demand", "subscription")

    def __init__(self, demand: int) -> None:
        self.demand = demand

    def on_subscribe(self, subscription: flow.Subscription, /) -> None:
        self.subscription = subscription
        if self.demand:
            subscription.request(self.demand)

    def on_next(self, _change: object, /) -> None:
        raise AssertionError("nothing was to come")

    def on_error(self, error: Exception, /) -> None:
        # The log is closed before a subscriber without demand has all changes.
        assert isinstance(error, LogClosed), error

    def on_complete(self) -> None:
        return


class Live(Silent):
    """Requests without bound, and notes the time of each batch."""

    __slots__ = ("count", "times")

    def __init__(self) -> None:
        super().__init__(flow.UNBOUNDED)
        self.count = 0
        self.times: list[int] = []

    def on_next_batch(self, changes: Sequence[object], /) -> None:
        self.count += len(changes)
        self.times.append(time.perf_counter_ns())


class Lagging(Silent):
    """Reads the history at full speed, a few hundred changes at a time."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        super().__init__(256)
        self.count = 0

    def on_next_batch(self, changes: Sequence[object], /) -> None:
        self.count += len(changes)
        self.subscription.request(len(changes))


def run(directory: Path) -> dict[str, Table]:
    """Commits in small and large surroundings of each kind."""
    return {
        "growth of the log": histories(directory),
        "growth of idle subscribers": idle(directory),
        "growth of predicates": predicates(directory),
        "live beside laggards": beside(directory),
        "memory of subscribers of a log": memory(directory),
    }


def filled(place: Path, changes: int) -> ChangeLog:
    """A log with a history, in many segments."""
    log = ChangeLog.open(place, sync="os", segment_bytes=1 << 20)
    for _ in range(changes // len(_BULK)):
        log.commit(_BULK)
    return log


def grown(title: str, logs: dict[str, ChangeLog], sizes: str, unit: str = "commits/CPU-s") -> Table:
    """The CPU time of commits to logs with growing surroundings."""
    before = {name: log.head.version for name, log in logs.items()}

    def commits(log: ChangeLog) -> Callable[[], int]:
        def work() -> int:
            for _ in range(COMMITS):
                log.commit(ROWS)
            return COMMITS

        return work

    variants = [Variant(name, lambda log=log: cpu(commits(log))) for name, log in logs.items()]  # type: ignore[misc]  # bound early
    found = compare(title, unit, variants, sizes=sizes)
    for name, log in logs.items():
        assert log.head.version - before[name] == harness.ROUNDS * COMMITS
    first = found[0].variant
    for figure in found[1:]:
        found.reach(figure.variant, ">=", _FLAT, first)
    print()
    for log in logs.values():
        log.close()
    return found


def histories(directory: Path) -> Table:
    """An empty log, and one with many segments."""
    place = Path(tempfile.mkdtemp(dir=directory))
    logs = {f"{size:,} changes before": filled(place / str(size), size) for size in HISTORIES}
    return grown(
        "commits to a log that has grown", logs, f"S=0, B={SIZE}, C=1, P=0; left to the operating system"
    )


def idle(directory: Path) -> Table:
    """Subscribers to all changes that never request."""
    place = Path(tempfile.mkdtemp(dir=directory))
    logs = {}
    for size in IDLE:
        log = logs[f"{size:,} subscribers without demand"] = ChangeLog.open(place / str(size), sync="os")
        for _ in range(size):
            log.changes().subscribe(Silent(0), executor=flow.INLINE)
    return grown("commits beside idle subscribers", logs, f"B={SIZE}, C=1, P=1; left to the operating system")


def memory(directory: Path) -> Table:
    """Bytes for one subscriber that waits for the next commit."""
    wishes = {
        "of equal criteria": lambda _: Criterion(entity_types={"flight"}),
        "of criteria of its own": lambda number: Criterion(entity_types={"flight"}, keys={f"UA/{number}"}),
    }
    place = Path(tempfile.mkdtemp(dir=directory))
    found: dict[str, list[float]] = {}
    for name, wish in wishes.items():
        with ChangeLog.open(place / name.replace(" ", "-"), sync="os") as log:
            log.changes(wish(0)).subscribe(Silent(flow.UNBOUNDED), executor=flow.INLINE)
            gc.collect()
            tracemalloc.start()
            try:
                for number in range(1, IDLE[-1] + 1):
                    log.changes(wish(number)).subscribe(Silent(flow.UNBOUNDED), executor=flow.INLINE)
                gc.collect()
                found[name] = [tracemalloc.get_traced_memory()[0] / IDLE[-1]]
            finally:
                tracemalloc.stop()
    return Table("memory of an idle subscriber of a log", "bytes", found, f"S={IDLE[-1]}, no commits").show()


def predicates(directory: Path) -> Table:
    """Subscribers with demand and a predicate each, which no change matches."""
    place = Path(tempfile.mkdtemp(dir=directory))
    logs = {}
    for size in PREDICATES:
        log = logs[f"{size:,} predicates that do not match"] = ChangeLog.open(place / str(size), sync="os")
        for number in range(size):
            wish = Criterion(entity_types={"flight"}, keys={f"UA/{number}"})
            log.changes(wish).subscribe(Silent(flow.UNBOUNDED), executor=flow.INLINE)
    return grown(
        "commits beside predicates that do not match",
        logs,
        f"S=P, B={SIZE}, C=1; left to the operating system",
    )


def beside(directory: Path) -> Table:
    """Live subscribers, alone and beside many that read the history; wall-clock time, with paced commits."""
    place = Path(tempfile.mkdtemp(dir=directory))
    log = ChangeLog.open(place / "log", sync="os", ring_events=4096)
    for _ in range(BACKLOG // len(_BULK)):
        log.commit(_BULK)
    live = [Live() for _ in range(LIVE)]
    everything = Criterion(entity_types={"flight"})
    for one in live:
        log.changes(everything).subscribe(one, executor=flow.INLINE)
    halves: dict[str, list[float]] = {}
    tails: dict[str, list[float]] = {}
    pause = threading.Event()
    read = 0

    def commits(name: str, laggards: int) -> tuple[int, float]:
        nonlocal read
        behind = [Lagging() for _ in range(laggards)]
        for late in behind:
            log.changes(everything, since=Position(1), content=Content.BODY).subscribe(late)
        # On a busy machine the measurement would begin before they read.
        while behind and not behind[0].count:
            pause.wait(PACE)
        begun, latencies, busy = sum(one.count for one in live), [], 0
        for _ in range(COMMITS):
            pause.wait(PACE)
            for one in live:
                one.times.clear()
            began = time.perf_counter_ns()
            log.commit(ROWS)
            busy += time.perf_counter_ns() - began
            latencies.append((live[-1].times[-1] - began) / 1000)
        for late in behind:
            late.subscription.cancel()
        done = sum(one.count for one in live) - begun
        assert done == COMMITS * SIZE * LIVE, "somebody who was live did not get everything"
        read += sum(one.count for one in behind)
        halves.setdefault(name, []).append(percentile(latencies, 0.5))
        tails.setdefault(name, []).append(percentile(latencies, 0.99))
        return done, busy / 1e9

    alone, many = "no laggards", f"{LAGGARDS:,} laggards that resync"
    sizes = f"S={LIVE}, B={SIZE}, C=1, P=1; left to the operating system"
    rate = compare(
        "live subscribers, while commits are delivered",
        "deliveries/s",
        [Variant(alone, lambda: commits(alone, 0)), Variant(many, lambda: commits(many, LAGGARDS))],
        sizes=sizes,
    )
    rate.note(f"{read:,} changes were resynced meanwhile")
    rate.reach(many, ">=", 0.9, alone)
    rounds = {alone: halves[alone], many: halves[many]}
    p50 = Table("commit to the last live subscriber, half of all within", "us", rounds, sizes).show()
    p50.reach(many, "<=", 1.2, alone)
    rounds = {alone: tails[alone], many: tails[many]}
    p99 = Table("commit to the last live subscriber, 99 of 100 within", "us", rounds, sizes).show()
    p99.reach(many, "<=", 2, alone)
    rate.goals += p50.goals + p99.goals
    print()
    log.close()
    return rate

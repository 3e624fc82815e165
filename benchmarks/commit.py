"""Durable commits: one caller against a bare write and sync, and many callers that share syncs; beside SQLite, LMDB and Redis.

The duration of a sync differs between disks, and from one moment to the next. So both measurements are repeated with a sync
that always takes one millisecond.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from benchmarks import harness
from benchmarks.harness import Table, Variant, compare, percentile, timed
from benchmarks.peers import SYNCED, Peer, RedisStream, peers, tell_missing
from publishers import ChangeLog, upsert

ROW = upsert(
    "flight", "B6/725/2013-01-01/JFK", b'{"status":"DEPARTED","delay":-1,"tailnum":"N804JB","dest":"BQN"}'
)
COMMITS = 200
"""Commits of one caller in a round."""
CALLERS = (10, 100, 1000)
GROUPED = 4_000
"""Commits of all callers together in a round, for variants with group commit."""
LARGE = (100, 1000)
FACTORS = {10: 5, 100: 20, 1000: 30}
SYNC = 0.001
"""Seconds of a simulated sync."""
_BARE = "bare write + fdatasync"
_OURS = "penstock, sync=always"
_SQLITE = "SQLite WAL, synchronous=FULL"
_REDIS = "Redis Streams, appendfsync=always"


def run(directory: Path) -> dict[str, Table]:
    """One caller, larger transactions, many callers; then one and many callers with a simulated sync."""
    found = {
        **one(directory),
        **{f"durable commit, {size} changes": larger(directory, size) for size in LARGE},
        **{f"durable commit, {callers} callers": many(directory, callers) for callers in CALLERS},
    }
    with even_sync():
        again = {
            **one(directory, even=True),
            **{
                f"durable commit, {callers} callers": many(directory, callers, even=True)
                for callers in CALLERS
                if callers <= 100
            },
        }
    return found | {f"{name}, a sync of 1 ms": table for name, table in again.items()}


@contextmanager
def even_sync() -> Iterator[None]:
    """Replaces each sync of a file by a sleep of `SYNC` seconds."""
    with patch("os.fdatasync", lambda _: time.sleep(SYNC)):  # noqa: TID251 - it stands for the disk
        yield


class Bare:
    """Writes into preallocated space, and syncs: the limit of the disk."""

    def __init__(self, place: Path, nbytes: int) -> None:
        self.file = os.open(place / "bare", os.O_RDWR | os.O_CREAT)
        self.data = bytes(nbytes)
        self.place = 0
        os.pwrite(self.file, bytes(COMMITS * nbytes), 0)
        os.fdatasync(self.file)

    def write(self) -> None:
        os.pwrite(self.file, self.data, self.place * len(self.data))
        os.fdatasync(self.file)
        self.place = (self.place + 1) % COMMITS

    def close(self) -> None:
        os.close(self.file)


def one(directory: Path, *, even: bool = False) -> dict[str, Table]:
    """Times each commit, for the distribution. Peers do not use the simulated sync, so they are left out with it."""
    place = Path(tempfile.mkdtemp(dir=directory))
    log, bare = ChangeLog.open(place / "log"), Bare(place, 240)
    others = [] if even else peers(place, synced=True)
    rows = [ROW]
    halves: dict[str, list[float]] = {}
    tails: dict[str, list[float]] = {}

    def each(name: str, write: Callable[[], object]) -> Variant:
        halves[name], tails[name] = [], []

        def work() -> tuple[int, float]:
            clock, samples = time.perf_counter_ns, []
            for _ in range(COMMITS):
                began = clock()
                write()
                samples.append((clock() - began) / 1000)
            halves[name].append(percentile(samples, 0.5))
            tails[name].append(percentile(samples, 0.99))
            return COMMITS, sum(samples) / 1e6

        return Variant(name, work)

    sizes = f"S=0, B=1, C=1, P=0; {'each sync takes 1 ms' if even else SYNCED}"
    variants = [
        each(_BARE, bare.write),
        each(_OURS, lambda: log.commit(rows)),
        *(each(peer.name, lambda peer=peer: peer.write(rows)) for peer in others),  # type: ignore[misc]  # bound early
    ]
    rate = compare("durable commit of one change, one caller", "commits/s", variants, sizes=sizes)
    assert log.head.version - 1 == harness.ROUNDS * COMMITS
    assert all(peer.count() == harness.ROUNDS * COMMITS for peer in others)
    for name in (_SQLITE, "LMDB", _REDIS):
        rate.reach(_OURS, ">=", 2, name)
    if not even:
        tell_missing(rate)
    print()
    p50 = Table("durable commit of one change, half of all within", "us", halves, sizes).show()
    p50.reach(_OURS, "<=", 1.05 if even else 1.3, _BARE)
    p99 = Table("durable commit of one change, 99 of 100 within", "us", tails, sizes).show()
    p99.reach(_OURS, "<=", 1.25, _BARE)
    print()
    end(log, bare, others)
    return {"durable commit": rate, "durable commit, p50": p50, "durable commit, p99": p99}


def larger(directory: Path, size: int) -> Table:
    """Transactions of many changes."""
    place = Path(tempfile.mkdtemp(dir=directory))
    log, bare, others = ChangeLog.open(place / "log"), Bare(place, 240 * size), peers(place, synced=True)
    rows = [ROW] * size
    turns = max(2, COMMITS // 10)

    def times(write: Callable[[], object]) -> tuple[int, float]:
        def work() -> int:
            for _ in range(turns):
                write()
            return turns * size

        return timed(work)

    found = compare(
        f"durable commit of {size} changes, one caller",
        "changes/s",
        [
            Variant(_BARE, lambda: times(bare.write)),
            Variant(_OURS, lambda: times(lambda: log.commit(rows))),
            *(
                Variant(peer.name, lambda peer=peer: times(lambda: peer.write(rows)))  # type: ignore[misc]  # bound early
                for peer in others
            ),
        ],
        sizes=f"S=0, B={size}, C=1, P=0; {SYNCED}",
    )
    assert log.head.version - 1 == harness.ROUNDS * turns
    assert all(peer.count() == harness.ROUNDS * turns * size for peer in others)
    found.reach(_OURS, ">=", 1.25 if size < 1000 else 2, _SQLITE)
    found.reach(_OURS, ">=", 1, "LMDB")
    found.reach(_OURS, ">=", 1, _REDIS)
    tell_missing(found)
    print()
    end(log, bare, others)
    return found


def many(directory: Path, callers: int, *, even: bool = False) -> Table:
    """Each caller on a thread of its own; SQLite and LMDB commit one after the other all the same."""
    place = Path(tempfile.mkdtemp(dir=directory))
    log, bare = ChangeLog.open(place / "log"), Bare(place, 240)
    others = [] if even else peers(place, synced=True, callers=callers)
    rows = [ROW]
    grouped = max(4, GROUPED // callers)
    alone = max(1, COMMITS // callers)
    turns = {peer.name: grouped if isinstance(peer, RedisStream) else alone for peer in others}

    def together(each: int, write: Callable[[int], object]) -> tuple[int, float]:
        gate = threading.Barrier(callers + 1)

        def work(caller: int) -> None:
            gate.wait()
            for _ in range(each):
                write(caller)

        threads = [threading.Thread(target=work, args=(caller,)) for caller in range(callers)]
        for thread in threads:
            thread.start()
        gate.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        return callers * each, time.perf_counter() - began

    def loop() -> int:
        for _ in range(COMMITS):
            bare.write()
        return COMMITS

    def concurrent(peer: Peer) -> tuple[int, float]:
        return together(turns[peer.name], lambda caller: peer.write(rows, caller))

    found = compare(
        f"durable commit of one change, {callers} callers",
        "commits/s",
        [
            Variant(_BARE, lambda: timed(loop)),
            Variant(_OURS, lambda: together(grouped, lambda _: log.commit(rows))),
            *(Variant(peer.name, lambda peer=peer: concurrent(peer)) for peer in others),  # type: ignore[misc]  # bound early
        ],
        sizes=f"S=0, B=1, C={callers}, P=0; {'each sync takes 1 ms' if even else SYNCED}; the bare loop has one caller",
    )
    commits = harness.ROUNDS * callers * grouped
    assert log.head.version - 1 == commits
    assert all(peer.count() == harness.ROUNDS * callers * turns[peer.name] for peer in others)
    assert log._committer is not None
    found.note(f"{commits / log._committer.groups:.1f} commits a sync")
    found.reach(_OURS, ">=", FACTORS.get(callers, 1), _BARE)
    for name in (_SQLITE, "LMDB", _REDIS):
        found.reach(_OURS, ">=", 1, name)
    if not even:
        tell_missing(found)
    print()
    end(log, bare, others)
    return found


def end(log: ChangeLog, bare: Bare, others: list[Peer]) -> None:
    """Closes the log and the peers."""
    log.close()
    bare.close()
    for peer in others:
        peer.close()

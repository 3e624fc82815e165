"""Reading a backlog from the log, against reading it from SQLite, LMDB and Redis Streams."""

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import flow
from benchmarks.fanout import Counting
from benchmarks.harness import Table, Variant, compare, timed
from benchmarks.peers import LEFT, peers, tell_missing
from publishers import ChangeLog, Content, Criterion, Position, upsert
from publishers.wal import Follower

CHANGES = 100_000
SIZES = (10, 100)
SQLITE = {10: (0.45, 0.3), 100: (2, 0.9)}
"""The goals for batches and for objects, as multiples of SQLite's rows a second, by transaction size."""
_SQLITE = "SQLite WAL, synchronous=OFF"
_FRAMES = "penstock, frames, verified"
_BATCHES = "penstock, on_next_batch"
_OBJECTS = "penstock, on_next with Change objects"
_FEW = "penstock, one in a hundred"
_WRITER = "penstock, a writer flat out, sync=os"


class Waiting(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.done = threading.Event()

    def on_complete(self) -> None:
        self.done.set()


class WaitingForBatches(Waiting):
    def on_next_batch(self, items: list[object]) -> None:
        self.count += len(items)


def run(directory: Path) -> dict[str, Table]:
    """A backlog of 100,000 changes, 10 and 100 a transaction."""
    return {f"resync, {size} a transaction": table(directory, size) for size in SIZES}


def table(directory: Path, size: int) -> Table:
    place = Path(tempfile.mkdtemp(dir=directory))
    log = ChangeLog.open(place / "log", sync="os", replay_bytes=1)
    written = ChangeLog.open(place / "written", sync="os")
    others = peers(place, synced=False)
    for start in range(0, CHANGES, size):
        rows = [
            upsert("flight", f"B6/{n % 100}", b'{"status":"DEPARTED","dest":"BQN","n":%d}' % n)
            for n in range(start, start + size)
        ]
        log.commit(rows)
        for peer in others:
            peer.write(rows)
    newest = log.head.version - 1

    def replay(criterion: Criterion, reader: Waiting, expected: int) -> int:
        log.changes(criterion, since=Position(1), until=newest, content=Content.BODY).subscribe(
            reader, executor=flow.INLINE
        )
        assert reader.done.wait(120)
        assert reader.count == expected
        return CHANGES

    def frames() -> int:
        files = Follower.open(place / "log")
        found, location = 0, files.reader.locate(1)
        while frame := files.reader.read(location):
            found += frame.columns.count
            location = frame.next
        files.close()
        assert found == CHANGES
        return found

    def read(peer_read: Callable[[], int]) -> int:
        found = peer_read()
        assert found == CHANGES
        return found

    def write() -> int:
        for _ in range(CHANGES // size):
            written.commit(rows)
        return CHANGES

    everything = Criterion(entity_types={"flight"})
    few = Criterion(entity_types={"flight"}, keys={"B6/7"})
    found = compare(
        f"a backlog of {CHANGES:,} changes, {size} a transaction",
        "changes/s",
        [
            *(
                Variant(peer.name, lambda peer=peer: timed(lambda: read(peer.read)))  # type: ignore[misc]  # bound early
                for peer in others
            ),
            Variant(_FRAMES, lambda: timed(frames)),
            Variant(_BATCHES, lambda: timed(lambda: replay(everything, WaitingForBatches(), CHANGES))),
            Variant(_OBJECTS, lambda: timed(lambda: replay(everything, Waiting(), CHANGES))),
            Variant(_FEW, lambda: timed(lambda: replay(few, Waiting(), CHANGES // 100))),
            Variant(_WRITER, lambda: timed(write)),
        ],
        sizes=f"S=1, B={size}, C=1, P=1; {LEFT}, read from the page cache",
    )
    batches, objects = SQLITE[size]
    found.reach(_BATCHES, ">=", batches, _SQLITE)
    found.reach(_OBJECTS, ">=", objects, _SQLITE)
    found.reach(_BATCHES, ">=", 0.5, _FRAMES)
    found.reach(_OBJECTS, ">=", 0.3, _FRAMES)
    found.reach(_BATCHES, ">=", 1, "LMDB, nosync")
    found.reach(_OBJECTS, ">=", 1, "Redis Streams, appendfsync=no")
    found.reach(_OBJECTS, ">=", 1, _WRITER)
    found.reach(_FEW, ">=", 5, _OBJECTS)
    tell_missing(found)
    print()
    log.close()
    written.close()
    for peer in others:
        peer.close()
    return found

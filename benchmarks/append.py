"""Appending without a sync, against writing ready bytes and against SQLite, LMDB and Redis Streams of the same durability."""

import os
import tempfile
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import Table, Variant, compare, timed
from benchmarks.peers import LEFT, Peer, peers, tell_missing
from publishers import ChangeLog, upsert
from publishers.mutations.mutation import columns_of
from publishers.wal import Wal

BODY = b'{"carrier":"B6","flight":725,"origin":"JFK","dest":"BQN","status":"DEPARTED","delay":-1,"tailnum":"N804JB"}'
SIZES = (1, 10, 100, 1000)
CHANGES = (2_000, 50_000)
"""Minimum and maximum number of changes of a round."""
SQLITE = {1: 1 / 0.9, 10: 1 / 0.45}
"""The goal, as a multiple of SQLite's rate with synchronous=OFF, by transaction size; for larger transactions it is 8."""
_RAW = "os.write of ready bytes"
_OBJECTS = "penstock, sync=os"
_COLUMNS = "penstock, sync=os, columns as from Arrow"


def run(directory: Path) -> dict[str, Table]:
    """1, 10, 100 and 1,000 changes in a transaction."""
    return {f"append, {size} a transaction": table(directory, size) for size in SIZES}


def table(directory: Path, size: int) -> Table:
    changes = max(CHANGES[0], min(CHANGES[1], size * 200))
    transactions = max(1, changes // size)
    changes = transactions * size
    rows = [upsert("flight", f"B6/{n}/2013-01-01/JFK", BODY) for n in range(size)]
    columns = columns_of(rows)
    place = Path(tempfile.mkdtemp(dir=directory))
    logs = [ChangeLog.open(place / name, sync="os") for name in ("objects", "columns")]
    others = peers(place, synced=False)
    raw = os.open(place / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    files = logs[0]._files
    assert isinstance(files, Wal)
    live = files._writer.active
    before = live.offset
    logs[0].commit(rows)
    payload = bytes(live.offset - before)  # the bytes of a transaction in the log

    def write() -> int:
        for _ in range(transactions):
            os.write(raw, payload)
        return changes

    def objects() -> int:
        for _ in range(transactions):
            logs[0].commit(rows)
        return changes

    def from_columns() -> int:
        for _ in range(transactions):
            logs[1].commit_columns([columns])
        return changes

    def to(peer: Peer) -> int:
        for _ in range(transactions):
            peer.write(rows)
        return changes

    found = compare(
        f"append without a sync, {size} a transaction",
        "changes/s",
        [
            Variant(_RAW, lambda: timed(write)),
            Variant(_OBJECTS, lambda: timed(objects)),
            Variant(_COLUMNS, lambda: timed(from_columns)),
            *(Variant(peer.name, lambda peer=peer: timed(lambda: to(peer))) for peer in others),  # type: ignore[misc]  # bound early
        ],
        sizes=f"S=0, B={size}, C=1, P=0; {LEFT}; {len(payload):,} bytes a transaction",
    )
    assert [log.head.version - 1 for log in logs] == [
        harness.ROUNDS * transactions + 1,
        harness.ROUNDS * transactions,
    ]
    assert all(peer.count() == harness.ROUNDS * changes for peer in others)
    found.reach(_OBJECTS, ">=", 0.4, _RAW)
    found.reach(_COLUMNS, ">=", 0.6, _RAW)
    found.reach(_OBJECTS, ">=", SQLITE.get(size, 8), "SQLite WAL, synchronous=OFF")
    found.reach(_OBJECTS, ">=", 1, "LMDB, nosync")
    found.reach(_OBJECTS, ">=", 1, "Redis Streams, appendfsync=no")
    tell_missing(found)
    print()
    for log in logs:
        log.close()
    for peer in others:
        peer.close()
    os.close(raw)
    return found

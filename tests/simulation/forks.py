"""T3 for files that are sound but of another history: a segment put back from a copy, a write that the disk has lost.

Every checksum in such a file is right. What tells is the chain over frames and segments: a log with one file of a fork is
reported, or reads as if it had its own; never as a mixture.
"""

import random
from collections.abc import Mapping

from publishers.errors import HistoryPruned, WalCorrupted
from publishers.options import LogOptions
from publishers.wal import Wal
from tests.harness.inside import catalog_of
from tests.publishers.wal.logs import commit, contents, opened, options
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG, Clock

__all__ = ["run"]

Contents = list[tuple[int, list[bytes | None]]]


def run(seed: int, trace: list[str] | None = None) -> Mapping[str, int]:
    """Exchanges one file for that of a fork; says whether that was reported, or without consequence."""
    rng = random.Random(seed)
    system = SimulatedFileSystem()
    sizes = options(segment_bytes=65536, fill_step=rng.choice([0, 4096]))
    # Both forks run by the same clock, so that they differ in nothing but what was written.
    trunk = opened(system, sizes, clock=Clock())
    _fill(trunk, rng.randrange(3), b"t")
    trunk.close()
    common = system.snapshot(LOG)
    bodies = [rng.choice([10, 300, 6000]) for _ in range(rng.randrange(20, 60))]
    ours, told = _fork(common, sizes, bodies, b"o", 1)
    theirs, _ = _fork(common, sizes, bodies, b"h", 2)
    names = sorted(name for name in ours if name in theirs and ours[name] != theirs[name] and name != "LOCK")
    segments = [name for name in names if name.endswith(".log")]
    name = rng.choice(names)
    if segments == [name]:
        return {"of one segment": 1}  # it is the whole fork, and nothing else could tell
    if trace is not None:
        trace.append(f"{name} of the fork; files that differ: {', '.join(names)}")
    log = None
    try:
        log = opened(SimulatedFileSystem.of(LOG, {**ours, name: theirs[name]}), sizes)
        found = contents(log)
    except (WalCorrupted, HistoryPruned):
        return {"reported": 1}
    finally:
        if log is not None:
            log.abandon()
    assert found == told, (
        f"{name}: {len(found)} versions, of which {sum(map(_differs, found, told))} are others"
    )
    return {"harmless": 1}


def _differs(one: object, other: object) -> bool:
    return one != other


def _fill(log: Wal, segments: int, letter: bytes) -> None:
    while len(catalog_of(log.reader).entries) <= segments:
        commit(log, letter * 3000)


def _fork(
    common: dict[str, bytes], sizes: LogOptions, bodies: list[int], letter: bytes, seed: int
) -> tuple[dict[str, bytes], Contents]:
    system = SimulatedFileSystem.of(LOG, common, seed)
    log = opened(system, sizes, clock=Clock(10**15))
    for size in bodies:
        commit(log, letter * size)
    told = contents(log)
    log.close()
    return system.snapshot(LOG), told

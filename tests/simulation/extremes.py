"""T17: clocks that stand still, leap and go back; versions, sequences and epochs around 2**53 and 2**63.

A log with large numbers is made from a small one: its first segment and HEAD are written anew with other numbers, which
is cheaper than to commit 2**63 transactions.
"""

from collections.abc import Callable
from dataclasses import replace
from zlib import crc32

from publishers.model.position import Position, PositionToken
from publishers.wal import Follower, Wal
from publishers.wal.append.active_segment import control_frame
from publishers.wal.files.head import HeadState
from publishers.wal.files.segment import SegmentHeader, segment_name
from publishers.wal.format.control import ControlTables
from publishers.wal.format.frame import Chain
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.ledger import OPTIONS, Life, contents
from tests.simulation.workload import LOG, PRODUCERS, Clock

__all__ = ["run", "total"]

YEAR = 365 * 86_400_000_000
NOW = 1_700_000_000_000_000
WALKS: dict[str, tuple[int, ...]] = {
    "stands still": (NOW,) * 12,
    "goes back": (
        NOW,
        NOW - 1,
        NOW - 3_600_000_000,
        NOW - YEAR,
        NOW,
        NOW - 5,
        NOW + 1,
        NOW - 7,
        NOW,
        0,
        NOW,
        1,
    ),
    "leaps": (
        NOW,
        NOW + YEAR,
        NOW,
        NOW + 50 * YEAR,
        NOW + YEAR,
        NOW,
        NOW + 60 * YEAR,
        NOW,
        NOW,
        NOW,
        NOW,
        NOW,
    ),
    "before 1970": (-NOW, -1, 0, 1, -YEAR, 2, 3, 4, 5, 6, 7, 8),
    "a second back and again": (
        NOW,
        NOW + 1_000_000,
        NOW,
        NOW + 1,
        NOW + 1,
        NOW + 2,
        NOW,
        NOW,
        NOW,
        NOW,
        NOW,
        NOW,
    ),
    "beyond 2**53": tuple(2**53 + step for step in (-3, -2, 5, -1, 0, 1, 2, 3, -9, 9, 10, 11)),
}
BASES = tuple(base + step for base in (2**31, 2**32, 2**53, 2**63) for step in (-3, -2, -1, 0, 1))


def walk(name: str) -> None:
    """Commit times rise strictly, over rolls and openings; age closes segments, retention keeps what it must."""
    life = Life(SimulatedFileSystem(), replace(OPTIONS, retain_age=10.0))
    times = iter(WALKS[name])
    life.clock.now = next(times)
    life.open()
    for number, now in enumerate(times):
        life.clock.now = now
        life.commit(100, producer=number % 3)
        life.maintain(floor=1)
        if number % 4 == 3:
            life.reopen()
    location = life.wal.reader.locate(1)
    last = None
    stamps = []
    while (frame := life.wal.reader.read(location)) is not None:
        at = frame.header.committed_at
        assert last is None or at > last, f"{at} after {last}"
        last = at
        stamps.append(at)
        location = frame.next
    assert len(stamps) == life.wal.durable == len(WALKS[name]) - 1
    assert stamps == sorted(set(stamps))
    for version, at in enumerate(stamps, 1):
        assert life.wal.reader.at(at) == version
        assert life.wal.reader.at(at + 1) == (version + 1 if at + 1 > at else version)
    life.wal.abandon()
    life.system.power_cut()
    life.ledger.check(life.system, life.options)


def numbered(first: int, epoch: int) -> SimulatedFileSystem:
    """A log whose next version is ``first``, and whose next epoch is behind ``epoch``."""
    small = SimulatedFileSystem()
    wal = Wal.open(LOG, OPTIONS, filesystem=small, clock=Clock())
    log_id = wal.log_id
    wal.close()
    tables = ControlTables()
    tables.opened(epoch, first)
    chain = Chain(7, first - 1)
    frame = control_frame(tables.encode(), chain, 1, first - 1)
    header = SegmentHeader(1, first, log_id, 1, 7).pack()
    head = HeadState(log_id, 3, epoch, first - 1, 1, len(header) + len(frame), 1).pack()
    files = {
        "HEAD": bytes(4096) + head + bytes(4096 - len(head)),
        segment_name(1): header + frame,
    }
    assert crc32(header[:60]) == int.from_bytes(header[60:64], "little")
    return SimulatedFileSystem.of(LOG, files)


def near(base: int) -> None:
    """Versions, sequences and epochs pass such a number as they pass any other."""
    system = numbered(base, base)
    life = Life(system)
    life.open()
    assert life.wal.epoch == base + 1
    life.ledger.floor = base
    life._number = base - 1
    for size in (10, 700, 20):
        life.commit(size, producer=1)
        life.pass_time()
        life.commit(size, size, group=2)
        life.maintain(steps=2)
    newest = base + 8
    assert (life.wal.oldest, life.wal.durable) == (base, newest)
    state = life.wal.producer(PRODUCERS[1])
    assert state is not None
    assert state[:2] == (life.ledger.given[base + 6].sequence, base + 6)
    follower = Follower.open(LOG, filesystem=system)
    assert list(contents(follower.reader)) == list(range(base, newest + 1))
    for version in range(base, newest + 1):
        frame = follower.reader.read(follower.reader.locate(version))
        assert frame is not None
        assert frame.header.version == version
        token = PositionToken(life.wal.log_id, life.wal.epoch, Position(version, 1))
        if life.wal.epoch < 2**63 > version:  # what a position may hold
            assert PositionToken.parse(str(token)) == token
    follower.close()
    life.show(newest)
    life.commit(5)
    life.forget_after(newest)
    life.wal.abandon()
    system.power_cut()
    life.ledger.check(system)


CASES: tuple[tuple[str, Callable[[], None]], ...] = (
    *((f"clock {name}", lambda name=name: walk(name)) for name in WALKS),  # type: ignore[misc]  # bound now
    *((f"numbers from {base}", lambda base=base: near(base)) for base in BASES),  # type: ignore[misc]  # likewise
)


def total() -> int:
    return len(CASES)


def run(seed: int, trace: list[str] | None = None) -> dict[str, int]:
    name, case = CASES[seed]
    if trace is not None:
        trace.append(name)
    try:
        case()
    except BaseException as error:
        error.add_note(name)
        raise
    return {"clocks" if name.startswith("clock") else "numbers": 1}

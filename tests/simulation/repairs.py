"""Row ``repair``: `penstock repair` meets power cuts, the death of the process, EIO and ENOSPC at any operation.

A log of three segments is damaged as a seed draws it, and repaired. However often the repair is struck: the log is never
worse than before, whoever opens it meanwhile gets what a repair keeps or is told of the damage, running it again ends it,
what is kept is what a repair keeps that nothing has struck, and what was cut off lies in ``.broken`` files.
"""

import random
from collections.abc import Mapping
from functools import cache

from publishers.errors import PenstockError, WalCorrupted
from publishers.wal import Wal
from publishers.wal.checks import Report, Verdict, repair, verify
from publishers.wal.files.segment import segment_number
from tests.simulation.damage import materials
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem
from tests.simulation.ledger import OPTIONS, Version, contents
from tests.simulation.workload import LOG, Clock

__all__ = ["run"]

KINDS = ("crash", "crash", "crash", "kill", "EIO", "ENOSPC")

Files = dict[str, bytes]
Contents = dict[int, Version]


@cache
def _whole() -> tuple[tuple[Files, Contents], ...]:
    """The logs of T3 and T4, with everything in them shown."""
    return tuple((material.files, _opened(material.files)) for material in materials())


def _opened(files: Files, boot: int = 1) -> Contents:
    """What an owner finds; `WalCorrupted` if he is refused."""
    system = SimulatedFileSystem.of(LOG, files, boot=boot)
    wal = Wal.open(LOG, OPTIONS, filesystem=system, clock=Clock(2_000_000_000))
    try:
        wal.show(None)
        return contents(wal.reader) if wal.durable else {}
    finally:
        wal.abandon()


def _damaged(rng: random.Random, files: Files) -> tuple[Files, str]:
    """One file damaged, or gone."""
    segments = [name for name in sorted(files) if name.endswith(".log")]
    name = rng.choice(
        [*segments, *segments, "HEAD", *(name for name in sorted(files) if name.endswith(".idx"))]
    )
    data = bytearray(files[name])
    used = len(data.rstrip(b"\0"))
    at = rng.randrange(max(used, 1))
    kind = rng.choice(["flip", "flip", "zeros", "cut", "gone", "noise"])
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "zeros":
        data[at : at + rng.choice([8, 100, 512])] = bytes(len(data[at : at + 512]))[
            : len(data[at : at + 512])
        ]
    elif kind == "noise":
        data[at : at + 64] = rng.randbytes(len(data[at : at + 64]))
    elif kind == "cut":
        del data[at:]
    damaged = {**files, name: bytes(data)}
    if kind == "gone":
        del damaged[name]
    return damaged, f"{kind} at {at} of {name}"


def run(seed: int, trace: list[str] | None = None) -> Mapping[str, int]:
    rng = random.Random(seed)
    files, whole = rng.choice(_whole())
    damaged, what = _damaged(rng, files)
    if trace is not None:
        trace.append(what)
    system = SimulatedFileSystem.of(LOG, damaged, seed)
    if trace is not None:
        system.trace = trace
    struck = 0
    try:
        planned = repair(LOG, filesystem=system)
        assert system.snapshot(LOG) == damaged, "a plan has changed something"
        if not planned.steps:
            return {"nothing to do": planned.refused is None, "refused": planned.refused is not None}
        kept, operations = _unstruck(damaged, whole)
        for _ in range(rng.choice([1, 1, 2, 3])):
            kind = rng.choice(KINDS)
            system.faults = {
                system.operations + rng.randint(1, operations): "crash" if kind == "kill" else kind
            }
            struck += _struck(system)
            _end(system, killed=kind == "kill" or rng.random() < 0.3)
            _no_worse(system, planned.before, kept, whole)
        done = repair(LOG, filesystem=system, write=True)
        assert done.after is None or done.after.verdict is Verdict.SOUND, done.after
        assert verify(LOG, filesystem=system).verdict is Verdict.SOUND
        system.power_cut()
        left = system.snapshot(LOG)
        found = _opened(left, system.boot)
        assert found == kept, f"{list(found)} is kept, and not {list(kept)}"
        for step in planned.steps:
            if step.action == "cut":
                _aside(damaged, left, step.segment, step.offset)
    except BaseException as error:
        error.add_note(what)
        raise
    return {"repairs struck": struck}


def _unstruck(damaged: Files, whole: Contents) -> tuple[Contents, int]:
    """What a repair keeps that nothing strikes, and how many operations it takes."""
    system = SimulatedFileSystem.of(LOG, damaged)
    repair(LOG, filesystem=system, write=True)
    kept = _opened(system.snapshot(LOG))
    assert all(whole[version] == content for version, content in kept.items()), "a repair invents something"
    return kept, system.operations


def _struck(system: SimulatedFileSystem) -> bool:
    try:
        repair(LOG, filesystem=system, write=True)
    except (PowerCut, PenstockError, OSError):
        return True
    return False


def _end(system: SimulatedFileSystem, *, killed: bool) -> None:
    system.faults = {}
    if killed:
        system.kill()
    else:
        system.power_cut()


def _no_worse(system: SimulatedFileSystem, before: Report, kept: Contents, whole: Contents) -> None:
    now = verify(LOG, filesystem=system)
    assert now.version >= before.version, f"version {now.version} is left of {before.version}"
    try:
        found = _opened(system.snapshot(LOG), system.boot)
    except WalCorrupted:
        return
    # A damage in a closed segment may not be noticed by who opens the log; then he has what is behind it as well.
    assert found == kept or found.items() >= kept.items(), (
        f"who opens it finds {list(found)}, and not {list(kept)}"
    )
    assert all(whole[version] == content for version, content in found.items())


def _aside(damaged: Files, left: Files, segment: int, offset: int) -> None:
    """Every byte that was cut off is in a file beside the log."""
    broken = [data for name, data in left.items() if name.endswith(".broken")]
    for name, data in damaged.items():
        number = segment_number(name)
        if number is None or number < segment:
            continue
        lost = data[offset if number == segment else 0 :].rstrip(b"\0")
        assert not lost or any(lost in kept for kept in broken), f"{len(lost)} bytes of {name} are nowhere"

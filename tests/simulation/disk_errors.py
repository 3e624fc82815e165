"""T5: every changing operation of ten workloads meets EIO, ENOSPC, EINTR or a short write.

A seed names workload, operation and kind; above their number it also draws what a power cut leaves. The log must say
that it failed, or that it is full and go on; what it acknowledged must be there afterwards, in either case.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from publishers.errors import LogFailed
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.ledger import OPTIONS, Life

__all__ = ["KINDS", "WORKLOADS", "run", "total"]

KINDS = ("EIO", "ENOSPC", "short", "EINTR")


def singles(life: Life) -> None:
    life.open()
    for size in (0, 1, 431, 432, 433, 900, 3000):
        life.commit(size)
    life.maintain()
    life.commit(10)
    life.close()


def groups(life: Life) -> None:
    life.open()
    for size in (5, 200, 512):
        life.commit(size, group=3)
        life.maintain()
        life.commit(size, group=2, sync=False)
        life.commit(size)
    life.close()


def rolls(life: Life) -> None:
    life.open()
    for size in (100, 600, 1200):
        life.commit(size)
        life.pass_time()
        life.commit(size)
        life.maintain(steps=2)
    life.close()


def spooled(life: Life) -> None:
    life.open()
    life.commit(100)
    life.commit(1500, 1500, 1500, 1500)
    life.maintain()
    life.commit(900, 900, 900, 900, 900, 900, producer=0)
    life.commit(3)
    life.close()


def continued(life: Life) -> None:
    life.open()
    life.commit(700, 700, 700)
    life.commit(1000, 20, 1000, producer=1)
    life.pass_time()
    life.commit(500, 500, 500, 500, group=2)
    life.maintain()
    life.close()


def withheld(life: Life) -> None:
    life.open()
    life.commit(50)
    life.show(1)
    life.commit(400)
    life.commit(400)
    life.maintain()
    life.show(2)
    life.pass_time()
    life.commit(30)
    life.show(None)
    life.commit(10)
    life.reopen()
    life.show(life.wal.durable)
    life.commit(10)


def forgotten(life: Life) -> None:
    life.open()
    life.commit(50, producer=0)
    life.show(1)
    life.commit(700, producer=0)
    life.pass_time()
    life.commit(700, producer=1)
    life.forget_after(2)
    life.commit(33, producer=0)
    life.forget_after(1)
    life.commit(20)
    life.close()


def pruned(life: Life) -> None:
    life.options = replace(life.options, retain_bytes=0)
    life.open()
    for _ in range(4):
        life.commit(500, producer=2)
        life.pass_time()
        life.commit(100)
        life.maintain(floor=max(life.wal.durable - 1, 1), steps=2)
    life.close()


def schemas(life: Life) -> None:
    life.open()
    life.tell()
    life.commit(20)
    life.tell()
    life.reopen()
    life.tell()
    life.commit(20)


def linked(life: Life) -> None:
    life.options = replace(life.options, retain_bytes=0)
    life.open()
    life.commit(300)
    life.link()
    for _ in range(3):
        life.pass_time()
        life.commit(300)
        life.maintain(floor=life.wal.durable, steps=2)
    life.close()


WORKLOADS: tuple[Callable[[Life], None], ...] = (
    singles,
    groups,
    rolls,
    spooled,
    continued,
    withheld,
    forgotten,
    pruned,
    schemas,
    linked,
)


@cache
def _operations() -> tuple[int, ...]:
    counts = []
    for workload in WORKLOADS:
        life = Life(SimulatedFileSystem())
        workload(life)
        counts.append(life.system.operations)
    return tuple(counts)


def total() -> int:
    """Workloads x operations x kinds."""
    return sum(_operations()) * len(KINDS)


def run(seed: int, trace: list[str] | None = None) -> dict[str, int]:
    case = seed % total()
    operation, kind = divmod(case, len(KINDS))
    for workload, operations in zip(WORKLOADS, _operations(), strict=True):
        if operation < operations:
            return _run(workload, operation + 1, KINDS[kind], seed, trace)
        operation -= operations
    raise AssertionError("the cases are counted wrongly")


def _run(
    workload: Callable[[Life], None], number: int, kind: str, seed: int, trace: list[str] | None
) -> dict[str, int]:
    system = SimulatedFileSystem(seed, trace=trace is not None)
    system.faults[number] = kind
    life = Life(system, OPTIONS)
    failed = False
    try:
        try:
            workload(life)
        except LogFailed:
            failed = True
        if kind == "short":
            assert not failed, "a short write was not continued"
        if system.random.random() < 0.25:
            system.kill()
        else:
            system.power_cut()
        life.ledger.check(system, life.options)
    except BaseException as error:
        error.add_note(f"{kind} at operation {number} of workload {workload.__name__}")
        raise
    finally:
        if trace is not None:
            trace.extend(system.trace or ())
    return {"failed logs": failed, "refused": life.refused}

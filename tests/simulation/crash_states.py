"""T2: every state in which a power cut can leave the disk of a fixed workload, up to ten pending changes at a time.

The workload runs once. Before each of its operations, and after the last, the disk is taken down as it is: what is
durable, and what is pending. Each 512-byte sector of a pending write, each truncation and each change of a name may then
have reached the medium or not: all subsets of up to ten such units are tried. Where more are pending, neighbours in one
file are taken together until there are ten. Every state must open, with what was acknowledged at that moment.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from pathlib import Path, PurePath

from publishers.wal.files.directory import LOCK_NAME
from publishers.wal.files.tail_page import TAIL_NAME
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.ledger import OPTIONS, Ledger, Life
from tests.simulation.medium import SECTOR, Inode, apply, rename

__all__ = ["MOST_UNITS", "operations", "run", "total"]

MOST_UNITS = 10
_SETTINGS = replace(OPTIONS, retain_bytes=0, fill_step=600)


def workload(life: Life) -> None:
    life.open()
    life.commit(40, producer=0)
    life.commit(700, 900, sync=False)
    life.commit(600, group=2, sync=False)
    life.commit(30, producer=1)
    life.tell()
    life.pass_time()
    life.commit(900, 900, producer=0)
    life.show(life.wal.durable)
    life.commit(500, sync=False)
    life.commit(1300, producer=1)
    life.forget_after(life.wal.durable - 1)
    life.show(None)
    life.maintain(floor=life.wal.durable)
    life.commit(900, 900, producer=1, sync=False)
    life.commit(900, 700)
    life.close()


_NEVER_SYNCED = (LOCK_NAME, TAIL_NAME)
"""What stands in them counts for nothing after a power cut; it survives with every odd number of other units."""

Unit = tuple[str, object, int, object]
"""What may survive on its own: ``("data", file, offset, bytes)``, ``("size", file, size, None)``, or a name's change."""


@dataclass
class State:
    """The disk between two operations.

    Attributes:
        ledger: What had been answered then.
        files: Durable bytes of each file.
        names: Durable names of each directory, with the places of their files in ``files``.
        unsynced: What the kernel shows of files that are never synced.
        units: What is pending, in the order in which it was done.
    """

    ledger: Ledger
    files: list[bytes]
    names: dict[str, dict[str, int]]
    unsynced: dict[int, bytes]
    units: list[list[Unit]]

    def disk(self, mask: int) -> SimulatedFileSystem:
        """A disk on which the units of a bit mask have survived."""
        system = SimulatedFileSystem(mask)
        inodes = [Inode(bytearray(), bytearray(data)) for data in self.files]
        for directory, names in self.names.items():
            system.make_directory(Path(directory or "/"))
            system._durable[directory] = {name: inodes[at] for name, at in names.items()}
        for number, group in enumerate(self.units):
            if not mask >> number & 1:
                continue
            for what, where, at, detail in group:
                if what == "name":
                    change, name = detail  # type: ignore[misc]  # of a unit of this kind
                    rename(system._durable[where], change, name, inodes[at] if at >= 0 else None)  # type: ignore[index]
                else:
                    apply(inodes[where].durable, at, detail)  # type: ignore[index, arg-type]
        if mask.bit_count() % 2:
            for at, data in self.unsynced.items():
                inodes[at].durable = bytearray(data)
        for inode in inodes:
            inode.current = bytearray(inode.durable)
        system._names = {directory: dict(names) for directory, names in system._durable.items()}
        return system


class _Recorder(SimulatedFileSystem):
    """Hands itself over before each operation."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], None] = lambda: None

    def operation(self, what: str, path: PurePath, *details: int) -> str | None:
        self.before()
        return super().operation(what, path, *details)


def _freeze(system: SimulatedFileSystem, ledger: Ledger) -> State:
    inodes: dict[int, int] = {}
    held: list[Inode] = []

    def place(inode: Inode) -> int:
        if id(inode) not in inodes:
            inodes[id(inode)] = len(held)
            held.append(inode)
        return inodes[id(inode)]

    names = {
        directory: {name: place(inode) for name, inode in known.items()}
        for directory, known in system._durable.items()
    }
    unsynced: dict[int, bytes] = {}
    units: list[list[Unit]] = []
    for directory, pending in system._pending.items():
        for change, name, inode in pending:
            at = -1 if inode is None else place(inode)
            units.append([("name", directory, at, (change, name))])
    for at, inode in enumerate(held):
        if any(at == known.get(name) for known in names.values() for name in _NEVER_SYNCED):
            unsynced[at] = bytes(inode.current)
            continue
        for offset, data in inode.pending:
            if data is None:
                units.append([("size", at, offset, None)])
                continue
            start = offset
            while start < offset + len(data):
                stop = min((start // SECTOR + 1) * SECTOR, offset + len(data))
                units.append([("data", at, start, data[start - offset : stop - offset])])
                start = stop
    while len(units) > MOST_UNITS:
        # The two neighbours of one file that are smallest together become one; names stay on their own.
        _, left = min(
            (len(units[place]) + len(units[place + 1]), place)
            for place in range(len(units) - 1)
            if units[place][0][:2] == units[place + 1][0][:2] or len(units) > 2 * MOST_UNITS
        )
        units[left : left + 2] = [units[left] + units[left + 1]]
    return State(ledger.copy(), [bytes(inode.durable) for inode in held], names, unsynced, units)


@cache
def _states() -> tuple[tuple[State, ...], tuple[int, ...]]:
    system = _Recorder()
    life = Life(system, _SETTINGS)
    states: list[State] = []
    system.before = lambda: states.append(_freeze(system, life.ledger))
    workload(life)
    system.before()
    return tuple(states), tuple(accumulate(1 << len(state.units) for state in states))


def operations() -> int:
    """How many the workload does."""
    return len(_states()[0]) - 1


def total() -> int:
    """Operations x subsets of what is pending before each."""
    return _states()[1][-1]


def run(seed: int, trace: list[str] | None = None) -> dict[str, int]:
    states, ends = _states()
    number = bisect_right(ends, seed)
    state = states[number]
    mask = seed - (ends[number - 1] if number else 0)
    system = state.disk(mask)
    if trace is not None:
        trace.append(f"before operation {number + 1} of {operations()}:")
        for place, group in enumerate(state.units):
            for what, where, at, detail in group:
                size = f"{len(detail)} bytes" if isinstance(detail, bytes) else detail or ""
                trace.append(f"  {'kept' if mask >> place & 1 else 'lost'} {what} {where} {at} {size}")
        system.trace = trace
    try:
        state.ledger.check(system, _SETTINGS)
    except BaseException as error:
        error.add_note(f"before operation {number + 1} of {operations()}, subset {mask:b} survived")
        raise
    return {"units pending": len(state.units)}

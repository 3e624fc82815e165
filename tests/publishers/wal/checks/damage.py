"""A log on the real disk, and everything that can be done to it."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from publishers.options import LogOptions
from publishers.wal import RealFileSystem, Wal
from publishers.wal.disk.filesystem import Mode
from tests.harness.inside import catalog_of
from tests.publishers.wal.logs import commit, contents, options, sealed
from tests.simulation.filesystem import SimulatedFile, SimulatedFileSystem

SMALL = options(head_sync=3600.0)
KINDS = ("flip", "truncate", "zero", "swap", "duplicate", "delete", "slot")


def make_log(path: Path, *, crash: bool = False, segments: int = 3, settings: LogOptions = SMALL) -> list:
    """A log of several segments with small, large and empty transactions; answers what was acknowledged."""
    wal = opened_really(path, settings)
    random = Random(segments)
    while len(catalog_of(wal.reader).entries) < segments:
        bodies = [random.randbytes(random.randrange(1200)) for _ in range(random.randrange(1, 12))]
        commit(wal, *bodies, None)
    for size in (1, 3000, 9):
        commit(wal, random.randbytes(size))
    while wal.maintain():
        pass
    found = contents(wal)
    if crash:
        wal.abandon()
    else:
        wal.close()
    return found


def opened_really(path: Path, settings: LogOptions = SMALL) -> Wal:
    """Opens a log on the real disk for writing."""
    return Wal.open(path, settings, filesystem=RealFileSystem())


def append_unsynced(path: Path, *bodies: bytes) -> None:
    """What a process leaves that dies between the write and the sync."""
    wal = opened_really(path)
    for body in bodies:
        wal.append([sealed(body)])
    wal.abandon()


def copy_log(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def snapshot(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in sorted(path.iterdir()) if one.is_file()}


def change(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path: Path, offset: int, bit: int = 0) -> None:
    change(path, offset, bytes([path.read_bytes()[offset] ^ 1 << bit]))


def frames_of(path: Path) -> list[tuple[int, int]]:
    """Where the frames of a segment begin, and their sizes."""
    return frames_in(path.read_bytes())


def frames_in(data: bytes | bytearray) -> list[tuple[int, int]]:
    """The same of what a segment holds."""
    found, at = [], 64
    while at + 80 <= len(data) and (length := int.from_bytes(data[at : at + 4], "little")):
        found.append((at, 80 + ((length + 7) & -8)))
        at += found[-1][1]
    return found


def damage(path: Path, random: Random) -> str:
    """Does one thing to a log, wherever it hits; says what."""
    kind = random.choice(KINDS)
    logs = sorted(path.glob("wal-*.log"))
    files = [one for one in sorted(path.iterdir()) if one.is_file() and one.stat().st_size]
    one = random.choice(files if random.random() < 0.4 else logs)
    size = one.stat().st_size
    used = max((sum(frame) for frame in frames_of(one)), default=size) if one in logs else size
    place = random.randrange(min(used, size))
    match kind:
        case "flip":
            flip(one, place, random.randrange(8))
        case "truncate":
            with one.open("r+b") as file:
                file.truncate(place)
        case "zero":
            change(one, place, bytes(min(random.randrange(1, 9000), size - place)))
        case "swap":
            one = random.choice(logs)
            data = one.read_bytes()
            (first, a), (second, b) = sorted(random.sample(frames_of(one), 2))
            between = data[first + a : second]
            change(one, first, data[second : second + b] + between + data[first : first + a])
        case "duplicate":
            one, other = random.choice(logs), random.choice([*logs, path / f"wal-{len(logs) + 1:012d}.log"])
            if other != one:
                shutil.copyfile(one, other)
        case "delete":
            one.unlink()
        case _:
            one = path / "HEAD"
            change(one, random.choice((0, 4096)), bytes(88))
    return f"{kind} {one.name} at {place}"


class Moody(SimulatedFileSystem):
    """A simulated disk that refuses some names, or does something else first when a name is opened.

    Attributes:
        refused: By name: ``open``, ``pread`` or ``lock``, which the permissions do not allow.
        before: By name: what is called, once each, just before it is opened for reading, or listed.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.refused: dict[str, str] = {}
        self.before: dict[str, list[Callable[[], object]]] = {}

    def open(self, path: Path, mode: Mode, /) -> SimulatedFile:
        if mode == "read":
            self._begin(path)
        what = self.refused.get(path.name)
        if what == "open":
            _refuse()
        file = super().open(path, mode)
        if what is not None:
            setattr(file, what, _refuse)
        return file

    def listing(self, path: Path, /) -> list[str]:
        self._begin(path)
        return super().listing(path)

    def _begin(self, path: Path) -> None:
        waiting = self.before.get(path.name)
        if waiting:
            waiting.pop(0)()


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")

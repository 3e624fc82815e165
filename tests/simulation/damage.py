"""T3 and T4: one bit flipped, or one file cut short, in a log of three small segments; the owner and a follower look.

Either sees what it would have seen, or says that the log is corrupted; never anything else, and never less. What a power
cut leaves may be worse, but then nobody was promised what is gone (T1, T2); here nothing was pending.

Two such logs: one that was closed, and one whose owner died while it withheld its last versions.
"""

import json
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

from publishers.errors import WalCorrupted
from publishers.wal import Follower, Wal
from publishers.wal.disk.reserve import RESERVE_NAME
from publishers.wal.files.directory import LOCK_NAME
from publishers.wal.files.head import HEAD_NAME
from publishers.wal.files.tail_page import TAIL_NAME
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.ledger import OPTIONS, Life, contents, schemas_of
from tests.simulation.workload import LOG, PRODUCERS, Clock

__all__ = ["flip", "flips", "truncate", "truncations"]

Files = dict[str, bytes]

_NEVER_READ = (LOCK_NAME, TAIL_NAME, RESERVE_NAME)
"""Files whose content is believed by nobody after a start of the machine, or never."""


@dataclass(frozen=True)
class Material:
    """A log without damage, and what is seen of it."""

    files: Files
    owner: Any
    follower: Any

    @property
    def names(self) -> list[str]:
        return [name for name in sorted(self.files) if name not in _NEVER_READ]


def _live(*, clean: bool) -> Life:
    life = Life(SimulatedFileSystem(), OPTIONS)
    life.open()
    for size in (10, 700):
        life.commit(size, producer=size % 3)
        life.tell()
        life.pass_time()
    life.commit(900, 900, 200)
    life.maintain(steps=3)
    if clean:
        life.commit(50)
        life.close()
    else:
        # Twice, so that both slots of HEAD tell it.
        life.show(life.wal.durable)
        life.commit(333, producer=0)
        life.commit(44)
        life.maintain()
        life.wal.abandon()
    return life


def _restarted(files: Files) -> SimulatedFileSystem:
    """The files on a machine that was started anew: what TAIL tells is not believed, and has to be found without it."""
    return SimulatedFileSystem.of(LOG, {name: data for name, data in files.items() if name != TAIL_NAME})


def _seen_by_owner(files: Files) -> Any:
    system = _restarted(files)
    wal = Wal.open(LOG, OPTIONS, filesystem=system, clock=Clock(2_000_000_000))
    try:
        schemas = schemas_of(system, wal)
        told = [
            (version, dict(found.parts), found.position)
            for version in schemas.versions("Product")
            if (found := schemas.find("Product", version)) is not None
        ]
        visible, durable = wal.visible, wal.durable
        state = [wal.producer(producer) for producer in PRODUCERS]
        seen = contents(wal.reader)
        if wal.withholding:
            wal.show(None)
            wal.publish_tail(durable)
            seen = contents(wal.reader)
        return visible, durable, wal.epochs, state, seen, told
    finally:
        wal.abandon()


def _seen_by_follower(files: Files) -> Any:
    system = _restarted(files)
    follower = Follower.open(LOG, filesystem=system)
    try:
        return contents(follower.reader)
    finally:
        follower.close()


@cache
def materials() -> tuple[Material, ...]:
    made = []
    for clean in (True, False):
        files = _live(clean=clean).system.snapshot(LOG)
        assert sum(name.endswith(".log") for name in files) == 3
        made.append(Material(files, _seen_by_owner(files), _seen_by_follower(files)))
    return tuple(made)


Places = tuple[list[tuple[Material, str]], list[int]]
"""Files, and for each how many bytes it and those before have."""


@cache
def _places(*, twice: bool) -> Places:
    """Each file of both logs, HEAD, which is nearly empty, of the second one only unless ``twice``."""
    first, second = materials()
    places = [(first, name) for name in first.names if twice or name != HEAD_NAME]
    places += [(second, name) for name in second.names]
    return places, list(accumulate(len(material.files[name]) for material, name in places))


def _place(byte: int, found: Places) -> tuple[Material, str, int]:
    places, ends = found
    number = bisect_right(ends, byte)
    return *places[number], byte - (ends[number - 1] if number else 0)


def flips() -> int:
    """Bits of all files that are ever believed."""
    return 8 * _places(twice=True)[1][-1]


def truncations() -> int:
    """Bytes of these files, HEAD counted once."""
    return _places(twice=False)[1][-1]


def flip(seed: int, trace: list[str] | None = None) -> dict[str, int]:
    byte, bit = divmod(seed, 8)
    material, name, at = _place(byte, _places(twice=True))
    data = bytearray(material.files[name])
    data[at] ^= 1 << bit
    return _judge(material, name, bytes(data), f"bit {bit} of byte {at} of {name} flipped", trace)


def truncate(seed: int, trace: list[str] | None = None) -> dict[str, int]:
    material, name, at = _place(seed, _places(twice=False))
    return _judge(material, name, material.files[name][:at], f"{name} cut to {at} bytes", trace)


def _judge(material: Material, name: str, data: bytes, what: str, trace: list[str] | None) -> dict[str, int]:
    files = {**material.files, name: data}
    if trace is not None:
        trace.append(f"{what}; {json.dumps({known: len(content) for known, content in files.items()})}")
    reported = 0
    try:
        for seen, expected in ((_seen_by_owner, material.owner), (_seen_by_follower, material.follower)):
            try:
                found = seen(files)
            except WalCorrupted as error:
                reported += 1
                if trace is not None:
                    trace.append(f"{seen.__name__}: {error}")
                continue
            if name == HEAD_NAME and seen is _seen_by_follower:
                # Without an owner a follower knows no more than HEAD tells: here what it told before, never anything else.
                assert all(expected.get(version) == content for version, content in found.items()), (
                    f"{seen.__name__}: {found} instead of {expected}"
                )
                continue
            assert found == expected, f"{seen.__name__}: {found} instead of {expected}"
    except BaseException as error:
        error.add_note(what)
        raise
    return {"reported": reported > 0, "harmless": reported == 0}

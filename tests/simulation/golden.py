"""T16: logs of each format, checked in under ``tests/golden/``, that every later version opens and reads identically.

``python -m tests.simulation.golden`` writes those of the present format; nobody runs it for a format that was released.
Beside the logs lie the bytes of each structure on its own, and what the present code writes must be the same bytes.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

from publishers.wal import Follower, Wal
from publishers.wal.files.head import HEAD_NAME, HeadState
from publishers.wal.files.segment import SegmentHeader, SparseIndex, Trailer
from publishers.wal.files.tail_page import Tail
from publishers.wal.format.control import ControlTables, Epoch, ProducerState, decode_control, encode_epoch
from publishers.wal.format.frame import FrameHeader, seal
from publishers.wal.recover import recovery
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.ledger import OPTIONS, Life, contents, schemas_of
from tests.simulation.workload import LOG, PRODUCERS, Clock

__all__ = ["run", "total", "write"]

GOLDEN = Path(__file__).parent.parent / "golden"
PRESENT = "format-2"
LOG_ID = UUID("5f7c1c52-3c7f-4d0e-9a55-0123456789ab")
STRUCTURES = "structures.json"
EXPECTED = "expected.json"


def _plain(life: Life) -> None:
    life.open()
    for size in (0, 10, 300):
        life.commit(size, producer=0)
        life.tell()
        life.pass_time()
    life.commit(1, 2, 3, group=2, producer=1)
    life.reopen()
    life.commit(40)
    life.maintain(steps=4)
    life.close()


def _withheld(life: Life) -> None:
    life.open()
    life.commit(100)
    life.show(1)
    life.commit(200, producer=2)
    life.pass_time()
    life.commit(30, producer=2)
    life.maintain(steps=2)
    life.wal.abandon()


def _large(life: Life) -> None:
    life.options = replace(OPTIONS, compress=True, frame_bytes=8192, fill_step=512)
    life.open()
    life.commit(6000, 6000, 5000)
    life.commit(700, 700, 9, producer=1)
    life.maintain(steps=2)
    life.close()


MAKERS: dict[str, Callable[[Life], None]] = {"plain": _plain, "withheld": _withheld, "large": _large}


def _made(maker: Callable[[Life], None]) -> dict[str, bytes]:
    life = Life(SimulatedFileSystem())
    with mock.patch.object(recovery, "_draw_id", return_value=LOG_ID):
        maker(life)
    kept = life.system.snapshot(LOG).items()
    return {
        name: data for name, data in kept if name in ("HEAD", "SCHEMAS") or name.endswith((".log", ".idx"))
    }


def _text(seen: dict[int, Any]) -> list[Any]:
    return [
        {
            "version": version,
            "annotations": annotations.decode(),
            "producer": str(producer) if producer else None,
            "sequence": sequence,
            "changes": [
                [kind, (key or b"").decode(), None if body is None else body.decode()]
                for kind, key, body in changes
            ],
        }
        for version, (changes, annotations, producer, sequence) in seen.items()
    ]


def _seen(files: dict[str, bytes]) -> dict[str, Any]:
    """What a follower and then the owner find in a log, as JSON has it."""
    system = SimulatedFileSystem.of(LOG, files)
    follower = Follower.open(LOG, filesystem=system)
    shown = _text(contents(follower.reader))
    follower.close()
    wal = Wal.open(LOG, OPTIONS, filesystem=system, clock=Clock(2_000_000_000))
    visible, (*epochs, opened) = wal.visible, wal.epochs
    assert opened.random
    schemas = schemas_of(system, wal)
    told = [
        [version, {part: body.decode() for part, body in found.parts.items()}, list(found.position)]
        for version in schemas.versions("Product")
        if (found := schemas.find("Product", version))
    ]
    assert _text(contents(wal.reader)) == shown
    wal.show(None)
    wal.publish_tail(wal.visible)
    found = {
        "log_id": str(wal.log_id),
        "visible": visible,
        # Those of format 1 have no random bits, and those of this opening have just been drawn.
        "epochs": [[part for part in epoch if part] for epoch in (*epochs, opened[:2])],
        "producers": [list(state) if (state := wal.producer(producer)) else None for producer in PRODUCERS],
        "schemas": told,
        "versions": _text(contents(wal.reader)),
    }
    wal.abandon()
    return found


def _structures() -> dict[str, str]:
    """Each structure with fields that are all different, so that two that were exchanged are seen."""
    frame, _ = seal(3, 0x11, 0x22, 4, 5, 6, 3, 7, 8, bytes(range(16)), 9, 10, 11)
    index = SparseIndex()
    index.add(2, 1, 3, 64)
    index.add(4, 5, 6, 70_000)
    page = bytearray(4096)
    tail = Tail(memoryview(page), bytes(range(16, 32)))
    tail.claim()
    tail.write(1, 2, 3, 4, 5, 6)
    return {
        "frame": frame.hex(),
        "HEAD slot": HeadState(LOG_ID, 1, 2, 3, 4, 5, 6, 7, 8, 9).pack().hex(),
        "segment header": SegmentHeader(1, 2, LOG_ID, 3, 4).pack().hex(),
        "TAIL": bytes(page[:136]).hex(),
        "idx": index.pack(LOG_ID, 7, Trailer(8, 9, 10, 11)).hex(),
        "CHECKPOINT": _tables().encode().hex(),
        "EPOCH": encode_epoch(Epoch(10, 11, 12)).hex(),
    }


def _tables() -> ControlTables:
    tables = ControlTables()
    tables.committed(bytes(range(16)), ProducerState(1, 2, 3))
    tables.opened(4, 5)
    tables.opened(6, 7, 8)
    return tables


def _log(format_: str, name: str) -> None:
    files = {path.name: path.read_bytes() for path in (GOLDEN / format_ / name).iterdir()}
    expected = json.loads(files.pop(EXPECTED))
    found = json.loads(json.dumps(_seen(files)))
    assert found == expected, f"{format_}/{name} is read as {found}"


def _bytes(name: str) -> None:
    made = _made(MAKERS[name])
    for file, data in made.items():
        kept = (GOLDEN / PRESENT / name / file).read_bytes()
        same = _head(data) == _head(kept) if file == HEAD_NAME else data == kept
        assert same, f"{name}/{file} is written with other bytes than {PRESENT} has"


def _head(data: bytes) -> HeadState:
    """The slot that counts; how often HEAD has been written is no matter of the format."""
    slots = [slot for at in (0, 4096) if (slot := HeadState.unpack(data[at:])) is not None]
    return max(slots, key=lambda slot: slot.counter)._replace(counter=0)


def _structure(format_: str, name: str) -> None:
    kept = json.loads((GOLDEN / format_ / STRUCTURES).read_text())[name]
    present = format_ == PRESENT
    assert not present or _structures()[name] == kept, f"{name} has other bytes"
    data = bytes.fromhex(kept)
    if name == "frame":
        header = FrameHeader.unpack(data)
        assert (header.length, header[2:]) == (3, (0x22, 4, 5, 6, 3, 7, 8, bytes(range(16)), 9, 10, 11))
    elif name == "HEAD slot":
        assert HeadState.unpack(data) == HeadState(LOG_ID, 1, 2, 3, 4, 5, 6, 7, 8, 9 * present)
    elif name == "segment header":
        assert SegmentHeader.unpack(data) == SegmentHeader(1, 2, LOG_ID, 3, 4, 1 + present)
    elif name == "TAIL":
        found = Tail(memoryview(bytearray(data)), bytes(range(16, 32))).read()
        assert found == (1, 2, 3, 4, 5, 6 * present)
    elif name == "idx":
        index, trailer = SparseIndex.unpack(data, LOG_ID, 7)
        assert (len(index), trailer) == (2, Trailer(8, 9, 10, 11))
        assert (index.before(4, 5), index.before(4, 4)) == (70_000, 64)
    else:
        tables = ControlTables()
        assert decode_control(data, tables).name == name
        whole = _tables()
        expected = (whole.producers, whole.epochs) if name == "CHECKPOINT" else ({}, (Epoch(10, 11, 12),))
        assert (tables.producers, tables.epochs) == expected


def _cases() -> list[tuple[Callable[..., None], tuple[str, ...]]]:
    formats = sorted(path.name for path in GOLDEN.glob("format-*"))
    logs = [
        (format_, path.name)
        for format_ in formats
        for path in sorted((GOLDEN / format_).iterdir())
        if path.is_dir()
    ]
    return [
        *((_log, log) for log in logs),
        # What zlib makes of the large one is its own affair, and differs between its versions.
        *((_bytes, (name,)) for name in MAKERS if name != "large"),
        *(
            (_structure, (format_, name))
            for format_ in formats
            for name in json.loads((GOLDEN / format_ / STRUCTURES).read_text())
        ),
    ]


def total() -> int:
    """Logs, files of the present format, structures."""
    return len(_cases())


def run(seed: int, trace: list[str] | None = None) -> dict[str, int]:
    case, arguments = _cases()[seed]
    if trace is not None:
        trace.append(f"{case.__name__[1:]} {'/'.join(arguments)}")
    case(*arguments)
    return {f"{case.__name__[1:]} cases": 1}


def write() -> None:
    """Writes the present format."""
    for name, maker in MAKERS.items():
        directory = GOLDEN / PRESENT / name
        directory.mkdir(parents=True, exist_ok=True)
        files = _made(maker)
        for file, data in files.items():
            (directory / file).write_bytes(data)
        (directory / EXPECTED).write_text(json.dumps(_seen(files), indent=1) + "\n")
    (GOLDEN / PRESENT / STRUCTURES).write_text(json.dumps(_structures(), indent=1) + "\n")


if __name__ == "__main__":
    write()

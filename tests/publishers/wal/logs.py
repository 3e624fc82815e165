"""Small logs for the tests of this directory."""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from publishers.options import LogOptions
from publishers.wal import Column, Columns, Follower, Transaction, Wal, seal_transaction
from publishers.wal.disk.filesystem import FileSystem
from tests.harness.inside import catalog_of
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG, Clock

OPTIONS = LogOptions(segment_bytes=65536, fill_step=4096, frame_bytes=4096, head_sync=0.0)


def options(**overrides: object) -> LogOptions:
    known = {name: getattr(OPTIONS, name) for name in OPTIONS.__slots__}
    return LogOptions(**{**known, **overrides})


def opened(
    system: FileSystem, settings: LogOptions = OPTIONS, path: Path = LOG, clock: Clock | None = None
) -> Wal:
    return Wal.open(path, settings, filesystem=system, clock=clock or Clock())


def batch(bodies: Sequence[bytes | None]) -> Columns:
    keys = Column.of([b"k%d" % number for number in range(len(bodies))])
    return Columns(memoryview(b"\x11" * len(bodies)), ("Product",), None, keys, Column.of(bodies))


def sealed(
    *bodies: bytes | None,
    annotations: bytes = b"{}",
    settings: LogOptions = OPTIONS,
    producer: UUID | None = None,
    sequence: int = 0,
    spool: SimulatedFileSystem | None = None,
) -> Transaction:
    return seal_transaction(
        [batch(bodies)] if bodies else [],
        annotations,
        options=settings,
        producer=producer,
        sequence=sequence,
        filesystem=spool,
        directory=LOG if spool else None,
    )


def commit(wal: Wal, *bodies: bytes | None) -> int:
    """One durable transaction; its version."""
    (done,) = wal.append([sealed(*bodies)])
    wal.sync()
    wal.publish_tail(wal.visible)
    return done.version


def contents(log: Wal | Follower, version: int | None = None) -> list[tuple[int, list[bytes | None]]]:
    """Every version with its bodies, as the reader gives them."""
    reader = log.reader
    location = reader.locate(version or reader.oldest)
    found: list[tuple[int, list[bytes | None]]] = []
    while (frame := reader.read(location)) is not None:
        header, columns = frame.header, frame.columns
        if header.flags & 1:
            found.append((header.version, []))
        assert header.version == found[-1][0]
        assert header.first_index == len(found[-1][1]) + 1
        found[-1][1].extend(columns.body if columns.body is not None else [None] * header.count)
        location = frame.next
    return found


def fill_segments(wal: Wal, segments: int) -> None:
    """Commits until there are that many segments."""
    number = 0
    while len(catalog_of(wal.reader).entries) < segments:
        number += 1
        commit(wal, b"%06d" % number * 1000)

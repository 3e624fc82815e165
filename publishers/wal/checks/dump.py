"""Dumps the frames of a log in order, for inspection or to salvage what damage has left."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from publishers.errors import FormatTooNew, LogUnreadable
from publishers.wal.checks.pieces import Bad, Good, pieces
from publishers.wal.checks.report import Report
from publishers.wal.disk.filesystem import FileSystem, RealFileSystem, open_file
from publishers.wal.files.segment import DATA_START, SegmentHeader, segment_number
from publishers.wal.format.columns import Columns
from publishers.wal.format.frame import CONTROL, Chain, FrameHeader
from publishers.wal.read.catalog import Location
from publishers.wal.read.reader import unpack_payload

__all__ = ["DumpGap", "Dumped", "dump"]

_ZEROS: Final = 1 << 20


class Dumped(NamedTuple):
    """An intact frame.

    Attributes:
        name: Name of the file.
        offset: Its offset in the file.
        header: Its header.
        columns: Its changes; None for a control frame, or if the payload cannot be decoded.
        annotations: Annotations of the transaction.
        salvaged: Whether it lies behind damage, or was truncated.
    """

    name: str
    offset: int
    header: FrameHeader
    columns: Columns | None
    annotations: bytes
    salvaged: bool


class DumpGap(NamedTuple):
    """A place without a frame, although there should be one."""

    name: str
    offset: int
    kind: str
    why: str


def dump(
    report: Report, *, since: int = 0, salvage: bool = False, filesystem: FileSystem | None = None
) -> Iterator[Dumped | DumpGap]:
    """Yields the frames of a log that was examined.

    Args:
        report: The result of `verify`; its unbroken run is dumped.
        since: The first version to dump.
        salvage: Whether to dump also frames behind damage, and frames in files that recovery and repairs have kept.
        filesystem: The real one if None.

    Raises:
        OSError: If a file cannot be read.
    """
    filesystem = filesystem or RealFileSystem()
    names = filesystem.listing(report.path)
    end = report.end or Location(0, 0)
    for name in names:
        number = segment_number(name)
        if number is None or (not salvage and not report.first <= number <= end.segment):
            continue
        for one in _file(filesystem, report.path, name, DATA_START):
            beyond = (number, one.offset) >= end or number < report.first
            if beyond and (not salvage or report.live):
                break
            if isinstance(one, DumpGap):
                yield one
            elif one.header.version >= since:
                yield one._replace(salvaged=beyond)
    if not salvage:
        return
    for name in names:
        if name.startswith("wal-") and name.endswith((".torn", ".broken")):
            for one in _file(filesystem, report.path, name, 0):
                if isinstance(one, Dumped) and one.header.version >= since:
                    yield one._replace(salvaged=True)


def _file(filesystem: FileSystem, directory: Path, name: str, start: int) -> Iterator[Dumped | DumpGap]:
    try:
        file = open_file(filesystem, directory / name, "read")
    except LogUnreadable as error:
        yield DumpGap(name, 0, "unreadable", f"it cannot be read ({error.why})")
        return
    with contextlib.closing(file):
        chain = Chain(0, 0)
        try:
            header = SegmentHeader.unpack(file.pread(DATA_START, 0))
            chain = Chain(header.previous, header.first_version - 1)
            start = DATA_START
        except (ValueError, FormatTooNew):
            pass  # truncated data have no header; a wrong header of a segment is in the report
        is_segment = segment_number(name) is not None
        # Recovery keeps truncated data without trailing zeros, which may belong to the last frame.
        end = file.size() if is_segment else file.size() + _ZEROS
        for piece in pieces(file, start, end, chain):
            if isinstance(piece, Bad):
                if is_segment:
                    yield DumpGap(name, piece.offset, piece.kind, piece.why)
                continue
            yield _dumped(name, piece)


def _dumped(name: str, piece: Good) -> Dumped:
    offset, header, payload = piece
    columns, annotations = None, b""
    if not header.flags & CONTROL:
        try:
            # A copy, because the payload is invalid after the next step.
            columns, annotations = unpack_payload(header, memoryview(bytes(payload)))
        except ValueError:
            columns = None
    return Dumped(name, offset, header, columns, annotations, salvaged=False)

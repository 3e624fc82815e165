"""Judging what lies behind the last good frame: torn by a crash, or damage to something that was acknowledged."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from publishers.errors import WalCorrupted
from publishers.wal.append.active_segment import FIRST_FILL, write_zeros
from publishers.wal.disk.filesystem import File, FileSystem, means_full, sync_file, write_all
from publishers.wal.files.segment import segment_name
from publishers.wal.format.frame import CONTROL, HEADER_BYTES, FrameHeader

__all__ = ["COPY_BYTES", "Rest", "judge", "reading"]

_T = TypeVar("_T")
_TORN_BYTES: Final = 16 << 20
COPY_BYTES: Final = 1 << 20
"""How much recovery reads at once."""


class Rest(NamedTuple):
    """What was behind the last good frame.

    Attributes:
        filled: Up to where the file holds zeros now.
        torn: Bytes of unsynced writes that were cut off.
    """

    filled: int
    torn: int


def reading(number: int, offset: int, read: Callable[[], _T]) -> _T:
    """Turns an error of a read into what it means: data that were acknowledged are not there any more."""
    try:
        return read()
    except OSError as error:
        raise WalCorrupted(number, offset, f"it cannot be read ({error})") from error


def judge(
    filesystem: FileSystem,
    directory: Path,
    file: File,
    number: int,
    version: int,
    end: int,
    size: int,
    bad: tuple[int, str],
) -> Rest:
    """Decides about what lies behind ``end``, and cuts off what is torn; that is kept in a ``.torn`` file.

    Args:
        filesystem: Where.
        directory: Of the log.
        file: The last segment, open for writing.
        number: Of that segment.
        version: The last good one.
        end: Where the last good frame ends.
        size: Of the file.
        bad: Where the first bad frame lies, and why it is one.

    Raises:
        WalCorrupted: If a frame behind tells that what should be before it was durable.
        OSError: If something cannot be written.
    """
    torn = 0
    for start in range(end, size, COPY_BYTES):
        data = reading(number, start, partial(file.pread, min(COPY_BYTES, size - start), start))
        if data.count(0) != len(data):
            torn = start - end + len(data.rstrip(b"\0"))
    if not torn:
        return Rest(size, 0)
    rest = reading(number, end, partial(file.pread, torn, end))
    vouched = _vouching(rest, version)
    if vouched is not None:
        offset, why = bad
        raise WalCorrupted(
            number, offset, f"{why}, but a frame at {end + vouched} was written when it was durable"
        )
    _keep_torn(filesystem, directory, number, rest[:_TORN_BYTES])
    file.truncate(end)
    sync_file(file)
    filled = min(size, end + FIRST_FILL)
    try:
        write_zeros(file, end, filled)
    except OSError as error:
        if not means_full(error):
            raise
        file.truncate(end)
        filled = end
    return Rest(filled, torn)


def _keep_torn(filesystem: FileSystem, directory: Path, number: int, data: bytes) -> None:
    """Keeps what is cut off for whoever wants to look at it; not at the price of the opening."""
    with contextlib.suppress(OSError):
        file = filesystem.open(directory / (segment_name(number) + ".torn"), "create")
        try:
            file.truncate(0)
            write_all(file, data, 0)
        finally:
            file.close()


def _vouching(data: bytes, version: int) -> int | None:
    """Where a whole frame lies that was written when versions above ``version`` were durable already."""
    view = memoryview(data)
    zeros = bytes(512)
    at = 0
    while at + HEADER_BYTES <= len(data):
        if data[at : at + 512] == zeros:
            at += 512
            continue
        header = FrameHeader.unpack(view, at)
        plausible = (
            version < header.durable <= header.version
            and 0 < header.length <= len(data) - at - HEADER_BYTES
            and header.flags < 2 * CONTROL
        )
        if plausible and header.verify(view[at + HEADER_BYTES : at + HEADER_BYTES + header.length]):
            return at
        at += 8
    return None

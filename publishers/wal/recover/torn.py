"""Judging what lies behind the last good frame: torn by a crash, or damage to something that was acknowledged."""

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

from publishers.errors import WalCorrupted
from publishers.wal.append.active_segment import FIRST_FILL, write_zeros
from publishers.wal.disk.filesystem import File, FileSystem, means_full, read_blocks, sync_file, write_all
from publishers.wal.files.segment import segment_name
from publishers.wal.recover.inspector import Restored, find_vouching, reading

__all__ = ["Rest", "judge"]

_TORN_BYTES: Final = 16 << 20


class Rest(NamedTuple):
    """What was behind the last good frame.

    Attributes:
        filled: Up to where the file holds zeros now.
        torn: Bytes of unsynced writes that were cut off.
    """

    filled: int
    torn: int


def judge(
    filesystem: FileSystem, directory: Path, file: File, number: int, left: Restored, size: int
) -> Rest:
    """Decides about what lies behind the last good frame, and cuts off what is torn; that is kept in a ``.torn`` file.

    Args:
        filesystem: Where.
        directory: Of the log.
        file: The last segment, open for writing.
        number: Of that segment.
        left: What is good in it.
        size: Of the file.

    Raises:
        WalCorrupted: If a frame behind tells that what should be before it was durable.
        OSError: If something cannot be written.
    """
    end = left.end
    with reading(number, end):
        torn = _count_used(file, end, size)
        if not torn:
            return Rest(size, 0)
        vouching = find_vouching(file, end, size, left.chain.version)
        rest = file.pread(min(torn, _TORN_BYTES), end)
    if vouching is not None:
        why = f"{left.why or 'zeros'}, but a frame at {vouching} was written when it was durable"
        raise WalCorrupted(number, left.bad, why)
    _keep_torn(filesystem, directory, number, rest)
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


def _count_used(file: File, start: int, end: int) -> int:
    """Bytes from one place to the last that is not zero before another."""
    used = 0
    for at, data in read_blocks(file, start, end):
        if data.count(0) != len(data):
            used = at - start + len(data.rstrip(b"\0"))
    return used


def _keep_torn(filesystem: FileSystem, directory: Path, number: int, data: bytes) -> None:
    """Keeps what is cut off for whoever wants to look at it; not at the price of the opening."""
    with (
        contextlib.suppress(OSError),
        contextlib.closing(filesystem.open(directory / (segment_name(number) + ".torn"), "create")) as file,
    ):
        file.truncate(0)
        write_all(file, data, 0)

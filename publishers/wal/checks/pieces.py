"""Divides a range of a file into good frames and damaged places.

Behind damage the search continues in steps of 8 bytes, because every frame begins at a multiple of 8; see `intact_frames`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from publishers.wal.disk.filesystem import File
from publishers.wal.format.frame import CONTROL, FIRST, Chain, FrameHeader, Scan
from publishers.wal.recover.inspector import first_nonzero, header_at, intact_frames

__all__ = ["Bad", "Good", "pieces"]


class Good(NamedTuple):
    """A good frame.

    Attributes:
        offset: Its offset.
        header: Its header.
        payload: Its payload; valid until the next step.
    """

    offset: int
    header: FrameHeader
    payload: memoryview


class Bad(NamedTuple):
    """A place where the next frame should begin, but does not.

    Attributes:
        offset: The offset.
        kind: ``crc``, ``chain``, ``zeroed``, ``truncated`` or ``length``.
        why: The reason in words.
        until: Offset of the next intact frame, which may be the same; None if there is none.
    """

    offset: int
    kind: str
    why: str
    until: int | None


def pieces(file: File, start: int, end: int, chain: Chain) -> Iterator[Good | Bad]:
    """Yields the pieces of the bytes from ``start`` up to ``end``; ends silently if only zeros are left.

    After a `Bad` piece, ``chain`` is set to what the next good frame claims to continue.

    Raises:
        OSError: If the file cannot be read.
    """
    at = start
    while True:
        scan = Scan(file, at, end, chain)
        for offset, header, payload in scan:
            yield Good(offset, header, payload)
        stuck = scan.offset == at != start
        at = scan.offset
        zeros = scan.why is None
        if zeros and first_nonzero(file, at, end) is None:
            return
        found, following = next(intact_frames(file, at + 8 if stuck else at, end), (None, None))
        if not stuck:
            kind, why = _kind(file, at, end, zeros, scan.why, found)
            yield Bad(at, kind, why, found)
        if found is None or following is None:
            return
        _continue(chain, following)
        at = found


def _kind(file: File, at: int, end: int, zeros: bool, why: str | None, found: int | None) -> tuple[str, str]:
    if zeros:
        return "zeroed", "zeros where a frame must be"
    if found == at:
        return "chain", why or ""
    header = header_at(file, at)
    if header.length and header.extent > end - at:
        return "truncated" if header.flags < 2 * CONTROL else "length", why or ""
    return ("crc", "the crc of the frame is wrong") if header.length else ("length", why or "")


def _continue(chain: Chain, header: FrameHeader) -> None:
    control = header.flags & CONTROL
    chain.crc = header.previous
    chain.version = header.version if control and not header.skips else (header.skips or header.version) - 1
    chain.committed_at = header.committed_at - 1
    chain.skipped = 0
    chain.next_index = 0 if control or header.flags & FIRST else header.first_index

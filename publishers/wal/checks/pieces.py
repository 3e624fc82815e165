"""A stretch of a file taken apart: frames that are good, and places where something else is.

Beyond a damage the search goes on in steps of 8 bytes, where every frame begins; see `intact_frames`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from publishers.wal.disk.filesystem import File
from publishers.wal.format.frame import CONTROL, FIRST, Chain, FrameHeader, Scan
from publishers.wal.recover.inspector import first_nonzero, header_at, intact_frames

__all__ = ["Bad", "Good", "pieces"]


class Good(NamedTuple):
    """A frame.

    Attributes:
        offset: Where it begins.
        header: Its header.
        payload: Valid until the next step.
    """

    offset: int
    header: FrameHeader
    payload: memoryview


class Bad(NamedTuple):
    """A place where the next frame should begin, and does not.

    Attributes:
        offset: Where.
        kind: ``crc``, ``chain``, ``zeroed``, ``truncated`` or ``length``.
        why: In words.
        until: Where the next intact frame begins, which may be right there; None if there is none.
    """

    offset: int
    kind: str
    why: str
    until: int | None


def pieces(file: File, start: int, end: int, chain: Chain) -> Iterator[Good | Bad]:
    """Takes the bytes from ``start`` up to ``end`` apart; ends silently where only zeros are left.

    After a `Bad` piece ``chain`` is set to what the next good frame claims to continue.

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

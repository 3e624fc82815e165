"""A stretch of a file taken apart: frames that are good, and places where something else is.

Beyond a damage the search goes on in steps of 8 bytes, where every frame begins. A frame proves itself by its crc, so what
is found there was written by a log, though it may be an old one whose place was used again.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from publishers.wal.disk.filesystem import File
from publishers.wal.format.frame import CONTROL, FIRST, HEADER_BYTES, Chain, FrameHeader, Scan

__all__ = ["Bad", "Good", "first_nonzero", "next_frame", "pieces"]

_WINDOW: Final = 1 << 20
_ZEROS: Final = bytes(512)
_LENGTH: Final = Struct("<I")


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
        found = next_frame(file, at + 8 if stuck else at, end)
        if not stuck:
            kind, why = _kind(file, at, end, zeros, scan.why, found)
            yield Bad(at, kind, why, found)
        if found is None:
            return
        _continue(chain, _header(file, found))
        at = found


def _kind(file: File, at: int, end: int, zeros: bool, why: str | None, found: int | None) -> tuple[str, str]:
    if zeros:
        return "zeroed", "zeros where a frame must be"
    if found == at:
        return "chain", why or ""
    header = _header(file, at)
    if header.length and header.extent > end - at:
        return "truncated" if header.flags < 2 * CONTROL else "length", why or ""
    return ("crc", "the crc of the frame is wrong") if header.length else ("length", why or "")


def _header(file: File, offset: int) -> FrameHeader:
    return FrameHeader.unpack(file.pread(HEADER_BYTES, offset).ljust(HEADER_BYTES, b"\0"))


def _continue(chain: Chain, header: FrameHeader) -> None:
    control = header.flags & CONTROL
    chain.crc = header.previous
    chain.version = header.version if control and not header.skips else (header.skips or header.version) - 1
    chain.committed_at = header.committed_at - 1
    chain.skipped = 0
    chain.next_index = 0 if control or header.flags & FIRST else header.first_index


def _intact(file: File, offset: int) -> bool:
    """Whether a plausible frame proves itself."""
    header = _header(file, offset)
    payload = file.pread(header.length, offset + HEADER_BYTES)
    return header.flags < 2 * CONTROL and len(payload) == header.length and header.verify(payload)


def next_frame(file: File, start: int, end: int) -> int | None:
    """Where the first intact frame at or behind ``start`` begins, None if there is none before ``end``.

    Raises:
        OSError: If the file cannot be read.
    """
    at = start
    while end - at > HEADER_BYTES:
        data = file.pread(min(_WINDOW + HEADER_BYTES, end - at), at)
        last = len(data) - HEADER_BYTES
        if last < 0:
            return None
        place = 0
        while place <= last:
            if data[place : place + 512] == _ZEROS:
                place += 512
                continue
            (length,) = _LENGTH.unpack_from(data, place)
            plausible = 0 < length <= end - at - place - HEADER_BYTES and data[place + 28] < 2 * CONTROL
            if plausible and _intact(file, at + place):
                return at + place
            place += 8
        at += place
    return None


def first_nonzero(file: File, start: int, end: int) -> int | None:
    """Where the first byte that is not zero lies, None if there is none before ``end``.

    Raises:
        OSError: If the file cannot be read.
    """
    for at in range(start, end, _WINDOW):
        data = file.pread(min(_WINDOW, end - at), at)
        if data.count(0) != len(data):
            return at + len(data) - len(data.lstrip(b"\0"))
    return None

"""Kora's sequence numbers: one whole number for each position of a log.

They rise with the positions, and each is that of one position alone: ``version * 2**24 + index``. So the number after that of a
change is a place to go on from, as Kora documents it, and numbers are not dense: a gap between two of them is no loss.
"""

from typing import Final

from publishers.model.position import Position
from transports.resp.replies import RespError

__all__ = ["INDEX_BITS", "NEWEST", "position_of_sequence", "sequence_of"]

INDEX_BITS: Final = 24
"""Of an index: a transaction has up to 16,777,216 changes that have numbers, and a log 549,755,813,888 versions."""

NEWEST: Final = b"$"
"""In place of a number: what is committed from now on."""

_MOST: Final = 2**63 - 1  # a signed whole number of 64 bits, which is what RESP carries
_LAST: Final = (1 << INDEX_BITS) - 1


def sequence_of(position: Position) -> int:
    """The number of a position.

    Raises:
        RespError: If it has none, as its transaction is too large.
    """
    version, index = position
    found = (version << INDEX_BITS) | index
    if index > _LAST or found > _MOST:
        following = (version + 1) << INDEX_BITS
        raise RespError(
            "NOSEQUENCE",
            f"the change at {position} has no sequence number, as its transaction has more than {_LAST + 1} changes; it can be read over "
            f"the other transports, and {following} goes on behind it",
        )
    return found


def position_of_sequence(name: str, text: bytes) -> Position:
    """The position of a number; version 0 stands for the oldest that is kept.

    Raises:
        RespError: If it is no number of 64 bits.
    """
    if not text.isdigit() or len(text) > 19 or int(text) > _MOST:
        raise RespError("ERR", f"{name} is {text[:40]!a}, but must be a sequence number, from 0 to {_MOST}")
    version, index = divmod(int(text), 1 << INDEX_BITS)
    return Position(version, index)

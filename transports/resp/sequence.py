"""Kora's sequence numbers: one whole number for each position of a log.

They increase with the positions, and each belongs to exactly one position: ``version * 2**24 + index``. The number after
that of a change is thus a position to resume at, as Kora documents it. Numbers are not dense: a gap between two of them is
no loss.
"""

from typing import Final

from publishers.model.position import Position
from transports.resp.replies import RespError, shown

__all__ = ["INDEX_BITS", "NEWEST", "position_of_sequence", "sequence_of"]

INDEX_BITS: Final = 24
"""The bits of an index: a transaction has up to 16,777,216 changes with numbers, and a log 549,755,813,888 versions."""

NEWEST: Final = b"$"
"""Stands for the position of the next commit."""

_MOST: Final = 2**63 - 1  # RESP integers are signed, with 64 bits
_LAST: Final = (1 << INDEX_BITS) - 1


def sequence_of(position: Position) -> int:
    """Returns the number of a position.

    Raises:
        RespError: If it has none, because its transaction is too large.
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
    """Returns the position of a number; version 0 stands for the oldest kept position.

    Raises:
        RespError: If the text is not a number of up to 63 bits.
    """
    if not text.isdigit() or len(text) > 19 or int(text) > _MOST:
        raise RespError("ERR", f"{name} is {shown(text)}, but must be a sequence number, from 0 to {_MOST}")
    version, index = divmod(int(text), 1 << INDEX_BITS)
    return Position(version, index)

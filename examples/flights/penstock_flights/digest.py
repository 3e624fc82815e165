r"""A digest of a stream of changes that Spark and a subscriber in plain Python compute in the same way.

The digest is the sum, over all changes, of ``<seq>`` times the CRC-32 of ``<key>\n<body>``, each product modulo ``MODULUS``.
``<seq>`` is the number of the change in the order of time, from 1. Spark reads it from the source's column ``seq``, which is not in the body; a
subscriber counts the changes that it receives. So the sums agree only if the subscriber received every change once, unaltered
and in order. Yet a sum can be computed in any order and in parallel, and continued after a restart from two numbers. A second
sum, of the CRC-32 alone, leaves the number out, so it also serves subscribers that receive only some changes.
"""

from collections.abc import Iterable
from typing import Final
from zlib import crc32

__all__ = ["MODULUS", "StreamDigest"]

MODULUS: Final = 2**31 - 1
"""A product is reduced by it, a prime, so that Spark's sums of longs do not overflow."""


class StreamDigest:
    """Count and sums of the changes received so far.

    Attributes:
        count: The number of changes.
        ordered: The sum over numbers times CRC-32, each modulo `MODULUS`.
        content: The sum over CRC-32.
    """

    __slots__ = ("content", "count", "ordered")

    def __init__(self, count: int = 0, ordered: int = 0, content: int = 0) -> None:
        self.count = count
        self.ordered = ordered
        self.content = content

    def add(self, key: bytes, body: bytes) -> None:
        """Adds the next change."""
        self.add_many([(key, body)])

    def add_many(self, changes: Iterable[tuple[bytes, bytes]]) -> None:
        """Adds the next changes, as pairs of key and body."""
        count, ordered, content = self.count, self.ordered, self.content
        for key, body in changes:
            count += 1
            crc = crc32(b"%b\n%b" % (key, body))
            content += crc
            ordered += count * crc % MODULUS
        self.count, self.ordered, self.content = count, ordered, content

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamDigest):
            return NotImplemented
        return (self.count, self.ordered, self.content) == (other.count, other.ordered, other.content)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        return f"{self.count}:{self.ordered:x}:{self.content:x}"

    def __repr__(self) -> str:
        return f"StreamDigest(count={self.count}, ordered={self.ordered}, content={self.content})"

r"""A digest of a stream of changes that Spark and a subscriber in plain Python compute alike.

Of each change the CRC-32 of ``<seq>\n<key>\n<body>`` is taken and all of them are summed up, ``<seq>`` being the change's
place in the order of time, from 1, in decimal digits. Spark takes it from the source's column ``seq``, which is not in the
body; a subscriber counts what it receives. So the sums agree only if every change came, once, unaltered and in order,
although a sum can be computed in any order and in parallel, and continued after a restart from two numbers. A second sum,
of the CRC-32 of ``<key>\n<body>``, does without the place: it holds for subscribers of a part, too.
"""

from collections.abc import Iterable
from zlib import crc32

__all__ = ["StreamDigest"]


class StreamDigest:
    """Count and sums of what has been received so far.

    Attributes:
        count: Changes so far.
        ordered: Sum over places, keys and bodies.
        content: Sum over keys and bodies.
    """

    __slots__ = ("content", "count", "ordered")

    def __init__(self, count: int = 0, ordered: int = 0, content: int = 0) -> None:
        self.count = count
        self.ordered = ordered
        self.content = content

    def add(self, key: bytes, body: bytes) -> None:
        """Takes in the next change."""
        self.count += 1
        row = b"%b\n%b" % (key, body)
        self.content += crc32(row)
        self.ordered += crc32(row, crc32(b"%d\n" % self.count))

    def add_many(self, changes: Iterable[tuple[bytes, bytes]]) -> None:
        """Takes in the next changes, as pairs of key and body."""
        for key, body in changes:
            self.add(key, body)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamDigest):
            return NotImplemented
        return (self.count, self.ordered, self.content) == (other.count, other.ordered, other.content)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        return f"{self.count}:{self.ordered:x}:{self.content:x}"

    def __repr__(self) -> str:
        return f"StreamDigest(count={self.count}, ordered={self.ordered}, content={self.content})"

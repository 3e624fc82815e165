"""A transaction on its way in parts, on one connection of a client: as much at a time as the server keeps up with."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from publishers.errors import TransactionTooLarge
from transports.codec.messages import encode

__all__ = ["Upload"]

_PART: Final = 256 * 1024  # bytes of a message, so that other messages are not kept waiting behind it


class Upload:
    """The parts of one transaction.

    Args:
        name: What it is called on this connection.
        changes: Its changes.
        largest: Most bytes of a message.
        room: Most bytes of parts that are not stored yet.

    Attributes:
        name: What it is called.
    """

    def __init__(self, name: str, changes: Sequence[Any], largest: int, room: int) -> None:
        self.name = name
        self._head = b'{"type":"part","id":%s,"payload":{"changes":[' % _text(name)
        self._changes = iter(changes)
        self._most = min(_PART, largest)
        self._largest = largest
        self._room = room
        self._sent: deque[int] = deque()  # bytes of parts that are not stored
        self._under_way = self._stored = 0
        self._next = self._read()  # a change that has no part yet

    def stored(self, parts: int) -> None:
        """The server has stored so many parts."""
        while self._stored < parts and self._sent:
            self._under_way -= self._sent.popleft()
            self._stored += 1

    def flow(self) -> Iterator[bytes]:
        """The messages that may be sent now.

        Raises:
            TransactionTooLarge: If a change is larger than a message may be.
        """
        while not self.complete and (not self._sent or self._under_way + self._most <= self._room):
            part = self._part()
            self._sent.append(len(part))
            self._under_way += len(part)
            yield part

    def abort(self) -> bytes:
        """The message that ends it."""
        return encode({"type": "abort", "id": self.name})

    @property
    def complete(self) -> bool:
        """Whether all parts were sent."""
        return self._next is None

    def _read(self) -> bytes | None:
        """The next change; None behind the last."""
        for change in self._changes:
            return encode(change)
        return None

    def _part(self) -> bytes:
        """The next message."""
        taken: list[bytes] = []
        size = len(self._head) + len(_TAIL)
        while self._next is not None and (not taken or size + len(self._next) + 1 <= self._most):
            taken.append(self._next)
            size += len(self._next) + 1
            self._next = self._read()
        part = self._head + b",".join(taken) + _TAIL
        if len(part) > self._largest:
            why = f"a change has {len(part)} bytes as a message, but the server takes {self._largest}; make it smaller"
            raise TransactionTooLarge("messageBytes", len(part), self._largest, why)
        return part


_TAIL: Final = b"]}}"


def _text(text: str) -> bytes:

    return encode({"": text})[4:-1]

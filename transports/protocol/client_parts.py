"""A transaction that a client sends in parts on one connection, no faster than the server stores them."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from publishers.errors import TransactionTooLarge
from transports.codec.messages import encode

__all__ = ["Upload"]

_PART: Final = 256 * 1024  # bytes of a message, so that other messages do not wait long behind it


class Upload:
    """The parts of one transaction.

    Args:
        name: Its id on this connection.
        changes: Its changes.
        largest: The most bytes of a message.
        room: The most bytes of parts that may be unstored.

    Attributes:
        name: Its id.
    """

    def __init__(self, name: str, changes: Sequence[Any], largest: int, room: int) -> None:
        self.name = name
        self._head = b'{"type":"part","id":%s,"payload":{"changes":[' % _text(name)
        self._changes = iter(changes)
        self._most = min(_PART, largest)
        self._largest = largest
        self._room = room
        self._sent: deque[int] = deque()  # bytes of each part that is not stored
        self._under_way = self._stored = 0
        self._next = self._read()  # the next change that is in no part yet

    def stored(self, parts: int) -> None:
        """Records that the server has stored ``parts`` parts."""
        while self._stored < parts and self._sent:
            self._under_way -= self._sent.popleft()
            self._stored += 1

    def flow(self) -> Iterator[bytes]:
        """Yields the messages that may be sent now.

        Raises:
            TransactionTooLarge: If a change does not fit in a message.
        """
        while not self.complete and (not self._sent or self._under_way + self._most <= self._room):
            part = self._part()
            self._sent.append(len(part))
            self._under_way += len(part)
            yield part

    def abort(self) -> bytes:
        """Returns the message that aborts the transaction."""
        return encode({"type": "abort", "id": self.name})

    @property
    def complete(self) -> bool:
        """Whether all parts were sent."""
        return self._next is None

    def _read(self) -> bytes | None:
        """Returns the next change as JSON; None behind the last."""
        for change in self._changes:
            return encode(change)
        return None

    def _part(self) -> bytes:
        """Returns the next message."""
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

"""Bytes that the connections of a port make the server hold, and which of them have to go if it is too much."""

import heapq
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["HeldBytes"]

_C = TypeVar("_C")
_ROOM: Final = 4  # a quarter of the bound is free afterwards, so that connections are looked at seldom


class HeldBytes(Generic[_C]):
    """The bytes that each connection holds, of one kind; on the event loop.

    What was noted for a connection may shrink before it is noted again, so all are measured before one has to go. It is the
    one that holds most, of the address whose connections hold most together: a client that takes little is never it while
    another takes much.

    Attributes:
        total: The bytes of all connections, as noted.

    Args:
        most: The bound.
        measure: Returns the bytes that a connection holds now.
        whose: Returns the address of a connection.
        drop: Ends a connection.
    """

    def __init__(
        self,
        most: int,
        measure: Callable[[_C], int],
        whose: Callable[[_C], str | None],
        drop: Callable[[_C], object],
    ) -> None:
        self.total: int = 0
        self._most = most
        self._measure = measure
        self._whose = whose
        self._drop = drop
        self._held: dict[_C, int] = {}

    def note(self, connection: _C, nbytes: int) -> None:
        """Notes what a connection holds; ends others, or this one, if all hold more than the bound."""
        self._put(connection, nbytes)
        if self.total > self._most and self.measured() > self._most:
            self._make_room()

    def measured(self) -> int:
        """Measures all connections, and returns the bytes that they hold together."""
        for connection in list(self._held):
            self._put(connection, self._measure(connection))
        return self.total

    def _put(self, connection: _C, nbytes: int) -> None:
        self.total += nbytes - self._held.pop(connection, 0)
        if nbytes:
            self._held[connection] = nbytes

    def _make_room(self) -> None:
        by_address: dict[str | None, list[tuple[int, int, _C]]] = {}
        for order, (connection, nbytes) in enumerate(self._held.items()):
            by_address.setdefault(self._whose(connection), []).append((nbytes, -order, connection))
        ranks = []
        for order, held in enumerate(by_address.values()):
            held.sort()
            ranks.append((-sum(one[0] for one in held), order, held))
        heapq.heapify(ranks)
        while self.total > self._most - self._most // _ROOM:
            together, order, held = ranks[0]
            nbytes, _, connection = held.pop()
            if held:
                heapq.heapreplace(ranks, (together + nbytes, order, held))
            else:
                heapq.heappop(ranks)
            self._put(connection, 0)
            self._drop(connection)

"""Memory for what snapshots have read and their subscribers have not taken: bounded for a log, and given up where it lies idle."""

import threading
from collections import OrderedDict
from typing import Protocol

__all__ = ["HeldPages", "PageHolder"]


class PageHolder(Protocol):
    """What reads pages of a snapshot and can read them again."""

    def give_up(self) -> int:
        """Gives up what it holds, unless it is in use at this moment; returns the bytes that it still holds."""
        ...


class HeldPages:
    """The bytes of pages that the snapshots of a log hold. Thread-safe.

    A subscriber without demand, or whose connection accepts nothing, would keep its page for ever. So beyond the bound those that
    were used longest ago are given up, and read again when the subscriber can take them.

    Attributes:
        nbytes: The bytes that all hold.

    Args:
        most: The bound: option ``snapshot_bytes``.
    """

    def __init__(self, most: int) -> None:
        self.nbytes: int = 0
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[PageHolder, int] = OrderedDict()  # used longest ago first

    @property
    def scarce(self) -> bool:
        """Whether more than half of the bound is held: then nobody should read more than is taken at once."""
        return 2 * self.nbytes > self._most

    def note(self, holder: PageHolder, nbytes: int) -> None:
        """Notes what a holder holds now, and makes room if that is too much.

        At most the holder itself and those in use, one for each thread that reads, exceed the bound.
        """
        with self._lock:
            self._put(holder, nbytes)
            count = len(self._held)
        while self.nbytes > self._most and count:
            count -= 1
            with self._lock:
                if not self._held:
                    return
                other, before = next(iter(self._held.items()))
            left = before if other is holder else other.give_up()
            with self._lock:
                if self._held.get(other) == before:  # else it has read again or ended meanwhile
                    self._put(other, left)

    def _put(self, holder: PageHolder, nbytes: int) -> None:
        self.nbytes += nbytes - self._held.pop(holder, 0)
        if nbytes:
            self._held[holder] = nbytes

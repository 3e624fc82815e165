"""Byte budgets of a server that its clients share, optionally with a bound per principal."""

import threading
from collections import Counter
from typing import Final

from publishers.errors import TooCostly

__all__ = ["DividedBytes", "SharedBytes"]

_LESS: Final = "to send less at once"
_CHEAPER: Final = "to send it again when others have been answered"


class SharedBytes:
    """A budget of a server, which clients take from and return to. Thread-safe.

    Attributes:
        taken: The bytes that are taken.

    Args:
        option: The name of the option that bounds it.
        limit: The bound.
        what: The thing that is counted, for errors.
    """

    def __init__(self, option: str, limit: int, what: str) -> None:
        self.taken = 0
        self._option = option
        self._limit = limit
        self._what = what
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> None:
        """Takes bytes from the budget.

        Raises:
            TooCostly: If not enough is left; retryable, unless ``nbytes`` exceeds the bound itself.
        """
        with self._lock:
            left = self._limit - self.taken
            if nbytes > self._limit:
                raise TooCostly(self._option, nbytes, self._limit, _LESS, what=self._what)
            if nbytes > left:
                raise TooCostly(self._option, nbytes, self._limit, _CHEAPER, what=self._what, left=left)
            self.taken += nbytes

    def give(self, nbytes: int) -> None:
        """Returns bytes to the budget."""
        with self._lock:
            self.taken -= nbytes


class DividedBytes(SharedBytes):
    """A budget of a server, with another bound for each principal. Thread-safe.

    Args:
        option: The name of the option that bounds it.
        limit: The bound.
        what: The thing that is counted, for errors.
        share: The name of the option that bounds a principal.
        most: The bound of a principal.
    """

    def __init__(self, option: str, limit: int, what: str, *, share: str, most: int) -> None:
        super().__init__(option, limit, what)
        self._share = share
        self._most = most
        self._taken: Counter[str] = Counter()
        self._parts = threading.Lock()

    def take_for(self, principal: str, nbytes: int) -> None:
        """Takes bytes for a principal.

        Raises:
            TooCostly: If not enough is left for the principal or for all; retryable, unless ``nbytes`` exceeds the bound
                itself.
        """
        with self._parts:
            left = self._most - self._taken.get(principal, 0)
            if nbytes > self._most:
                raise TooCostly(self._share, nbytes, self._most, _LESS, what=self._what)
            if nbytes > left:
                raise TooCostly(self._share, nbytes, self._most, _CHEAPER, what=self._what, left=left)
            self.take(nbytes)
            self._taken[principal] += nbytes

    def give_for(self, principal: str, nbytes: int) -> None:
        """Returns bytes of a principal."""
        with self._parts:
            self.give(nbytes)
            self._taken[principal] -= nbytes
            if not self._taken[principal]:
                del self._taken[principal]

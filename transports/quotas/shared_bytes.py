"""Bytes of a server that its clients share."""

import threading

from publishers.errors import TooCostly

__all__ = ["SharedBytes"]


class SharedBytes:
    """A bound of a server, taken by its clients and given back. Thread-safe.

    Attributes:
        taken: How much is taken now.

    Args:
        option: The name of the bound.
        limit: The bound.
        what: What is counted, for errors.
    """

    def __init__(self, option: str, limit: int, what: str) -> None:
        self.taken = 0
        self._option = option
        self._limit = limit
        self._what = what
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> None:
        """Takes some.

        Raises:
            TooCostly: If there are not so many left; retryable.
        """
        with self._lock:
            left = self._limit - self.taken
            if nbytes > left:
                cheaper = "to send it again when others have been answered"
                raise TooCostly(self._option, nbytes, self._limit, cheaper, what=self._what, left=left)
            self.taken += nbytes

    def give(self, nbytes: int) -> None:
        """Gives some back."""
        with self._lock:
            self.taken -= nbytes

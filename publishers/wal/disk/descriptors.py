"""A reserve of file descriptors of the process, for what a log must open to go on: a segment, an index, a directory to be synced.

A process that has no free descriptor could not begin its next segment, although its disk has room. So a few descriptors are
kept open and unused, shared by all logs of the process. An operation of a writer that finds none free gets one of them, and gives
it back when it closes its file. An opening of a log that would have to keep one is refused.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeVar

from flow import forks

__all__ = ["DESCRIPTORS", "NO_DESCRIPTOR", "DescriptorReserve"]

NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of an opening that finds no free descriptor in the process, or in the whole machine."""

_T = TypeVar("_T")
_SIZE: Final = 8


class DescriptorReserve:
    """Descriptors that are open and unused. Thread-safe.

    Args:
        size: Their number, once the reserve has been filled.

    Attributes:
        low: Whether some of them were given away.
    """

    def __init__(self, size: int) -> None:
        self.low: bool = False
        self._size = size
        self._kept: list[int] = []
        self._lock = Lock()
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`. The copies of the descriptors are the reserve of the child."""
        self._lock = Lock()
        forks.register(self)

    def __len__(self) -> int:
        return len(self._kept)

    def fill(self) -> None:
        """Opens what the reserve lacks.

        Raises:
            OSError: If there are too few free descriptors; those that were free are kept.
        """
        with self._lock:
            while len(self._kept) < self._size:
                self.low = True
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            self.low = False

    def refill(self) -> None:
        """Opens as much of what the reserve lacks as is free; called when a file was closed."""
        with contextlib.suppress(OSError):
            self.fill()

    def spending(self, open_it: Callable[[], _T]) -> _T:
        """Calls a function that opens a file, and gives it descriptors of the reserve as long as it finds none free.

        Raises:
            OSError: What the function raises; EMFILE or ENFILE only if the reserve is empty.
        """
        while True:
            try:
                return open_it()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self._release():
                    raise

    def _release(self) -> bool:
        with self._lock:
            if not self._kept:
                return False
            os.close(self._kept.pop())
            self.low = True
        return True


DESCRIPTORS: Final = DescriptorReserve(_SIZE)
"""The reserve of this process; empty until a log is opened for writing."""

"""A bound for the answers of a target, in time as a whole and in bytes: client libraries know a timeout for each read only.

So a target that sends a byte now and then would hold its sink for hours, and one that does not end would take all memory.
"""

import io
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from flow.clock import SYSTEM_CLOCK

__all__ = ["ANSWER_BYTES", "AnswerBound", "BoundedSocket"]

T = TypeVar("T")
ANSWER_BYTES: Final = 4 * 2**20
"""Most bytes of the answers of a cache to a batch, which has some 100 for each change, and of a database to a transaction."""
_NEARLY: Final = 0.9  # of the own timeout of a socket, which then may take as much longer
_PIECE: Final = 65536  # bytes read at most between two looks at the bound


class AnswerBound(threading.local):
    """What is left for the answers of one call to a target; each thread has its own.

    Args:
        seconds: How long a call may take, its request included.
        most: How many bytes its answers may have.
    """

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds, self._most = seconds, most
        self.begin()

    def begin(self) -> None:
        """Begins a call."""
        self._end = SYSTEM_CLOCK.monotonic() + self._seconds
        self._room = self._most

    def left(self) -> float:
        """Returns the seconds that are left; raises ``TimeoutError`` if none are."""
        left = self._end - SYSTEM_CLOCK.monotonic()
        if left <= 0:
            raise TimeoutError(f"no whole answer within {self._seconds:g} s")
        return left

    def take(self, count: int) -> None:
        """Counts bytes of an answer; raises ``OSError`` if they are too many."""
        self._room -= count
        if self._room < 0:
            raise OSError(f"the answer is larger than {self._most} bytes")


class BoundedSocket:
    """A socket whose reads and writes are those of calls with a bound; everything else is that of the socket.

    Args:
        connection: The socket, plain or TLS.
        bound: The bound.
    """

    def __init__(self, connection: socket.socket, bound: AnswerBound) -> None:
        self._socket, self._bound = connection, bound

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def makefile(self, _mode: str = "rb", _buffering: int | None = None) -> io.BufferedReader:
        """Returns a file to read from; see ``socket.makefile``."""
        self._socket._io_refs += 1  # type: ignore[attr-defined]  # noqa: SLF001 - as socket.makefile does
        return io.BufferedReader(socket.SocketIO(self, "r"), _PIECE)  # type: ignore[arg-type]  # it has what is used

    def recv(self, size: int) -> bytes:
        """See ``socket.recv``."""
        read = self._timed(lambda: self._socket.recv(min(size, _PIECE)))
        self._bound.take(len(read))
        return read

    def recv_into(self, buffer: Any) -> int:
        """See ``socket.recv_into``."""
        count = self._timed(lambda: self._socket.recv_into(buffer))
        self._bound.take(count)
        return count

    def sendall(self, data: Any) -> None:
        """See ``socket.sendall``."""
        self._timed(lambda: self._socket.sendall(data))

    def _timed(self, work: Callable[[], T]) -> T:
        own = self._socket.gettimeout()
        if own == 0:  # a look whether there is anything to read
            return work()
        left = self._bound.left()
        if own is not None and left > own * _NEARLY:
            return work()  # two calls of the kernel for each read would be for nothing
        self._socket.settimeout(left if own is None else min(own, left))
        try:
            return work()
        finally:
            self._socket.settimeout(own)

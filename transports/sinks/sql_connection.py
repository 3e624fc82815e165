"""Connections to PostgreSQL whose answers have a bound: the driver itself would wait for ever, and keep what it reads."""

import contextlib
import fcntl
import struct
import termios
from collections.abc import Generator
from typing import Any, Final

import psycopg

from transports.sinks.bounded import AnswerBound

__all__ = ["bounded_connection"]

_COUNT: Final = struct.Struct("i")


def bounded_connection(bound: AnswerBound, *arguments: Any, **options: Any) -> Any:
    """Returns a connection that is closed, with ``OperationalError``, when answers take more than is left of ``bound``.

    Args:
        bound: The bound, which its user begins for each transaction.
        *arguments: As for ``psycopg.connect``.
        **options: Likewise; ``connect_timeout`` is the bound of connecting.
    """
    made: Any = _Connection.connect(*arguments, **options)
    made.bound = bound
    return made


class _Connection(psycopg.Connection[Any]):
    bound: AnswerBound

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """See ``psycopg.Connection.wait``, which every answer is waited for by."""
        return super().wait(self._bounded(gen), *arguments, **options)

    def _bounded(self, gen: Any) -> Generator[Any, Any, Any]:
        """Goes on with ``gen`` each time that there is something to read, or a tenth of a second has passed."""
        with contextlib.closing(gen):
            try:
                waits = next(gen)
                while True:
                    ready = yield waits
                    self._check()
                    waits = gen.send(ready)
            except StopIteration as end:
                return end.value

    def _check(self) -> None:
        try:
            self.bound.left()
            self.bound.take(_COUNT.unpack(fcntl.ioctl(self.fileno(), termios.FIONREAD, bytes(4)))[0])
        except OSError as error:
            self.close()
            raise psycopg.OperationalError(str(error)) from None

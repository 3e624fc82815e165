"""Targets that lie: servers of a test that answer as none does, byte by byte if they like."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Self

__all__ = ["Liar", "closes", "drips", "endless", "says", "silent"]

Lie = Callable[["Liar", socket.socket], None]


class Liar:
    """A server on a port of its own, with a thread for each connection.

    Args:
        serve: Answers one connection until it returns or fails.

    Attributes:
        port: The port.
        sent: How many bytes were sent by lies.
        released: Set when lies end.
    """

    def __init__(self, serve: Callable[["Liar", socket.socket], None]) -> None:
        self._serve, self._threads, self._open = serve, [], []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.sent = 0
        self.released = threading.Event()
        self._threads.append(threading.Thread(target=self._accept))

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._listener, *self._open):
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                self._threads.append(threading.Thread(target=self._answer, args=(connection,)))
                self._threads[-1].start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError, struct.error):  # the other side has gone
            self._serve(self, connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def send(self, connection: socket.socket, data: bytes) -> None:
        """Sends what counts as sent."""
        self.sent += connection.send(data)


def says(data: bytes) -> Lie:
    """Says something, and then nothing more."""

    def lie(liar: Liar, connection: socket.socket) -> None:
        liar.send(connection, data)

    return lie


def closes(data: bytes) -> Lie:
    """Closes in the middle of an answer."""

    def lie(liar: Liar, connection: socket.socket) -> None:
        liar.send(connection, data)
        raise EOFError

    return lie


def silent(liar: Liar, _: socket.socket) -> None:
    """Says nothing."""
    liar.released.wait(60)
    raise EOFError


def drips(beginning: bytes, piece: bytes = b" ") -> Lie:
    """Says a little now and then."""

    def lie(liar: Liar, connection: socket.socket) -> None:
        liar.send(connection, beginning)
        while not liar.released.wait(0.02):
            liar.send(connection, piece)
        raise EOFError

    return lie


def endless(beginning: bytes, piece: bytes = b" ") -> Lie:
    """Does not come to an end."""
    pieces = piece * (100_000 // len(piece))

    def lie(liar: Liar, connection: socket.socket) -> None:
        liar.send(connection, beginning)
        left = b""
        while True:
            left = left or pieces
            count = connection.send(left)
            liar.sent, left = liar.sent + count, left[count:]

    return lie

"""The control socket in the directory of a log: other processes ask for the status of its sinks and order them."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from publishers.errors import PenstockError
from transports.sinks.errors import SinkError, shown_error
from transports.sinks.log_sinks import LogSinks, order_of
from transports.sinks.state import SinkStatus

__all__ = ["ControlSocket", "asked", "status_document"]

_NAME: Final = "sinks.sock"
_LINE: Final = 65536
_PATIENCE: Final = 30.0  # seconds for one request
_READ: Final = 5.0  # seconds in which the request must arrive


def status_document(status: SinkStatus) -> dict[str, Any]:
    """Returns a status as a JSON object."""
    lag = status.lag
    return {
        "name": status.name,
        "state": status.state.name,
        "reason": status.reason,
        "last_error": status.last_error,
        "last_error_age": status.last_error_age,
        "attempt": status.attempt,
        "retry_in": status.retry_in,
        "circuit_open": status.circuit_open,
        "position": None if status.position is None else str(status.position),
        "confirmed": None if status.confirmed is None else str(status.confirmed),
        "lag": None if lag is None else {"versions": lag.versions, "seconds": lag.seconds},
        "epoch": status.epoch,
        "gap": None if status.gap is None else status.gap._asdict(),
        "counters": msgspec.to_builtins(status.counters),
    }


@contextlib.contextmanager
def _path(directory: Path) -> Iterator[str]:
    """A short path of the socket, because a socket address has at most 107 bytes and the directory may be longer."""
    number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{number}/{_NAME}"
    finally:
        os.close(number)


class ControlSocket:
    """Answers requests about the runners, one at a time. A context manager.

    Args:
        directory: The directory of the socket: that of the log, which has one owner.
        runners: The running sinks.
    """

    def __init__(self, directory: Path, runners: LogSinks) -> None:
        self._directory, self._runners = directory, runners
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            (directory / _NAME).unlink(missing_ok=True)  # left by an owner that died
            with _path(directory) as path:
                self._listener.bind(path)
            (directory / _NAME).chmod(0o600)
            self._listener.listen(8)
        except BaseException:
            self._listener.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="penstock-sinks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        (self._directory / _NAME).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_READ)
                connection.sendall(msgspec.json.encode(self._answer(_read(connection))) + b"\n")

    def _answer(self, question: bytes) -> dict[str, Any]:
        try:
            question_fields = msgspec.json.decode(question, type=dict[str, Any])
            return {"done": self._done(question_fields)}
        except (PenstockError, msgspec.MsgspecError, KeyError, TimeoutError) as error:
            return {"error": shown_error(error)}

    def _done(self, fields: dict[str, Any]) -> Any:
        if fields["do"] == "status":
            return [status_document(one.statistics()) for one in self._runners.values()]
        name, do = fields.pop("name"), fields.pop("do")
        return status_document(self._runners.order(name, do, timeout=_PATIENCE, **order_of(fields)))


def asked(directory: Path, question: Mapping[str, Any]) -> Any:
    """Sends a request to the process that runs the sinks of a log.

    Returns:
        Its answer; None if there is no such process.

    Raises:
        SinkError: If it answers with an error, or does not answer.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE)
        try:
            with _path(directory) as path:
                connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return None
        try:
            connection.sendall(msgspec.json.encode(question) + b"\n")
            answer: dict[str, Any] = msgspec.json.decode(_read(connection))
        except (OSError, msgspec.MsgspecError) as error:
            raise SinkError(
                f"the process that runs the sinks does not answer: {shown_error(error)}"
            ) from None
    if "error" in answer:
        raise SinkError(answer["error"])
    return answer["done"]


def _read(connection: socket.socket) -> bytes:
    """Reads one line, of bounded length."""
    read = bytearray()
    while not read.endswith(b"\n") and len(read) < _LINE * 16:
        piece = connection.recv(_LINE)
        if not piece:
            break
        read += piece
    return bytes(read)

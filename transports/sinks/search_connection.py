"""Connections to a search engine whose answers have a bound, in time as a whole and in bytes.

The client of the engine knows a timeout for each read only, and keeps what it reads. So an engine, or what answers in its place, that
sends a byte now and then would hold the sink for hours, and one that does not end would take all memory.
"""

import contextlib
import io
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

import opensearchpy
import urllib3

__all__ = ["ANSWER_BYTES", "BoundedConnection"]

ANSWER_BYTES: Final = 16 * 2**20
"""Most bytes of one answer; that to a batch has some 300 for each change."""


class BoundedConnection(opensearchpy.Urllib3HttpConnection):
    """Reads each head, and each body, within ``timeout`` seconds, and at most `ANSWER_BYTES`; raises ``ConnectionError`` otherwise."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        within, pool = float(self.timeout), self.pool
        ask = pool.urlopen

        class Connection(pool.ConnectionCls):  # type: ignore[misc, name-defined]  # plain or TLS
            def getresponse(self) -> Any:
                with _cut_off(pool, self.sock, within):
                    return super().getresponse()

        def urlopen(*given: Any, **named: Any) -> urllib3.HTTPResponse:
            answer = ask(*given, preload_content=False, **named)
            read = bytearray()
            with (
                contextlib.closing(answer),
                _cut_off(pool, answer.connection and answer.connection.sock, within),
            ):
                for piece in answer.stream(65536, decode_content=True):
                    read += piece
                    if len(read) > ANSWER_BYTES:
                        raise urllib3.exceptions.HTTPError(f"the answer is larger than {ANSWER_BYTES} bytes")
                answer.release_conn()
            headers = {
                name: value for name, value in answer.headers.items() if name.lower() != "content-encoding"
            }
            # As a file: of bytes that are none, as in an answer to HEAD, ``data`` would be None.
            return urllib3.HTTPResponse(io.BytesIO(read), headers, answer.status)

        pool.ConnectionCls, pool.urlopen = Connection, urlopen


@contextlib.contextmanager
def _cut_off(pool: Any, connection: socket.socket | None, within: float) -> Iterator[None]:
    """Ends a connection that is still being read from after so many seconds, and raises ``ReadTimeoutError`` then."""
    late = threading.Event()

    def cut() -> None:
        late.set()
        with contextlib.suppress(OSError):
            if connection is not None:
                connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(within, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if late.is_set():
            raise urllib3.exceptions.ReadTimeoutError(
                pool, "", f"no whole answer within {within:g} s"
            ) from error
        raise
    finally:
        timer.cancel()

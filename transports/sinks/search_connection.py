"""Connections to a search engine whose answers have a bound, in time as a whole and in bytes.

The client of the engine knows a timeout for each read only, and keeps what it reads. So an engine, or what answers in its place, that
sends a byte now and then would hold the sink for hours, and one that does not end would take all memory.
"""

import contextlib
from typing import Any, Final, NamedTuple

import opensearchpy
import urllib3

from transports.sinks.bounded import AnswerBound, BoundedSocket

__all__ = ["ANSWER_BYTES", "BoundedConnection"]

ANSWER_BYTES: Final = 16 * 2**20
"""Most bytes of one answer; that to a batch has some 300 for each change."""


class _Answer(NamedTuple):
    """What the client of the engine takes of an answer; ``data`` is not compressed."""

    data: bytes
    headers: urllib3.HTTPHeaderDict
    status: int


class BoundedConnection(opensearchpy.Urllib3HttpConnection):
    """Reads each head, and each body, within ``timeout`` seconds, and at most `ANSWER_BYTES`; raises ``ConnectionError`` otherwise."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        within, pool = float(self.timeout), self.pool
        ask = pool.urlopen

        bound = AnswerBound(within, 2 * ANSWER_BYTES)  # with its head; the body has a bound of its own

        class Connection(pool.ConnectionCls):  # type: ignore[misc, name-defined]  # plain or TLS
            def connect(self) -> None:
                super().connect()
                connection: Any = self.sock
                self.sock: Any = BoundedSocket(connection, bound)

            def getresponse(self) -> Any:
                bound.begin()
                return super().getresponse()

        def urlopen(*given: Any, **named: Any) -> _Answer:
            bound.begin()
            answer = ask(*given, preload_content=False, **named)
            bound.begin()
            read = bytearray()
            with contextlib.closing(answer):
                for piece in answer.stream(65536, decode_content=True):
                    read += piece
                    if len(read) > ANSWER_BYTES:
                        raise urllib3.exceptions.HTTPError(f"the answer is larger than {ANSWER_BYTES} bytes")
                answer.release_conn()
            return _Answer(bytes(read), answer.headers, answer.status)

        pool.ConnectionCls, pool.urlopen = Connection, urlopen

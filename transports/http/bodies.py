"""The bodies of HTTP requests: the one place where they are read, timed, bounded and charged, for every path."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Final

from transports.http.asgi import Receive
from transports.limits import Limits
from transports.quotas.shared_bytes import Charge, SharedBytes

__all__ = ["BODY_RATE", "BODY_TIMEOUT", "Bodies", "Left", "Refused"]

BODY_RATE: Final = 1024
"""Least bytes a second of a longer body, on average over each `Limits.request_timeout` in which the server waits for it: a modem's."""

BODY_TIMEOUT: Final = 600.0
"""Most seconds that the server waits for a body, however it comes."""

_CLOSE: Final = (b"connection", b"close")


class Refused(Exception):
    """A request is refused with a status and a text."""

    def __init__(
        self, status: HTTPStatus, why: str, *headers: tuple[bytes, bytes], code: str = "INVALID_REQUEST"
    ) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers
        self.code = code


class Left(Exception):
    """The client has disconnected, so there is no response."""


class Bodies:
    """Reads the bodies of one server.

    Attributes:
        held: The bytes of bodies that are no appends, which have budgets of their own.

    Args:
        limits: The bounds of the server.
    """

    def __init__(self, limits: Limits) -> None:
        self.held: SharedBytes = SharedBytes("body_bytes", limits.body_bytes, "bytes of requests under way")
        self._limits = limits

    async def pieces(
        self, headers: Mapping[str, str], receive: Receive, most: int, option: str, otherwise: str = ""
    ) -> AsyncIterator[bytes]:
        """Yields the pieces of a body.

        Only the time in which the server waits for the client counts, so a busy server refuses nobody for that.

        Args:
            headers: The headers of the request.
            receive: Receives its messages.
            most: The most bytes.
            option: The option that bounds them.
            otherwise: What a client with more may do.

        Raises:
            Refused: If the body is too large (413), or comes too slowly (408).
            Left: If the client disconnects before the end.
        """
        limits, now = self._limits, asyncio.get_running_loop().time

        def check(nbytes: int) -> None:
            if nbytes > most:
                why = f"a body holds at most {most} bytes ({option}){otherwise}"
                raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why, _CLOSE)

        declared = headers.get("content-length", "")
        check(int(declared) if declared.isdigit() and len(declared) < 20 else 0)
        least = max(1, int(BODY_RATE * limits.request_timeout))
        taken = fresh = 0
        waited = slow = 0.0
        more = True
        while more:
            asked = now()
            patience = min(limits.request_timeout - slow, BODY_TIMEOUT - waited)
            try:
                async with asyncio.timeout(max(0.0, patience)):
                    message = await receive()
            except TimeoutError:
                why = (
                    f"the body came too slowly: {taken} bytes in {waited + now() - asked:.3g} s; send {BODY_RATE} bytes a "
                    f"second after {limits.request_timeout:g} s, and all of them within {BODY_TIMEOUT:g} s"
                )
                raise Refused(HTTPStatus.REQUEST_TIMEOUT, why, _CLOSE) from None
            if message["type"] == "http.disconnect":
                raise Left
            piece: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            taken, fresh = taken + len(piece), fresh + len(piece)
            waited, slow = waited + now() - asked, slow + now() - asked
            if fresh >= least:
                fresh, slow = 0, 0.0
            check(taken)
            yield piece

    async def whole(
        self,
        headers: Mapping[str, str],
        receive: Receive,
        charge: Charge,
        most: int | None = None,
        otherwise: str = "",
    ) -> bytes:
        """Returns a body, whose bytes are charged as they come.

        Args:
            headers: The headers of the request.
            receive: Receives its messages.
            charge: What the request has taken.
            most: The most bytes; None for ``message_bytes``.
            otherwise: As for ``pieces``.

        Raises:
            Refused, Left: As ``pieces``.
            TooCostly: If the budget is exhausted.
        """
        body = bytearray()
        bound = (self._limits.message_bytes, "message_bytes") if most is None else (most, "of this path")
        async for piece in self.pieces(headers, receive, *bound, otherwise):
            charge.take(len(piece))
            body += piece
        return bytes(body)

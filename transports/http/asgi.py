"""The types of ASGI 3.0, and the function that sends an HTTP response."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Final

__all__ = ["ASGIApplication", "ASGIMessage", "ASGISend", "Receive", "Scope", "respond"]

_PIECE: Final = 64 * 1024

Scope = MutableMapping[str, Any]
ASGIMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[ASGIMessage]]
ASGISend = Callable[[ASGIMessage], Awaitable[None]]
ASGIApplication = Callable[[Scope, Receive, ASGISend], Awaitable[None]]


async def respond(
    send: ASGISend, status: HTTPStatus, headers: Iterable[tuple[bytes, bytes]], body: bytes = b""
) -> None:
    """Sends a response; a long body in pieces, each once the previous one was accepted, so that at most one is unsent."""
    await send({"type": "http.response.start", "status": int(status), "headers": list(headers)})
    left = memoryview(body)
    while len(left) > _PIECE:
        await send({"type": "http.response.body", "body": bytes(left[:_PIECE]), "more_body": True})
        left = left[_PIECE:]
    await send({"type": "http.response.body", "body": bytes(left)})

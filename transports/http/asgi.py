"""The types of ASGI 3.0, and the functions that send an HTTP response."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec

__all__ = ["ASGIApplication", "ASGIMessage", "ASGISend", "Receive", "Scope", "add_slash", "answer", "respond"]

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


async def add_slash(send: ASGISend, scope: Scope) -> None:
    """Redirects a browser to the path with a trailing slash, so that relative URLs of the page resolve below it."""
    asked: bytes = scope.get("raw_path") or quote(scope.get("root_path") or "").encode("ascii")
    query: bytes = scope.get("query_string", b"")
    place = b"./" + asked.partition(b"?")[0].rpartition(b"/")[2] + b"/" + (b"?" + query if query else b"")
    headers = [(b"location", place), (b"content-length", b"0")]
    await respond(send, HTTPStatus.TEMPORARY_REDIRECT, headers)


async def answer(
    send: ASGISend, status: HTTPStatus, content: Any, kind: str = "application/json", *, body: bool = True
) -> None:
    """Sends a response that no cache keeps: bytes as they are, anything else as JSON."""
    data = content if isinstance(content, bytes) else msgspec.json.encode(content) + b"\n"
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", b"%d" % len(data)),
        (b"cache-control", b"no-store"),
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append((b"allow", b"GET, HEAD"))
    if status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    await respond(send, status, headers, data if body else b"")

"""The header of a WebSocket frame, and the ASGI scope of an upgrade request."""

import asyncio
from typing import Any
from urllib.parse import unquote

from websockets.http11 import Request

__all__ = ["frame_head", "scope_of"]


def frame_head(length: int) -> bytes:
    """The header of an unmasked, unfragmented text frame (RFC 6455 §5.2)."""
    if length < 126:
        return bytes((0x81, length))
    if length < 65536:
        return b"\x81\x7e" + length.to_bytes(2, "big")
    return b"\x81\x7f" + length.to_bytes(8, "big")


def scope_of(request: Request, transport: asyncio.Transport, *, root: str) -> dict[str, Any]:
    """The ASGI scope of an upgrade request (ASGI 3.0, "websocket"), as far as the request determines it."""
    path, _, query = request.path.partition("?")
    offered = ",".join(request.headers.get_all("Sec-WebSocket-Protocol"))
    return {
        "type": "websocket",
        "http_version": "1.1",
        "scheme": "ws" if transport.get_extra_info("sslcontext") is None else "wss",
        "server": _address(transport.get_extra_info("sockname")),
        "client": _address(transport.get_extra_info("peername")),
        "root_path": root,
        "path": root + unquote(path),
        "raw_path": (root + path).encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in request.headers.raw_items()
        ],
        "subprotocols": [token.strip() for token in offered.split(",") if token.strip()],
    }


def _address(info: object) -> tuple[str, int] | None:
    return (str(info[0]), int(info[1])) if isinstance(info, tuple) and len(info) >= 2 else None

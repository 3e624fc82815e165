"""URLs of servers, as users have them at hand."""

import re
from typing import Final
from urllib.parse import urlsplit

from publishers.errors import InvalidOption

__all__ = ["address_meant", "check_websocket_url", "websocket_url"]

_SCHEMES: Final = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_ADDRESS: Final = re.compile(r"(\[[\da-fA-F:.]+\]|[\w.-]+):\d{1,5}(/.*)?")


def websocket_url(url: str) -> str:
    """Returns the WebSocket URL of a server, from the URL that a browser shows, or from that of a WebSocket.

    ``http://host:port/`` or in a web application ``http://host:port/live/`` means the server there.

    Raises:
        ValueError: If the URL has another scheme, no host, or an invalid port.
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.port == 0:
        raise ValueError(url)
    path = f"{parts.path}ws" if parts.path.endswith("/") else parts.path or "/ws"
    return parts._replace(scheme=_SCHEMES[parts.scheme], path=path).geturl()


def address_meant(text: str) -> str | None:
    """Returns the WebSocket URL that is meant by ``host:port``, or by a URL of HTTP; None if it is neither."""
    url = f"ws://{text}" if _ADDRESS.fullmatch(text) else text
    try:
        return websocket_url(url)
    except ValueError:
        return None


def check_websocket_url(url: object, *, tls: bool) -> None:
    """Refuses what is not the URL of a WebSocket; with ``tls``, of one over TLS.

    Raises:
        InvalidOption: If it is not; it tells the URL that is meant.
    """
    text = url if isinstance(url, str) else ""
    if text.lower().startswith("wss:" if tls else ("ws:", "wss:")):
        return
    right = "a URL that begins with wss://, or without TLS with ws://"
    if (meant := address_meant(text)) is not None:
        right += f"; write connect({meant.replace('ws:', 'wss:', meant.startswith('ws:') and tls)!r})"
    raise InvalidOption("url", url, right)

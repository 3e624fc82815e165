"""How changes leave the program, and arrive in another.

``serve`` puts an open log on a port; ``connect`` makes a remote log, whose feeds are publishers. The protocol between
them is ``penstock.v1+json``. Servers and clients need the extra ``server``: ``pip install 'penstock[server]'``.

``Application`` is what they serve, for use under uvicorn, or inside another ASGI application; ``LinkProtocol`` is the class
that uvicorn is to run WebSockets with: ``uvicorn --ws transports:LinkProtocol``.
"""

from typing import TYPE_CHECKING

from transports.application import Application
from transports.codec.replies import RemoteChange, RemoteGap, RemoteModelChange
from transports.errors import (
    CloseCode,
    ConnectionLost,
    ExtraMissing,
    Forbidden,
    RemoteError,
    ServerFailed,
)
from transports.followed import FollowedName
from transports.limits import Limits
from transports.policy import Caller, Policy
from transports.server import Server, serve
from transports.tokens import TokenFile
from transports.websocket.backoff import Backoff
from transports.websocket.client import RemoteLog, connect

if TYPE_CHECKING:
    from transports.websocket.protocol import LinkProtocol as LinkProtocol

# LinkProtocol is not in it: it stands on an extra, and `from transports import *` needs none.
__all__ = [
    "Application",
    "Backoff",
    "Caller",
    "CloseCode",
    "ConnectionLost",
    "ExtraMissing",
    "FollowedName",
    "Forbidden",
    "Limits",
    "Policy",
    "RemoteChange",
    "RemoteError",
    "RemoteGap",
    "RemoteLog",
    "RemoteModelChange",
    "Server",
    "ServerFailed",
    "TokenFile",
    "connect",
    "serve",
]


def __getattr__(name: str) -> object:
    """Imports what needs an extra when it is asked for (PEP 562)."""
    if name != "LinkProtocol":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from transports.websocket.protocol import LinkProtocol  # noqa: PLC0415 - needs websockets, which is optional
    except ImportError as error:
        raise ExtraMissing("the protocol class", error.name or "websockets", "server") from None
    return LinkProtocol

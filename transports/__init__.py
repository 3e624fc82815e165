"""How changes leave the program, and arrive in another.

``serve`` puts an open log on a port; ``connect`` makes a remote log, whose feeds are publishers. The protocol between
them is ``penstock.v1+json``. Servers and clients need the extra ``server``: ``pip install 'penstock[server]'``.
"""

from transports.application import Application
from transports.codec.replies import RemoteChange, RemoteGap
from transports.errors import (
    CloseCode,
    ConnectionLost,
    ExtraMissing,
    Forbidden,
    RemoteError,
    ServerFailed,
)
from transports.limits import Limits
from transports.policy import Caller, Policy
from transports.server import Server, serve
from transports.websocket.backoff import Backoff
from transports.websocket.client import RemoteLog, connect

__all__ = [
    "Application",
    "Backoff",
    "Caller",
    "CloseCode",
    "ConnectionLost",
    "ExtraMissing",
    "Forbidden",
    "Limits",
    "Policy",
    "RemoteChange",
    "RemoteError",
    "RemoteGap",
    "RemoteLog",
    "Server",
    "ServerFailed",
    "connect",
    "serve",
]

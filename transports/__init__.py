"""Transports: how changes leave the program and arrive in another.

``serve`` puts an open log on a port; ``connect`` makes a remote log, whose feeds are publishers. The protocol between them
is ``penstock.v1+json``. Servers and clients need the extra ``server``: ``pip install 'penstock-cdc[server]'``.

``Application`` is the ASGI application of a server, for uvicorn or inside another ASGI application; ``LinkProtocol`` is the
WebSocket class for uvicorn: ``uvicorn --ws penstock_cdc:LinkProtocol``.
"""

from importlib import import_module

# Neither this nor Final comes from typing: the command cannot handle an interrupt until this module is imported, so the
# import must be short.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from transports.access.access import Access, Authenticator, Authoriser
    from transports.access.grant import Grant, LogAction
    from transports.access.jwt_verifier import JwtVerifier
    from transports.access.peer_certificates import AnyOf, PeerCertificates
    from transports.access.policy import Policy
    from transports.access.principal import ANONYMOUS, Credentials, PeerCertificate, Principal
    from transports.access.tokens import TokenFile
    from transports.browser.pages import Page
    from transports.client.backoff import Backoff
    from transports.client.remote_log import RemoteLog, connect
    from transports.codec.replies import RemoteChange, RemoteCommit, RemoteGap, RemoteModelChange
    from transports.errors import (
        CloseCode,
        ConnectionLost,
        ExtraMissing,
        Forbidden,
        RemoteError,
        ServerFailed,
        Unauthenticated,
    )
    from transports.limits import Limits
    from transports.resp.server import RespServer, serve_resp
    from transports.server.asgi import Application
    from transports.server.logs import FollowedName
    from transports.server.tls import ServerCertificate
    from transports.server.uvicorn import Server, serve
    from transports.server.ws_protocol import LinkProtocol as LinkProtocol

# Without LinkProtocol, which needs an extra: `from transports import *` must not.
__all__ = [
    "ANONYMOUS",
    "Access",
    "AnyOf",
    "Application",
    "Authenticator",
    "Authoriser",
    "Backoff",
    "CloseCode",
    "ConnectionLost",
    "Credentials",
    "ExtraMissing",
    "FollowedName",
    "Forbidden",
    "Grant",
    "JwtVerifier",
    "Limits",
    "LogAction",
    "Page",
    "PeerCertificate",
    "PeerCertificates",
    "Policy",
    "Principal",
    "RemoteChange",
    "RemoteCommit",
    "RemoteError",
    "RemoteGap",
    "RemoteLog",
    "RemoteModelChange",
    "RespServer",
    "Server",
    "ServerCertificate",
    "ServerFailed",
    "TokenFile",
    "Unauthenticated",
    "connect",
    "serve",
    "serve_resp",
]

_MODULES = {
    "access.access": ["Access", "Authenticator", "Authoriser"],
    "access.grant": ["LogAction", "Grant"],
    "access.jwt_verifier": ["JwtVerifier"],
    "access.peer_certificates": ["AnyOf", "PeerCertificates"],
    "access.policy": ["Policy"],
    "access.principal": ["ANONYMOUS", "Credentials", "PeerCertificate", "Principal"],
    "access.tokens": ["TokenFile"],
    "browser.pages": ["Page"],
    "client.backoff": ["Backoff"],
    "client.remote_log": ["RemoteLog", "connect"],
    "codec.replies": ["RemoteChange", "RemoteCommit", "RemoteGap", "RemoteModelChange"],
    "errors": [
        "CloseCode",
        "ConnectionLost",
        "ExtraMissing",
        "Forbidden",
        "RemoteError",
        "ServerFailed",
        "Unauthenticated",
    ],
    "limits": ["Limits"],
    "resp.server": ["RespServer", "serve_resp"],
    "server.asgi": ["Application"],
    "server.logs": ["FollowedName"],
    "server.tls": ["ServerCertificate"],
    "server.uvicorn": ["Server", "serve"],
    "server.ws_protocol": ["LinkProtocol"],
}


def __getattr__(name: str) -> object:
    """Imports a name on first use (PEP 562): the command starts before everything is imported, and some names need an extra."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found: object = getattr(import_module(f"{__name__}.{module}"), name)
    except ImportError as error:
        if name != "LinkProtocol":
            raise
        from transports.errors import ExtraMissing  # noqa: PLC0415 - see above

        raise ExtraMissing("the protocol class", error.name or "websockets", "server") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Returns all names, imported or not."""
    return sorted({*globals(), *__all__})

"""Information in the scope of a request: its path below the mount point, its headers, and its credentials."""

from collections.abc import Hashable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from transports.access.principal import Credentials, PeerCertificate

__all__ = ["PEER", "bearer", "client_of", "credentials_of", "headers_of", "path_below"]


PEER: Final = "penstock.peer_certificate"
"""The key of the client's certificate in the state of a scope; other hosts supply it in the ``tls`` extension."""


def path_below(scope: Mapping[str, Any]) -> str:
    """Returns the path of a request below the mount point of the application.

    By ASGI (3.0, "HTTP") ``path`` is complete and begins with ``root_path``; uvicorn, and Starlette from 0.33, follow this.
    Other hosts strip the prefix from ``path``. Litestar does so too, but leaves ``root_path`` unchanged and appends a slash.
    Where two of these readings fit, ``raw_path`` decides, which all hosts leave as the request had it.

    Args:
        scope: The scope of an HTTP or WebSocket request.

    Returns:
        A path that begins with a slash; empty if the request is for the prefix without a trailing slash.
    """
    path: str = scope["path"]
    root: str = (scope.get("root_path") or "").rstrip("/")
    raw: bytes = (scope.get("raw_path") or b"").partition(b"?")[0]
    asked = unquote(raw.decode("latin-1"))
    if f"{path}/".startswith(f"{root}/") and (not root or asked != root + path):
        path = path.removeprefix(root)
    if path.endswith("/") and asked and not asked.endswith("/"):
        path = path.removesuffix("/")
    return path


def client_of(scope: Mapping[str, Any]) -> Hashable:
    """Returns the client to which a request is charged: its address; None if the host reports none."""
    client = scope.get("client")
    return client[0] if client else None


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Returns the headers of a request, by lower-case name.

    A header that is repeated is one list (RFC 9110 §5.3), so none of several origins, or tokens, counts alone.
    """
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name, text = raw.decode("latin-1"), value.decode("latin-1")
        between = "; " if name == "cookie" else ", "
        found[name] = found[name] + between + text if name in found else text
    return found


def bearer(headers: Mapping[str, str]) -> str | None:
    """Returns the token of an ``Authorization`` header; None without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def credentials_of(scope: Mapping[str, Any]) -> Credentials:
    """Returns the credentials of a request."""
    headers = headers_of(scope)
    client = scope.get("client")
    return Credentials(
        token=bearer(headers),
        headers=headers,
        cookies=_cookies(headers.get("cookie", "")),
        query=dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)),
        peer_certificate=_shown(scope),
        client=client[0] if client else None,
    )


def _shown(scope: Mapping[str, Any]) -> PeerCertificate | None:
    shown = (scope.get("state") or {}).get(PEER)
    if isinstance(shown, PeerCertificate):
        return shown
    # ASGI extension "tls" 0.2: the name is present only if the host has verified the certificate.
    tls = (scope.get("extensions") or {}).get("tls") or {}
    name = tls.get("client_cert_name")
    if not name or tls.get("client_cert_error"):
        return None
    common = next((part[3:] for part in name.split(",") if part.startswith("CN=")), None)
    return PeerCertificate(name, common)


def _cookies(header: str) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header).items()}
    except CookieError:
        return {}

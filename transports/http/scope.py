"""What the scope of a request tells: where it goes in an application, wherever that is mounted, and whose it is."""

from collections.abc import Hashable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from transports.access.principal import Credentials, PeerCertificate

__all__ = ["PEER", "bearer", "client_of", "credentials_of", "headers_of", "path_below"]


PEER: Final = "penstock.peer_certificate"
"""Where the state of a scope has the certificate of the client; under other servers it is what the ``tls`` extension tells."""


def path_below(scope: Mapping[str, Any]) -> str:
    """The path of a request below the place where the application is mounted.

    By ASGI (3.0, "HTTP") ``path`` is whole and begins with ``root_path``; uvicorn and Starlette from 0.33 on have it so.
    Other hosts take the prefix off ``path``. Litestar does that too, leaves ``root_path`` as it was, and puts a slash at
    the end. Where two of these readings fit, ``raw_path`` decides, which all of them leave as the request had it.

    Args:
        scope: Of a request for HTTP, or for a WebSocket.

    Returns:
        A path that begins with a slash; an empty one if the request is for the prefix without a slash behind it.
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
    """Whose share of the threads a request takes: the address that it comes from; None where the host tells none."""
    client = scope.get("client")
    return client[0] if client else None


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a request, by their names in small letters."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def bearer(headers: Mapping[str, str]) -> str | None:
    """The token of an ``Authorization`` header, if there is one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def credentials_of(scope: Mapping[str, Any]) -> Credentials:
    """By what a request shows whose it is."""
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
    # ASGI extension "tls" 0.2: there is a name only if the host has verified the certificate.
    told = (scope.get("extensions") or {}).get("tls") or {}
    name = told.get("client_cert_name")
    if not name or told.get("client_cert_error"):
        return None
    common = next((part[3:] for part in name.split(",") if part.startswith("CN=")), None)
    return PeerCertificate(name, common)


def _cookies(header: str) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header).items()}
    except CookieError:
        return {}

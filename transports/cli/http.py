"""What a server tells by HTTP."""

import argparse
import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from transports.access.tokens import token_given
from transports.cli.arguments import ArgumentParser

__all__ = ["add_token", "ask", "token_of"]

_TIMEOUT: Final = 10.0
_MOST: Final = 64 << 20


def add_token(parser: ArgumentParser) -> None:
    """Adds the arguments that tell a server who asks."""
    parser.value("--token", "TOKEN", "token for a server (default: $PENSTOCK_TOKEN)")
    parser.value(
        "--token-file",
        "FILE",
        "file that holds the token, which other users of this machine can read in --token",
    )


def token_of(chosen: argparse.Namespace) -> str | None:
    """The token that was given."""
    return token_given(chosen.token, chosen.token_file)


def ask(url: str, path: str, what: str, token: str | None, **query: object) -> Mapping[str, Any] | None:
    """What a server answers; None if it says that there is no such thing.

    Args:
        url: Of its WebSocket.
        path: What is asked for, such as ``/statistics``.
        what: That in words, for errors.
        token: Who asks, or None.
        query: Parameters; those that are None are left out.

    Raises:
        ConnectionError: If it does not answer that, with what it said instead.
    """
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    given = urlencode({name: value for name, value in query.items() if value is not None})
    prefix = parts.path.removesuffix("/ws")  # of the web application in which it is mounted
    asked = f"{scheme}://{parts.netloc}{prefix}{path}" + (f"?{given}" if given else "")
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(asked, headers=headers)  # noqa: S310 - http or https, see above
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - likewise
            told = msgspec.json.decode(answer.read(_MOST))
    except urllib.error.HTTPError as error:
        with error:
            said = _said(error)
        if error.code == http.HTTPStatus.NOT_FOUND and said.get("code") is None and "error" in said:
            return None
        why = said.get("error") or error.reason
        raise ConnectionError(f"{asked} does not answer with {what}: {why}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise ConnectionError(f"{asked} does not answer with {what}: {why}") from None
    if not isinstance(told, dict):
        raise ConnectionError(f"{asked} does not answer with {what}")
    return told


def _said(error: urllib.error.HTTPError) -> Mapping[str, Any]:
    try:
        said = msgspec.json.decode(error.read(_MOST))
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    return said if isinstance(said, dict) else {}

"""HTTP requests of commands to a server."""

import argparse
import http.client
import itertools
import shlex
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from publishers.errors import InvalidOption
from transports.access.tokens import token_given
from transports.cli.arguments import ArgumentParser
from transports.client.backoff import Backoff
from transports.errors import ConnectionLost, InvalidInput, RemoteError
from transports.tcp.trust import trusting

__all__ = ["ServerTrust", "add_token", "ask", "post", "token_of", "tokens_of", "trust_of"]

_TIMEOUT: Final = 10.0
_PATIENCE: Final = 60.0  # seconds without a byte from a server that is writing
_MOST: Final = 64 << 20
_UNCHECKED: Final = "the certificate of {} is not checked: any server that answers there gets the token, and its answers are taken as true"


def add_token(parser: ArgumentParser) -> None:
    """Adds the arguments for authenticating to a server, and for trusting it."""
    parser.value("--token", "TOKEN", "token for a server (default: $PENSTOCK_TOKEN)")
    parser.value(
        "--token-file",
        "FILE",
        "file that holds the token, which other users of this machine can read in --token",
    )
    parser.value(
        "--token-command",
        "COMMAND",
        "program, with its arguments, that prints the token; a command that connects again asks it again",
    )
    parser.value("--ca", "FILE", "authorities by which a server is trusted (default: those of this machine)")
    parser.value("--cert", "FILE", "certificate to show to a server")
    parser.value("--cert-key", "FILE", "private key of --cert, if it is in a file of its own")
    parser.value(
        "--server-name", "NAME", "name that the certificate of a server must bear, if not that of its URL"
    )
    parser.flag("--insecure-tls", "do not check the certificate of the server")


class ServerTrust(NamedTuple):
    """How to verify a server.

    Attributes:
        context: The TLS context.
        name: The name that its certificate must bear; None for the host of the URL.
    """

    context: ssl.SSLContext
    name: str | None


def trust_of(chosen: argparse.Namespace, url: str) -> ServerTrust | None:
    """Returns how to verify a server; None for a server without TLS.

    Raises:
        InvalidOption: If a TLS option is given for a server without TLS, or a file is invalid.
    """
    given = ("ca", "cert", "cert_key", "server_name", "insecure_tls")
    if urlsplit(url).scheme != "wss":
        for name in given:
            if getattr(chosen, name):
                option = "--" + name.replace("_", "-")
                raise InvalidOption(
                    option, getattr(chosen, name), f"left out for {url}, which has no TLS: wss:// has"
                )
        return None
    if chosen.insecure_tls:
        print(f"penstock: {_UNCHECKED.format(url)}", file=sys.stderr, flush=True)
    context = trusting(chosen.ca, chosen.cert, chosen.cert_key, insecure=chosen.insecure_tls)
    return ServerTrust(context, chosen.server_name)


def token_of(chosen: argparse.Namespace) -> str | None:
    """Returns the token from the options or the environment.

    Raises:
        InvalidOption: If the file or the program gives none, or an option excludes another.
    """
    command: str | None = chosen.token_command
    if command is None:
        return token_given(chosen.token, chosen.token_file)
    if chosen.token is not None or chosen.token_file is not None:
        raise InvalidOption("--token-command", command, "given without --token and --token-file")
    right = "a program that prints one line, the token"
    try:
        done = subprocess.run(  # noqa: S603 - the program that the user names
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
        sys.stderr.write(done.stderr.decode("utf-8", "replace"))  # not its own: lines may have to be JSON
        done.check_returncode()
        (token,) = done.stdout.decode().split("\n")[:-1] or [done.stdout.decode()]
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        why = (
            str(error)
            if isinstance(error, (OSError, subprocess.SubprocessError))
            else "it printed no such line"
        )
        raise InvalidOption("--token-command", command, f"{right}; {why}") from None
    if not token.strip():
        raise InvalidOption("--token-command", command, right)
    return token.strip()


def tokens_of(chosen: argparse.Namespace) -> str | Callable[[], str | None] | None:
    """Returns the token, or a function that returns the one for the next connection, if a file or a program has it."""
    renewed = chosen.token_command is not None or chosen.token_file is not None
    return partial(token_of, chosen) if renewed else token_of(chosen)


def ask(
    url: str,
    path: str,
    what: str,
    token: str | None,
    trust: ServerTrust | None = None,
    *,
    also: int | None = None,
    **query: object,
) -> Mapping[str, Any] | None:
    """Requests a document from a server; None if the server does not have it.

    Args:
        url: The URL of its WebSocket.
        path: The path, such as ``/statistics``.
        what: The document in words, for errors.
        token: The token; None without one.
        trust: How to verify the server; None for a server without TLS.
        also: A status besides 200 whose body is the document.
        query: The parameters; those that are None are omitted.

    Raises:
        ConnectionError: If the server does not answer with the document; contains its reply.
    """
    asked = _address(url, path, query)
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(asked, headers=headers)  # noqa: S310 - http or https, because _address maps the scheme
        with _opener(trust).open(request, timeout=_TIMEOUT) as answer:
            answer_json = msgspec.json.decode(answer.read(_MOST))
    except urllib.error.HTTPError as error:
        with error:
            said = _said(error)
        if error.code == also:
            return said
        if error.code == http.HTTPStatus.NOT_FOUND and said.get("code") is None and "error" in said:
            return None
        why = said.get("error") or error.reason
        raise ConnectionError(f"{asked} does not answer with {what}: {why}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise ConnectionError(f"{asked} does not answer with {what}: {why}") from None
    if not isinstance(answer_json, dict):
        raise ConnectionError(f"{asked} does not answer with {what}")
    return answer_json


def _opener(trust: ServerTrust | None) -> urllib.request.OpenerDirector:
    return urllib.request.build_opener() if trust is None else urllib.request.build_opener(_Https(trust))


class _Https(urllib.request.HTTPSHandler):
    """Opens HTTPS to a server whose certificate may bear another name than the host of its URL."""

    def __init__(self, trust: ServerTrust) -> None:
        super().__init__(context=trust.context)
        self._trust = trust

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, request)

    def _connection(self, host: str, **named: Any) -> http.client.HTTPSConnection:
        context, name = self._trust

        class Named(http.client.HTTPSConnection):
            def connect(self) -> None:
                http.client.HTTPConnection.connect(self)
                self.sock = context.wrap_socket(self.sock, server_hostname=name or self.host)

        return Named(host, **named)


def post(
    url: str,
    path: str,
    body: IO[bytes],
    size: int,
    token: str | None,
    *,
    attempts: int,
    trust: ServerTrust | None = None,
    **query: object,
) -> dict[str, Any]:
    """Sends changes as JSON lines to a server, and returns its answer.

    Args:
        url: The URL of its WebSocket.
        path: The path.
        body: The lines; each attempt sends them from the beginning.
        size: Their size in bytes.
        token: The token; None without one.
        attempts: The number of retries if the server cannot be reached or has no room.
        trust: How to verify the server; None for a server without TLS.
        query: The parameters; those that are None are omitted.

    Raises:
        InvalidInput: If a line is invalid; nothing was written.
        RemoteError: If the server refuses; nothing was written.
        ConnectionLost: If the server cannot be reached; ``outcome`` says whether the lines may have been written.
    """
    asked, patience, outcome = _address(url, path, query), Backoff(limit=30.0), "refused"
    headers = {"Content-Type": "application/x-ndjson", "Content-Length": str(size)}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    for attempt in itertools.count():
        body.seek(0)
        request = urllib.request.Request(asked, body, headers)  # noqa: S310 - http or https, because _address maps the scheme
        try:
            with _opener(trust).open(request, timeout=_PATIENCE) as answer:
                return dict(msgspec.json.decode(answer.read(_MOST)))
        except urllib.error.HTTPError as error:
            with error:
                said = dict(_said(error))
            why, code = str(said.pop("error", error.reason)), str(said.pop("code", "INTERNAL"))
            retryable = said.pop("retryable", False) is True
            if "line" in said:
                raise InvalidInput(said["line"], why.partition(": ")[2]) from None
            if not retryable or attempt >= attempts:
                raise RemoteError(code, why, retryable=retryable, data=said) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = str(getattr(error, "reason", None) or error)
            if not isinstance(getattr(error, "reason", None), ConnectionRefusedError):
                outcome = "unknown"
            if attempt >= attempts:
                lost = ConnectionLost(asked, f"{why}; the outcome is {outcome}")
                lost.outcome = outcome
                raise lost from None
        delay = patience.delay(attempt) or 0.0
        print(
            f"penstock: waiting for {asked.partition('?')[0]}: {why}; trying again in {delay:.1f} s",
            file=sys.stderr,
            flush=True,
        )
        threading.Event().wait(delay)
    raise AssertionError


def _address(url: str, path: str, query: Mapping[str, object]) -> str:
    """Returns the HTTP URL of a path at a server, given the URL of its WebSocket."""
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    given = urlencode({name: value for name, value in query.items() if value is not None})
    prefix = parts.path.removesuffix("/ws")  # keeps the prefix of a web application around the server
    return f"{scheme}://{parts.netloc}{prefix}{path}" + (f"?{given}" if given else "")


def _said(error: urllib.error.HTTPError) -> Mapping[str, Any]:
    try:
        said = msgspec.json.decode(error.read(_MOST))
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    return said if isinstance(said, dict) else {}

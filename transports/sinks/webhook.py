"""Sends changes over HTTP: a signed POST for each batch (Standard Webhooks, symmetric, version 1)."""

import base64
import binascii
import contextlib
import gzip
import hmac
import logging
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import httpcore
import msgspec

from flow.clock import SYSTEM_CLOCK
from publishers.errors import InvalidOption
from publishers.model.errors import HIDDEN
from publishers.model.position import Position
from publishers.views.view import Images
from transports.sinks.errors import TargetRefused, TargetUnavailable, TooLargeForTarget
from transports.sinks.formats import FORMATS, WebhookSource, batch_id
from transports.sinks.network import AddressGuard, GuardedNetwork
from transports.sinks.oauth import ClientCredentials, TokenAnswer
from transports.sinks.retry import check_seconds
from transports.sinks.secrets import SecretReference
from transports.sinks.sink import ItemResult, ItemVerdict, SinkBatch, SinkContext
from transports.sinks.sink_target import EXAMPLE
from transports.sinks.tls import TargetTls

__all__ = ["WebhookSink", "WebhookTls", "sign"]


_PREFIX: Final = "whsec_"


def sign(secrets: Sequence[SecretReference], message: str, timestamp: int, body: bytes) -> str:
    """Returns the header ``webhook-signature``: one signature for each secret, so that receivers may verify with any during a rotation.

    Args:
        secrets: References to the secrets, which are base64 with or without the prefix ``whsec_``.
        message: The header ``webhook-id``.
        timestamp: The header ``webhook-timestamp``, in Unix seconds.
        body: The body before compression.

    Raises:
        TargetRefused: If a secret is missing or is not base64.
    """
    signed = b"%s.%d.%s" % (message.encode(), timestamp, body)
    return " ".join(
        "v1," + base64.b64encode(hmac.digest(_key(secret), signed, "sha256")).decode() for secret in secrets
    )


def _key(secret: SecretReference) -> bytes:
    text = secret.value().removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise TargetRefused(
            f"the secret {secret} is not base64, as secrets of Standard Webhooks are"
        ) from None
    return key


_LOG: Final = logging.getLogger("penstock.sinks")
WebhookTls = TargetTls
"""The name of `TargetTls` for webhooks."""
_ANSWER_BYTES: Final = 65536
_TELL: Final = 200  # characters of an answer in an error
_GZIP_FROM: Final = 1024
_LATER: Final = frozenset({408, 425, 429})
_NEVER: Final = frozenset({501, 505})
_OVERLOADED: Final = frozenset({429, 503})
_OURS: Final = ("content-", "webhook-", "penstock-", "host", "transfer-encoding", "connection", "traceparent")


class _Failed(msgspec.Struct):
    id: str
    error: str = ""


class _Answer(msgspec.Struct):
    failed: list[_Failed] = []


class WebhookSink:
    """Sends each batch as one POST, over HTTP/1.1 with keep-alive. Needs the extra ``webhook``.

    Args:
        url: The URL, or a reference to it (``env:NAME``, ``file:PATH``). Credentials in it are sent as the header ``authorization``.
            Status and logs show it without credentials and query.
        secrets: References to the signing keys: several during a rotation, none for no signature.
        headers: Additional headers, with references to their values; ``plain:VALUE`` for a value that is not secret.
        profile: The format of the body: ``native``, ``rqlite``, ``cloudevents`` or ``keys``.
        source: The sender that the body names.
        timeout: Seconds for a whole request, from name resolution to the end of the answer, from 0.05 to 600.
        compress: Whether bodies of at least 1 KiB are sent as gzip.
        tls: How the receiver is verified.
        allow: Networks that may be reached although they are not public.
        oauth: Obtains bearer tokens. A token that the receiver refuses (401) is replaced once within the attempt.

    Raises:
        InvalidOption: If an argument is invalid.
    """

    stores_position: ClassVar[bool] = False
    idempotent: ClassVar[bool] = False
    partial: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    parallel: ClassVar[bool] = True
    images: ClassVar[Images | None] = None

    def __init__(
        self,
        url: str,
        *,
        secrets: Sequence[str | SecretReference] = (),
        headers: Mapping[str, str | SecretReference] | None = None,
        profile: str = "native",
        source: WebhookSource | None = None,
        timeout: float = 15.0,
        compress: bool = False,
        tls: TargetTls | None = None,
        allow: Sequence[str] = (),
        oauth: ClientCredentials | None = None,
    ) -> None:
        if profile not in FORMATS:
            raise InvalidOption("profile", profile, f"one of {', '.join(FORMATS)}")
        check_seconds("timeout", timeout, 0.05, 600.0)
        self._kept_url = SecretReference(url) if url.startswith(("env:", "file:")) else None
        self._url = None if self._kept_url is not None else _Url(url)
        self._format = FORMATS[profile]
        self.keeps_entities: bool = self._format.rows
        self._secrets = [_reference(one) for one in secrets]
        self._headers = {_header(name): _reference(value) for name, value in (headers or {}).items()}
        self._source = source or WebhookSource()
        self._timeout, self._compress = float(timeout), compress
        self._tls, self._oauth = tls, oauth
        self._token_url = (
            None if oauth is None else _Url(oauth.token_url, "the authorisation server", "token_url")
        )
        self._network = GuardedNetwork(AddressGuard(allow))
        self._pool: httpcore.ConnectionPool | None = None
        self._context: SinkContext | None = None

    def __repr__(self) -> str:
        return f"<WebhookSink {self._url if self._url is not None else self._kept_url}>"

    def open(self, context: SinkContext) -> None:
        """See `Sink.open`. The first batch connects."""
        if self._kept_url is not None:
            self._url = _Url(self._kept_url.value(), str(self._kept_url))
        self._context = context
        urls = [url for url in (self._url, self._token_url) if url is not None]
        tls = self._tls or (TargetTls() if any(url.secure for url in urls) else None)
        if tls is not None:
            tls.warn(context.name, self._url)
        self._pool = httpcore.ConnectionPool(
            ssl_context=None if tls is None else tls.context,
            max_connections=context.in_flight + len(urls) - 1,
            network_backend=self._network,
        )

    def write(self, batch: SinkBatch) -> Sequence[ItemResult] | None:
        """See `Sink.write`."""
        context, url = self._opened
        body = self._format.encode(batch, context, self._source)
        headers = self._headers_of(batch, body, context, url)
        if self._compress and len(body) >= _GZIP_FROM:
            body = gzip.compress(body, mtime=0)
            headers.append(("content-encoding", "gzip"))
        status, answer_headers, answer = self._admitted(url, headers, body)
        return self._judged(batch, status, answer_headers, answer)

    def flush(self) -> None:
        """Does nothing: what was answered is confirmed."""

    def move(self, position: Position) -> None:
        """Does nothing: the target stores no position."""

    def close(self) -> None:
        """See `Sink.close`."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def alive(self) -> bool:
        """See `Sink.alive`: whether the receiver accepts connections."""
        _, url = self._opened
        self._network.deadline = SYSTEM_CLOCK.monotonic() + self._timeout
        try:
            self._network.connect_tcp(url.host, url.port).close()
        except (httpcore.ConnectError, httpcore.ConnectTimeout):
            return False
        return True

    def try_out(self) -> str:
        """Sends one signed example, with the header ``penstock-test``; returns the receiver's answer.

        Raises:
            TargetUnavailable, TargetRefused: If the receiver does not accept it.
        """
        context, url = self._opened
        body = self._format.encode(EXAMPLE, context, self._source)
        headers = [*self._headers_of(EXAMPLE, body, context, url), ("penstock-test", "true")]
        status, answer_headers, answer = self._admitted(url, headers, body)
        self._judged(EXAMPLE, status, answer_headers, answer)
        return self._why(status, answer)

    @property
    def _opened(self) -> "tuple[SinkContext, _Url]":
        assert self._context is not None
        assert self._url is not None
        return self._context, self._url

    # The request.

    def _headers_of(
        self, batch: SinkBatch, body: bytes, context: SinkContext, url: "_Url"
    ) -> list[tuple[str, str]]:
        message = batch_id(batch, context)
        now = context.clock.now_us() // 1_000_000
        headers = [
            ("host", url.authority),
            ("user-agent", "penstock"),
            ("content-type", self._format.content_type),
            ("webhook-id", message),
            ("webhook-timestamp", str(now)),
            ("penstock-sink", context.name),
            ("penstock-first", str(batch.first)),
            ("penstock-next", str(batch.next)),
            ("penstock-attempt", str(batch.attempt)),
            ("penstock-epoch", str(context.generation)),
        ]
        if batch.gap is not None:
            headers.append(("penstock-gap", f"{batch.gap.first} {batch.gap.next}"))
        if self._secrets:
            headers.append(("webhook-signature", sign(self._secrets, message, now, body)))
        if url.authorization is not None and self._oauth is None:
            headers.append(("authorization", url.authorization))
        if (parent := _traceparent(batch)) is not None:
            headers.append(("traceparent", parent))
        return headers + [(name, kept.value()) for name, kept in self._headers.items()]

    def _admitted(
        self, url: "_Url", headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Sends a request, with a token if OAuth is configured; retries with a new token once if the receiver refuses a cached one."""
        oauth = self._oauth
        if oauth is None:
            return self._sent(url, headers, body)
        fresh = False
        while True:
            token = oauth.header(self._ask_token)
            answer_headers = self._sent(url, [*headers, ("authorization", token)], body)
            if answer_headers[0] != HTTPStatus.UNAUTHORIZED or fresh:
                return answer_headers
            oauth.forget(token)
            fresh = True

    def _ask_token(self, headers: dict[str, str], form: bytes) -> TokenAnswer:
        assert self._token_url is not None
        status, _, answer = self._sent(
            self._token_url, [("host", self._token_url.authority), *headers.items()], form
        )
        return status, answer

    def _sent(
        self, url: "_Url", headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Sends a request, and reads the answer up to its bound."""
        assert self._pool is not None
        self._network.deadline = SYSTEM_CLOCK.monotonic() + self._timeout
        extensions = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), self._timeout)}
        if self._tls is not None and self._tls.server_name is not None and url is self._url:
            extensions["sni_hostname"] = self._tls.server_name  # type: ignore[assignment]  # a dictionary of anything
        try:
            with self._pool.stream(
                b"POST",
                url.target,
                headers=[*headers, ("content-length", str(len(body)))],
                content=body,
                extensions=extensions,
            ) as answer:
                read = bytearray()
                for piece in answer.iter_stream():
                    read += piece
                    if len(read) > _ANSWER_BYTES:
                        break
                fields = {
                    name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers
                }
                return answer.status, fields, bytes(read)
        except httpcore.LocalProtocolError as error:
            raise TargetRefused(f"a header cannot be sent to {url}: {type(error).__name__}") from None
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise TargetUnavailable(f"{url}: {_failure(error)}") from None

    # The answer.

    def _judged(
        self, batch: SinkBatch, status: int, headers: Mapping[str, str], body: bytes
    ) -> Sequence[ItemResult] | None:
        done = self._format.done
        if status in done if done is not None else 200 <= status < 300:
            return self._failures(batch, body)
        why = self._why(status, body)
        if status == 410:
            raise TargetRefused(f"gone: {why}")
        if status == 413:
            raise TooLargeForTarget(why)
        if status in _LATER or (500 <= status < 600 and status not in _NEVER):
            raise TargetUnavailable(
                why, retry_after=self._retry_after(headers), overloaded=status in _OVERLOADED
            )
        raise TargetRefused(why)

    def _why(self, status: int, body: bytes) -> str:
        said = self._redacted(" ".join(body.decode("utf-8", "replace").split()))[:_TELL]
        return f"{self._opened[1]} answered {status}{f': {said}' if said else ''}"

    def _redacted(self, text: str) -> str:
        """Replaces the secrets that the receiver was sent, in case its answer repeats them."""
        kept = [one for one in (*self._secrets, *self._headers.values()) if not str(one).startswith("plain:")]
        hidden = {one.value() for one in kept}
        for url in (self._url, self._token_url):
            hidden |= set() if url is None else url.secrets
        if self._oauth is not None:
            hidden |= self._oauth.secrets
        for secret in sorted(hidden, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _failures(self, batch: SinkBatch, body: bytes) -> Sequence[ItemResult] | None:
        """Returns the results that an answer has for single changes; None for an answer without any."""
        if b'"failed"' not in body or len(body) > _ANSWER_BYTES:
            return None
        context, _ = self._opened
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except msgspec.MsgspecError:
            return None
        errors = {one.id: one.error or "the receiver refused it" for one in answer.failed}
        return [
            ItemResult(place, ItemVerdict.REJECT, self._redacted(errors[name])[:_TELL])
            for place, change in enumerate(batch.changes)
            if (name := context.change_id(change)) in errors
        ]

    def _retry_after(self, headers: Mapping[str, str]) -> float | None:
        context, _ = self._opened
        text = headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit() and len(text) < 10:
            return float(text)
        with contextlib.suppress(ValueError, OverflowError):
            return max(parsedate_to_datetime(text).timestamp() - context.clock.now_us() / 1e6, 0.0)
        return None


class _Url:
    """A URL that is shown without its secrets.

    Attributes:
        host: The host to connect to.
        port: The port to connect to.
        secure: Whether to use TLS.
        authority: The header ``host``.
        target: The URL without credentials.
        authorization: The header ``authorization`` made of the credentials; None without any.
        secrets: The parts that may be secret.
    """

    def __init__(self, text: str, kept: str | None = None, parameter: str = "url") -> None:
        right = "an address such as https://shop.example/hooks"
        shown = kept or HIDDEN
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise InvalidOption(parameter, shown, right) from None
        if parts.scheme not in ("http", "https") or not host or not text.isascii() or not text.isprintable():
            raise InvalidOption(parameter, shown, right)
        self.host, self.secure = host, parts.scheme == "https"
        self.port = port or (443 if self.secure else 80)
        named = f"[{host}]" if ":" in host else host
        self.authority = named if port is None else f"{named}:{port}"
        path = parts.path or "/"
        origin = f"{parts.scheme}://{self.authority}"
        self.target = f"{origin}{path}" + (f"?{parts.query}" if parts.query else "")
        self._shown = kept or f"{origin}{path}"
        self.authorization: str | None = None
        self.secrets = {one for one in (parts.password, unquote(parts.password or ""), parts.query) if one}
        if kept is not None:
            self.secrets.add(parts.path.strip("/"))
        self.secrets.discard("")
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            pair = base64.b64encode(pair.encode()).decode()
            self.secrets.add(pair)
            self.authorization = f"Basic {pair}"

    def __str__(self) -> str:
        return self._shown


def _reference(given: str | SecretReference) -> SecretReference:
    return given if isinstance(given, SecretReference) else SecretReference(given)


def _header(name: str) -> str:
    lower = name.lower()
    plain = bool(name) and name.isascii() and all(one.isalnum() or one in "-_" for one in name)
    if not plain or lower.startswith(_OURS):
        raise InvalidOption("headers", name, "the name of a header that the sink does not set itself")
    return lower


def _traceparent(batch: SinkBatch) -> str | None:
    with contextlib.suppress(ValueError):
        meta: Any = batch.changes[0].meta
        parent = meta.get("traceparent") if isinstance(meta, dict) else None
        if isinstance(parent, str) and len(parent) == 55 and parent.isascii() and parent.isprintable():
            return parent
    return None


def _failure(error: Exception) -> str:
    kinds: dict[type[Exception], str] = {
        httpcore.ConnectTimeout: "no connection in time",
        httpcore.ReadTimeout: "no answer in time",
        httpcore.WriteTimeout: "it did not take the request in time",
    }
    return kinds.get(type(error), f"{type(error).__name__}: {error}")

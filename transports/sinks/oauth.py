"""Bearer tokens by the client credentials grant of OAuth 2.0 (RFC 6749, section 4.4)."""

import base64
import threading
from collections.abc import Callable
from typing import Final, Literal
from urllib.parse import quote, urlencode

import msgspec

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import InvalidOption
from publishers.model.errors import HIDDEN
from transports.sinks.errors import TargetRefused, TargetUnavailable
from transports.sinks.secrets import SecretReference

__all__ = ["ClientCredentials", "TokenAnswer"]

_MARGIN: Final = 30.0  # seconds before its expiry at which a token is replaced, at most a tenth of its life
_LIFE: Final = 300.0  # seconds; the lifetime if the server reports none
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_TEXT: Final = 64

TokenAnswer = tuple[int, bytes]
"""The status and the body of an answer."""


class _Token(msgspec.Struct):
    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - a kind of tokens
    expires_in: float | None = None


class _Problem(msgspec.Struct):
    error: str = ""


class ClientCredentials:
    """Obtains a token from an authorisation server, and caches it for its lifetime. Thread-safe.

    Logs and status contain neither the secret nor a token; of an answer, only its status and error code.

    Args:
        token_url: The token endpoint; it is reached with the timeout and the address guard of the webhook.
        client_id: The id of the client at that server; or a reference to it: ``env:NAME``, ``file:PATH``.
        client_secret: A reference to the client secret.
        scope: The scope to request; None to leave it to the server.
        audience: The audience to request, for servers that require one; None to leave it out.
        auth: Whether id and secret are sent in the header (``basic``) or in the form (``body``).
        clock: The clock for the lifetime.

    Raises:
        InvalidOption: If an argument is invalid.
    """

    def __init__(
        self,
        token_url: str,
        client_id: str,
        client_secret: str | SecretReference,
        *,
        scope: str | None = None,
        audience: str | None = None,
        auth: Literal["basic", "body"] = "basic",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        for name, value in (("token_url", token_url), ("client_id", client_id)):
            if not isinstance(value, str) or not value:
                raise InvalidOption(name, HIDDEN, "a text that is not empty")
        if auth not in ("basic", "body"):
            raise InvalidOption("auth", auth, "'basic' or 'body'")
        self.token_url = token_url
        kept = client_id.startswith(("env:", "file:"))
        self._id = SecretReference(client_id if kept else f"plain:{client_id}")
        self._secret = (
            client_secret if isinstance(client_secret, SecretReference) else SecretReference(client_secret)
        )
        self._asked = {"scope": scope, "audience": audience}
        self._auth, self._clock = auth, clock
        self._lock = threading.Lock()
        self._token: str | None = None
        self._until = 0.0

    def __repr__(self) -> str:
        return f"<ClientCredentials {self._id} {self._secret}>"

    @property
    def secrets(self) -> set[str]:
        """The texts that must not be shown."""
        return {one for one in (self._secret.value(), self._token) if one is not None}

    def header(self, post: Callable[[dict[str, str], bytes], TokenAnswer]) -> str:
        """Returns the header ``authorization``, with a valid token.

        Args:
            post: Sends headers and a form to ``token_url``; raises what requests to the target raise.

        Raises:
            TargetUnavailable: If the authorisation server does not answer now.
            TargetRefused: If it refuses the client, or its answer has no token.
        """
        with self._lock:
            if self._token is None or self._clock.monotonic() >= self._until:
                self._token = None
                self._take(*post(*self._question()))
            return f"Bearer {self._token}"

    def forget(self, header: str) -> None:
        """Drops a token that the target refused, unless a newer token has replaced it."""
        with self._lock:
            if header == f"Bearer {self._token}":
                self._token = None

    def _question(self) -> tuple[dict[str, str], bytes]:
        form = {"grant_type": "client_credentials"}
        form |= {name: value for name, value in self._asked.items() if value is not None}
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        name, secret = self._id.value(), self._secret.value()
        if self._auth == "body":
            form |= {"client_id": name, "client_secret": secret}
        else:
            pair = f"{quote(name, safe='')}:{quote(secret, safe='')}"
            headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return headers, urlencode(form).encode()

    def _take(self, status: int, body: bytes) -> None:
        if status in _LATER:
            raise TargetUnavailable(f"the authorisation server answered {status}")
        if status != 200:
            raise TargetRefused(f"the authorisation server answered {status}{_code(body)}")
        try:
            answer = msgspec.json.decode(body, type=_Token)
        except msgspec.MsgspecError:
            raise TargetRefused("the authorisation server answered 200, but with no token") from None
        token = answer.access_token
        if (
            answer.token_type.lower() != "bearer"
            or not token
            or not token.isascii()
            or not token.isprintable()
        ):
            raise TargetRefused("the authorisation server answered with a token that is no bearer token")
        life = _LIFE if answer.expires_in is None else max(answer.expires_in, 0.0)
        self._token = token
        self._until = self._clock.monotonic() + life - min(_MARGIN, life / 10)


def _code(body: bytes) -> str:
    """Returns the error code, a word of the standard; the rest of the answer may repeat what was sent."""
    try:
        code = msgspec.json.decode(body, type=_Problem).error
    except msgspec.MsgspecError:
        return ""
    plain = code.isascii() and code.replace("_", "").isalnum() and len(code) <= _TEXT
    return f": {code}" if plain else ""

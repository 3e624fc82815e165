"""Bearer tokens by the client credentials grant of OAuth 2.0 (RFC 6749, section 4.4)."""

import base64
import threading
from collections.abc import Callable
from typing import Final, Literal
from urllib.parse import quote, urlencode

import msgspec

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import InvalidOption
from transports.sinks.errors import TargetRefused, TargetUnavailable
from transports.sinks.secrets import SecretReference

__all__ = ["ClientCredentials", "TokenAnswer"]

_MARGIN: Final = 30.0  # seconds before its end at which a token is not used any more; a tenth of its life, if that is shorter
_LIFE: Final = 300.0  # seconds, where the server does not say
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_TEXT: Final = 64

TokenAnswer = tuple[int, bytes]
"""Status and body."""


class _Token(msgspec.Struct):
    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - a kind of tokens
    expires_in: float | None = None


class _Problem(msgspec.Struct):
    error: str = ""


class ClientCredentials:
    """Gets a token from an authorisation server, and keeps it as long as it lasts. Thread-safe.

    What is logged and shown has neither the secret nor a token in it, and of an answer only its status and error code.

    Args:
        token_url: Of the authorisation server; it is reached as the webhook is, and guarded as that.
        client_id: Of the sink, as the server knows it; or where it is kept: ``env:NAME``, ``file:PATH``.
        client_secret: Where the secret is kept.
        scope: What the token is to be good for; None to leave it to the server.
        audience: For whom it is to be, for servers that ask for it; None to leave it out.
        auth: Whether id and secret go in the header (``basic``) or in the form (``body``).
        clock: What time it is.

    Raises:
        InvalidOption: If something is not what it must be.
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
                raise InvalidOption(name, "what is there", "a text that is not empty")
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
        """What must not be told."""
        return {one for one in (self._secret.value(), self._token) if one is not None}

    def header(self, post: Callable[[dict[str, str], bytes], TokenAnswer]) -> str:
        """The header ``authorization``, with a token that is good for a while.

        Args:
            post: Sends headers and a form to ``token_url``; it raises what the target's requests raise.

        Raises:
            TargetUnavailable: If the authorisation server does not answer now.
            TargetRefused: If it refuses the sink, or answers nonsense.
        """
        with self._lock:
            if self._token is None or self._clock.monotonic() >= self._until:
                self._token = None
                self._take(*post(*self._question()))
            return f"Bearer {self._token}"

    def forget(self, header: str) -> None:
        """Throws a token away which the target does not take any more, unless there is a newer one already."""
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
            told = msgspec.json.decode(body, type=_Token)
        except msgspec.MsgspecError:
            raise TargetRefused("the authorisation server answered 200, but with no token") from None
        token = told.access_token
        if told.token_type.lower() != "bearer" or not token or not token.isascii() or not token.isprintable():
            raise TargetRefused("the authorisation server answered with a token that is no bearer token")
        life = _LIFE if told.expires_in is None else max(told.expires_in, 0.0)
        self._token = token
        self._until = self._clock.monotonic() + life - min(_MARGIN, life / 10)


def _code(body: bytes) -> str:
    """The error code, which is a word of the standard; what else the answer says may repeat what was sent."""
    try:
        code = msgspec.json.decode(body, type=_Problem).error
    except msgspec.MsgspecError:
        return ""
    plain = code.isascii() and code.replace("_", "").isalnum() and len(code) <= _TEXT
    return f": {code}" if plain else ""

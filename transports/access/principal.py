"""Principals and the credentials that prove them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, NoneType
from typing import Any, Final

from publishers.errors import InvalidOption

__all__ = ["ANONYMOUS", "Credentials", "PeerCertificate", "Principal", "provable"]

_ROLES: Final = "a set of texts, such as {'reader'}"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated client.

    Attributes:
        name: The name in log lines, statistics and producers; not empty.
        roles: The names of its roles; the authoriser determines what they allow.
        claims: Further facts, such as a tenant. The repr omits them.
        expires: The time at which it has to authenticate again, in Unix seconds; None for never.
        until: That time by the monotonic clock of the server that has authenticated it; None before, and for never.

    Raises:
        InvalidOption: If an argument is invalid.
    """

    name: str
    roles: frozenset[str]
    claims: Mapping[str, Any] = field(repr=False, hash=False)
    expires: float | None = None
    until: float | None = field(default=None, repr=False, compare=False)

    def __init__(
        self,
        name: str,
        roles: Collection[str] = (),
        claims: Mapping[str, Any] = MappingProxyType({}),
        expires: float | None = None,
    ) -> None:
        checked: object = roles
        if not isinstance(name, str) or not name:
            raise InvalidOption("name", name, "a text that is not empty")
        if isinstance(checked, (str, bytes)) or not isinstance(checked, Collection):
            raise InvalidOption("roles", roles, _ROLES)
        if not all(isinstance(role, str) for role in checked):
            raise InvalidOption("roles", roles, _ROLES)
        if not isinstance(claims, Mapping):
            raise InvalidOption("claims", type(claims).__name__, "a mapping")
        if isinstance(expires, bool) or not isinstance(expires, (int, float, NoneType)):
            raise InvalidOption("expires", expires, "a time in Unix seconds, or None")
        put = object.__setattr__
        put(self, "name", name)
        put(self, "roles", frozenset(roles))
        put(self, "claims", MappingProxyType(dict(claims)))
        put(self, "expires", expires)
        put(self, "until", None)

    def expired(self, now: float) -> bool:
        """Whether the principal has expired at a time in Unix seconds."""
        return self.expires is not None and now >= self.expires

    def authenticated(self, until: float) -> "Principal":
        """Returns the same principal with ``until``."""
        same = Principal(self.name, self.roles, self.claims, self.expires)
        object.__setattr__(same, "until", until)
        return same


ANONYMOUS: Final = Principal("anonymous")
"""The principal of every client of a server without an authenticator, and of clients without credentials."""


def provable(name: str) -> bool:
    """Whether credentials may prove a name: not that of ``ANONYMOUS``, whose producers, slots and grants would be shared."""
    return name != ANONYMOUS.name


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The certificate of a client, verified by TLS (mutual TLS).

    Attributes:
        subject: The distinguished name in the notation of RFC 4514, such as ``CN=billing,O=Shop``.
        common_name: The first common name in the subject; None without one.
        alternative_names: The alternative names, each with its kind, such as ``DNS:billing.internal`` or
            ``URI:spiffe://a/b``.
        expires: The expiry, in Unix seconds.
    """

    subject: str
    common_name: str | None = None
    alternative_names: tuple[str, ...] = ()
    expires: float | None = None


@dataclass(frozen=True, slots=True)
class Credentials:
    """The proof of a client's identity: all that an authenticator receives. The repr omits secrets.

    Attributes:
        token: The token of ``Authorization: Bearer``, or ``token`` in the first message of a WebSocket, which takes
            precedence.
        headers: The headers of the request, by lower-case name.
        cookies: The cookies of the request.
        query: The query parameters; of a repeated one the last. URLs are logged, so tokens do not belong there, and no
            built-in authenticator reads them from there.
        peer_certificate: The certificate that TLS has verified; None without mutual TLS.
        first_message: The payload of ``connection_init``; None for an HTTP request.
        client: The client's address, if the server reports it.
    """

    token: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    peer_certificate: PeerCertificate | None = None
    first_message: Mapping[str, Any] | None = field(default=None, repr=False)
    client: str | None = None

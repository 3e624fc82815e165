"""Who a client is, and by what it shows that."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, NoneType
from typing import Any, Final

from publishers.errors import InvalidOption

__all__ = ["ANONYMOUS", "Credentials", "PeerCertificate", "Principal"]

_ROLES: Final = "a set of texts, such as {'reader'}"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a client is, as an authenticator found.

    Attributes:
        name: What logs, statistics and producers call it; not empty.
        roles: What it is entitled to, by name; what they allow is told by the authoriser.
        claims: What else is known of it, such as its tenant. No repr shows them.
        expires: When it is to be authenticated again, in Unix seconds; None for never.

    Raises:
        InvalidOption: If one of them is something else.
    """

    name: str
    roles: frozenset[str]
    claims: Mapping[str, Any] = field(repr=False, hash=False)
    expires: float | None = None

    def __init__(
        self,
        name: str,
        roles: Collection[str] = (),
        claims: Mapping[str, Any] = MappingProxyType({}),
        expires: float | None = None,
    ) -> None:
        told: object = roles
        if not isinstance(name, str) or not name:
            raise InvalidOption("name", name, "a text that is not empty")
        if isinstance(told, (str, bytes)) or not isinstance(told, Collection):
            raise InvalidOption("roles", roles, _ROLES)
        if not all(isinstance(role, str) for role in told):
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

    def expired(self, now: float) -> bool:
        """Whether its time is over at a time in Unix seconds."""
        return self.expires is not None and now >= self.expires


ANONYMOUS: Final = Principal("anonymous")
"""Every client of a server that authenticates none."""


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The certificate of a client, which the TLS connection has proved (mutual TLS).

    Attributes:
        subject: Its distinguished name as RFC 4514 writes it, such as ``CN=billing,O=Shop``.
        common_name: The first common name in it, if there is one.
        alternative_names: The names beside it, each with its kind, such as ``DNS:billing.internal`` or ``URI:spiffe://a/b``.
        expires: When it ends, in Unix seconds.
    """

    subject: str
    common_name: str | None = None
    alternative_names: tuple[str, ...] = ()
    expires: float | None = None


@dataclass(frozen=True, slots=True)
class Credentials:
    """By what a client shows who it is: all that an authenticator is given. Its repr shows no secret.

    Attributes:
        token: Of ``Authorization: Bearer``, or ``token`` in the first message of a WebSocket, which counts more.
        headers: The headers of the request, by their names in small letters.
        cookies: The cookies of the request.
        query: The parameters behind the question mark, of each the last one. Addresses are written into logs, so a token does
            not belong there; what is built in takes none from it.
        peer_certificate: The certificate that the TLS connection has proved; None without mutual TLS.
        first_message: The payload of ``connection_init``; None for a request over HTTP.
        client: The address that the request comes from, if the server tells it.
    """

    token: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    peer_certificate: PeerCertificate | None = None
    first_message: Mapping[str, Any] | None = field(default=None, repr=False)
    client: str | None = None

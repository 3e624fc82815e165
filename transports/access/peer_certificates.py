"""Principals from the certificates of clients (mutual TLS), and several ways to tell who a client is."""

import inspect
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal

from publishers.errors import InvalidOption
from transports.access.access import Authenticator
from transports.access.principal import Credentials, PeerCertificate, Principal

__all__ = ["AnyOf", "PeerCertificates", "peer_certificate"]

_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_NAMED: Final = ("subject", "common_name")


class PeerCertificates:
    """Tells clients by the certificates that the TLS connection has proved; see ``serve(..., authenticate=..., tls=...)``.

    Attributes:
        quick: It is asked on the event loop.

    Args:
        name: By what a principal is called: the whole ``subject`` (``CN=billing,O=Shop``) or its first ``common_name``.
        allowed: The names that are let in; None for every certificate of the authorities that the server trusts.
        roles: The roles of each name; those that it does not hold have none.
    """

    quick: Final = True

    def __init__(
        self,
        *,
        name: Literal["subject", "common_name"] = "common_name",
        allowed: Collection[str] | None = None,
        roles: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        if name not in _NAMED:
            raise InvalidOption("name", name, "one of " + ", ".join(_NAMED))
        if isinstance(allowed, str):
            raise InvalidOption("allowed", allowed, "a list of names, or None")
        self._name = name
        self._allowed = None if allowed is None else frozenset(allowed)
        self._roles = dict(roles or {})

    def __call__(self, credentials: Credentials) -> Principal | None:
        """Whose certificate it is; None without one, or if its name is not let in."""
        shown = credentials.peer_certificate
        name = None if shown is None else shown.subject if self._name == "subject" else shown.common_name
        if shown is None or not name or (self._allowed is not None and name not in self._allowed):
            return None
        claims = {"subject": shown.subject, "alternative_names": shown.alternative_names}
        return Principal(name, self._roles.get(name, ()), claims, shown.expires)


class AnyOf:
    """Lets in whom any of some authenticators does: the first one that knows the client tells who it is.

    Args:
        authenticators: They are asked in this order; all that do not await must be quick.
    """

    quick: Final = True

    def __init__(self, *authenticators: Authenticator) -> None:
        for one in authenticators:
            if not getattr(one, "quick", False):
                raise InvalidOption("authenticators", one, "authenticators whose attribute quick is true")
        self._authenticators = authenticators

    @property
    def revision(self) -> int:
        """Rises when one of them has read something else than before."""
        return sum(getattr(one, "revision", 0) for one in self._authenticators)

    def refresh(self) -> None:
        """Has each of them look whether what it was read from has changed."""
        for one in self._authenticators:
            look = getattr(one, "refresh", None)
            if look is not None:
                look()

    async def __call__(self, credentials: Credentials) -> Principal | None:
        """Who the client is by the first of them that knows it."""
        for one in self._authenticators:
            found = one(credentials)
            principal = await found if inspect.isawaitable(found) else found
            if principal is not None:
                return principal
        return None


def peer_certificate(told: Mapping[str, Any] | None, expires: float | None) -> PeerCertificate | None:
    """A certificate as ``ssl.SSLObject.getpeercert`` tells it; None if the client has shown none.

    Args:
        told: What was told.
        expires: When it ends, in Unix seconds.
    """
    if not told:
        return None
    parts = told.get("subject", ())
    common = next((value for part in parts for name, value in part if name == "commonName"), None)
    names = tuple(f"{kind}:{value}" for kind, value in told.get("subjectAltName", ()))
    # RFC 4514 begins with the last part.
    subject = ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(parts)
    )
    return PeerCertificate(subject, common, names, expires)


def _escaped(value: str) -> str:
    """RFC 4514 2.4."""
    text = "".join("\\" + one if one in '\\,+"<>;=' else "\\00" if one == "\0" else one for one in value)
    if text.startswith((" ", "#")):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(value) > 1 else text

"""Principals from client certificates (mutual TLS), and the combination of several authenticators."""

import inspect
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal

from publishers.errors import InvalidOption
from transports.access.access import Authenticator
from transports.access.principal import Credentials, PeerCertificate, Principal, provable

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
    """Authenticates clients by the certificates that TLS has verified; see ``serve(..., authenticate=..., tls=...)``.

    Attributes:
        quick: True: it runs on the event loop.

    Args:
        name: The source of the principal's name: the whole ``subject`` (``CN=billing,O=Shop``) or its first ``common_name``.
        allowed: The names that are admitted; None for every certificate of the authorities that the server trusts.
        roles: The roles by name; a name that is absent has none.
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
        """Returns the principal of a certificate; None without one, or if its name is not admitted."""
        shown = credentials.peer_certificate
        name = None if shown is None else shown.subject if self._name == "subject" else shown.common_name
        if (
            shown is None
            or not name
            or not provable(name)
            or (self._allowed is not None and name not in self._allowed)
        ):
            return None
        claims = {"subject": shown.subject, "alternative_names": shown.alternative_names}
        return Principal(name, self._roles.get(name, ()), claims, shown.expires)


class AnyOf:
    """Admits a client that one of several authenticators admits; the first that recognises the client determines the principal.

    Args:
        authenticators: The authenticators in the order in which they are tried; each must have a true attribute ``quick``.
    """

    quick: Final = True

    def __init__(self, *authenticators: Authenticator) -> None:
        for one in authenticators:
            if not getattr(one, "quick", False):
                raise InvalidOption("authenticators", one, "authenticators whose attribute quick is true")
        self._authenticators = authenticators

    @property
    def revision(self) -> int:
        """Increases when one of them has read new data."""
        return sum(getattr(one, "revision", 0) for one in self._authenticators)

    def refresh(self) -> None:
        """Lets each authenticator check whether its source has changed."""
        for one in self._authenticators:
            look = getattr(one, "refresh", None)
            if look is not None:
                look()

    async def __call__(self, credentials: Credentials) -> Principal | None:
        """Returns the principal of the first authenticator that recognises the client."""
        for one in self._authenticators:
            found = one(credentials)
            principal = await found if inspect.isawaitable(found) else found
            if principal is not None:
                return principal
        return None


def peer_certificate(certificate: Mapping[str, Any] | None, expires: float | None) -> PeerCertificate | None:
    """Converts the result of ``ssl.SSLObject.getpeercert``; None if the client has presented no certificate.

    Args:
        certificate: The result.
        expires: The expiry of the certificate, in Unix seconds.
    """
    if not certificate:
        return None
    parts = certificate.get("subject", ())
    common = next((value for part in parts for name, value in part if name == "commonName"), None)
    names = tuple(f"{kind}:{value}" for kind, value in certificate.get("subjectAltName", ()))
    # RFC 4514 §2.1 writes the last RDN first.
    subject = ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(parts)
    )
    return PeerCertificate(subject, common, names, expires)


def _escaped(value: str) -> str:
    """Escapes a value as RFC 4514 §2.4 requires."""
    text = "".join("\\" + one if one in '\\,+"<>;=' else "\\00" if one == "\0" else one for one in value)
    if text.startswith((" ", "#")):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(value) > 1 else text

"""TLS of a server: certificates that can be replaced while it runs, and client certificates."""

import asyncio
import os
import ssl
from pathlib import Path
from typing import Final

from publishers.errors import InvalidOption
from transports.access.peer_certificates import peer_certificate
from transports.access.principal import PeerCertificate

__all__ = ["ServerCertificate", "shown_by"]

_CERTIFICATE: Final = "a file with a certificate in PEM, and behind it those that lead to its authority"
_KEY: Final = "a file in PEM with the private key of the certificate, without a password"
_AUTHORITY: Final = "a file with certificates of authorities in PEM"


class ServerCertificate:
    """The certificate of a server; see ``serve(..., tls=...)``. Allows TLS 1.2 and 1.3.

    Attributes:
        context: The context to listen with. It switches each new connection to the context that was loaded last.

    Args:
        certificate: A PEM file with the certificate, followed by the intermediate certificates up to its authority.
        key: A PEM file with the private key, without a password; None if the key is in the certificate file.
        client_ca: A PEM file with the authorities of client certificates. If given, every client must present a certificate
            of one of them (mutual TLS) before the server reads any request.

    Raises:
        InvalidOption: If a file cannot be read or holds something else, or if the key does not match the certificate.
    """

    def __init__(
        self,
        certificate: str | os.PathLike[str],
        key: str | os.PathLike[str] | None = None,
        *,
        client_ca: str | os.PathLike[str] | None = None,
    ) -> None:
        self._certificate = Path(certificate)
        self._key = Path(certificate if key is None else key)
        self._client_ca = None if client_ca is None else Path(client_ca)
        self._current = self._read()
        self.context: ssl.SSLContext = self._current
        self.context.sni_callback = self._hand_over

    @property
    def mutual(self) -> bool:
        """Whether clients must present certificates."""
        return self._client_ca is not None

    def reload(self) -> None:
        """Reads the files again, for new connections; if that fails, the previous certificate stays in use.

        Raises:
            InvalidOption: As for the class.
        """
        self._current = self._read()

    def _hand_over(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # No session resumption: a session might have begun under a certificate that has been replaced.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        _check(self._certificate, "tls-cert", _CERTIFICATE)
        _check(self._key, "tls-key", _KEY)
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except _Encrypted:
            raise InvalidOption("tls-key", str(self._key), _KEY) from None
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise InvalidOption("tls-key", str(self._key), _KEY) from None
            right = f"{_CERTIFICATE}, with its key in {self._key} ({error.reason or 'nothing of that kind'})"
            raise InvalidOption("tls-cert", str(self._certificate), right) from None
        if self._client_ca is not None:
            _check(self._client_ca, "tls-client-ca", _AUTHORITY)
            try:
                context.load_verify_locations(self._client_ca)
            except ssl.SSLError:
                raise InvalidOption("tls-client-ca", str(self._client_ca), _AUTHORITY) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class _Encrypted(Exception):
    """The private key has a password."""


def _no_password() -> str:
    raise _Encrypted


def _check(path: Path, parameter: str, right: str) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise InvalidOption(parameter, str(path), f"{right} ({error.strerror})") from None


def shown_by(transport: asyncio.BaseTransport) -> PeerCertificate | None:
    """The verified certificate that the client of a connection presented; None without one."""
    connection = transport.get_extra_info("ssl_object")
    certificate = None if connection is None else connection.getpeercert()
    return peer_certificate(
        certificate, ssl.cert_time_to_seconds(certificate["notAfter"]) if certificate else None
    )

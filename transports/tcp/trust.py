"""The TLS context of a client: trusted authorities and its own certificate."""

import os
import ssl
from typing import Final

from publishers.errors import InvalidOption

__all__ = ["trusting"]

_CA: Final = "a file with certificates of authorities in PEM"
_CERT: Final = (
    "a file with a certificate in PEM, and its private key without a password in it or in that of --cert-key"
)


def trusting(
    ca: str | os.PathLike[str] | None = None,
    certificate: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    *,
    insecure: bool = False,
) -> ssl.SSLContext:
    """Makes the TLS context of a client.

    Args:
        ca: A file with the trusted authorities; None for those of the machine.
        certificate: A file with the client's certificate (mutual TLS); None without one.
        key: A file with its private key; None if the key is in the certificate file.
        insecure: Whether any server is trusted. An attacker may then read and alter the traffic.

    Raises:
        InvalidOption: If a file cannot be read, or holds something else.
    """
    if key is not None and certificate is None:
        raise InvalidOption("--cert-key", str(key), "left out without --cert")
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidOption("--ca", str(ca), f"{_CA} ({_why(error)})") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise InvalidOption("--cert", str(certificate), f"{_CERT} ({_why(error)})") from None
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")


def _why(error: Exception) -> str:
    """Returns the error of a file without its content."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "nothing of that kind"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

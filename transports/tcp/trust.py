"""What a client of TLS trusts, and what it shows."""

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
    """What a client connects with.

    Args:
        ca: A file with the authorities that it trusts; None for those of the machine.
        certificate: The file with the certificate that it shows (mutual TLS), or None.
        key: The file with its private key; None if it is in the same file.
        insecure: Whether any server is trusted, whoever it is: what is sent and read may be somebody else's then.

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
    """What is wrong with a file, without what it holds."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "nothing of that kind"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

"""TLS to targets: authorities, a certificate of the sink's own, and names, in the forms that clients take them."""

import logging
import socket
import ssl
from typing import Any, Final, TypeVar

from publishers.errors import InvalidOption

__all__ = ["TargetTls"]

_LOG: Final = logging.getLogger("penstock.sinks")


class TargetTls:
    """How a target is known over TLS, and how it knows the sink.

    Args:
        ca: File of the authorities (PEM) whose certificates count; None for those of the system.
        cert: File of the certificate (PEM) that the sink shows, for mutual TLS.
        key: File of its private key, if it is not in ``cert``.
        server_name: The name that the certificate of the target must have; None for that of its address.
        insecure_skip_verify: Whether any certificate will do. Whoever is on the way can read and answer then; it is logged.

    Raises:
        InvalidOption: If a file cannot be read, or is none.
    """

    def __init__(
        self,
        *,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        server_name: str | None = None,
        insecure_skip_verify: bool = False,
    ) -> None:
        self.ca, self.cert, self.key = ca, cert, key
        self.server_name = server_name
        self.insecure_skip_verify = insecure_skip_verify
        try:
            self.context = _made(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ca)
            self._named = _made(_NamedContext(ssl.PROTOCOL_TLS_CLIENT), ca)
        except OSError as error:
            raise InvalidOption(
                "ca", ca, f"a file of certificates (PEM): {error.strerror or error}"
            ) from None
        self._named.name = server_name
        if cert is None and key is not None:
            raise InvalidOption("key", key, "left out without cert")
        for context in (self.context, self._named):
            if cert is not None:
                try:
                    context.load_cert_chain(cert, key)
                except OSError as error:
                    raise InvalidOption(
                        "cert", cert, f"a certificate (PEM) with its key: {error.strerror or error}"
                    ) from None
            if insecure_skip_verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE

    @property
    def named_context(self) -> ssl.SSLContext:
        """For clients that know no name but that of the address."""
        return self.context if self.server_name is None else self._named

    def warn(self, sink: str, target: object) -> None:
        """Says that any certificate will do, if it is so."""
        if self.insecure_skip_verify:
            _LOG.warning("sink %s accepts any certificate for %s", sink, target)

    def for_kafka(self, *, login: bool) -> dict[str, Any]:
        """Settings of librdkafka.

        Args:
            login: Whether there is one by SASL.
        """
        told = {
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.cert,
            "ssl.key.location": self.key,
        }
        return {
            "security.protocol": "sasl_ssl" if login else "ssl",
            "enable.ssl.certificate.verification": not self.insecure_skip_verify,
            "ssl.endpoint.identification.algorithm": "none" if self.insecure_skip_verify else "https",
            **{name: value for name, value in told.items() if value is not None},
        }

    def for_redis(self) -> dict[str, Any]:
        """Arguments of connections of redis-py."""
        return {
            "ssl_ca_certs": self.ca,
            "ssl_certfile": self.cert,
            "ssl_keyfile": self.key,
            "ssl_cert_reqs": "none" if self.insecure_skip_verify else "required",
            "ssl_check_hostname": not self.insecure_skip_verify,
        }

    def for_postgresql(self, host: str | None, port: int | None) -> dict[str, Any]:
        """Parameters of libpq.

        Args:
            host: Of the address.
            port: Likewise.

        Raises:
            OSError: If a name is given, and the host has no address.
        """
        told: dict[str, Any] = {"sslcert": self.cert, "sslkey": self.key or self.cert}
        if self.server_name is not None and host is not None:
            told |= {"host": self.server_name, "hostaddr": socket.getaddrinfo(host, port or 5432)[0][4][0]}
        told |= (
            {"sslmode": "require"}
            if self.insecure_skip_verify
            else {"sslmode": "verify-full", "sslrootcert": self.ca or "system"}
        )
        return {name: value for name, value in told.items() if value is not None}


class _NamedContext(ssl.SSLContext):
    """Expects a name of its own in place of that of the address."""

    name: str | None = None

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        """See ``SSLContext.wrap_socket``."""
        return super().wrap_socket(*arguments, **{**named, "server_hostname": self.name})


_Context = TypeVar("_Context", bound=ssl.SSLContext)


def _made(context: _Context, ca: str | None) -> _Context:
    if ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca)
    return context

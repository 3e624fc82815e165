"""TLS to targets: authorities, client certificate and server name, in the forms that the client libraries use."""

import logging
import socket
import ssl
from typing import Any, Final, TypeVar

from publishers.errors import InvalidOption

__all__ = ["TargetTls"]

_LOG: Final = logging.getLogger("penstock.sinks")


class TargetTls:
    """How the sink verifies a target over TLS, and how it authenticates itself.

    Args:
        ca: File of the trusted authorities (PEM); None for those of the system.
        cert: File of the client certificate (PEM), for mutual TLS.
        key: File of its private key, if that is not in ``cert``.
        server_name: The name that the target's certificate must bear; None for the host of its URL.
        insecure_skip_verify: Whether to accept any certificate, so that a man in the middle can read and answer; logged as a warning.

    Raises:
        InvalidOption: If a file is unreadable or malformed.
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
        self.ca: str | None = ca
        self.cert: str | None = cert
        self.key: str | None = key
        self.server_name = server_name
        self.insecure_skip_verify = insecure_skip_verify
        try:
            self.context: ssl.SSLContext = _made(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ca)
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
        """The context for clients that verify only the host of the URL."""
        return self.context if self.server_name is None else self._named

    def warn(self, sink: str, target: object) -> None:
        """Logs a warning if any certificate is accepted."""
        if self.insecure_skip_verify:
            _LOG.warning("sink %s accepts any certificate for %s", sink, target)

    def for_kafka(self, *, login: bool) -> dict[str, Any]:
        """Returns settings of librdkafka.

        Args:
            login: Whether the sink authenticates by SASL.
        """
        options = {
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.cert,
            "ssl.key.location": self.key,
        }
        return {
            "security.protocol": "sasl_ssl" if login else "ssl",
            "enable.ssl.certificate.verification": not self.insecure_skip_verify,
            "ssl.endpoint.identification.algorithm": "none" if self.insecure_skip_verify else "https",
            **{name: value for name, value in options.items() if value is not None},
        }

    def for_redis(self) -> dict[str, Any]:
        """Returns connection arguments of redis-py."""
        return {
            "ssl_ca_certs": self.ca,
            "ssl_certfile": self.cert,
            "ssl_keyfile": self.key,
            "ssl_cert_reqs": "none" if self.insecure_skip_verify else "required",
            "ssl_check_hostname": not self.insecure_skip_verify,
        }

    def for_postgresql(self, host: str | None, port: int | None) -> dict[str, Any]:
        """Returns parameters of libpq.

        Args:
            host: The host of the URL.
            port: The port of the URL.

        Raises:
            OSError: If ``server_name`` is given and the host cannot be resolved.
        """
        options: dict[str, Any] = {"sslcert": self.cert, "sslkey": self.key or self.cert}
        if self.server_name is not None and host is not None:
            options |= {"host": self.server_name, "hostaddr": socket.getaddrinfo(host, port or 5432)[0][4][0]}
        options |= (
            {"sslmode": "require"}
            if self.insecure_skip_verify
            else {"sslmode": "verify-full", "sslrootcert": self.ca or "system"}
        )
        return {name: value for name, value in options.items() if value is not None}


class _NamedContext(ssl.SSLContext):
    """Verifies a configured name instead of the host of the URL."""

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

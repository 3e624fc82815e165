"""The host names that a server accepts.

A foreign web page can let its own domain resolve to 127.0.0.1 and then read, in the browser of its visitor, the server that
listens there: to the browser both are one origin (DNS rebinding). The ``Host`` header of such a request still carries the
foreign name.
"""

import ipaddress
from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import urlsplit

from publishers.errors import InvalidOption
from transports.access.once import Once

__all__ = ["HostNames", "is_loopback"]

_RIGHT: Final = (
    "a host name as browsers are given it, without scheme and port, such as shop.example.org, or * for all"
)
_NO_NAME: Final = frozenset("/?#@ \t\r\n*")


class HostNames:
    """The accepted host names.

    Args:
        allowed: Host names without port, in addition to those of this machine; ``"*"`` or None accepts all.

    Raises:
        InvalidOption: If an item is not a host name, and thus could never match.
    """

    def __init__(self, allowed: Collection[str] | None) -> None:
        if isinstance(allowed, (str, bytes)):
            raise InvalidOption("hosts", allowed, "a list of them, each " + _RIGHT)
        self._allowed = None if allowed is None else frozenset(_checked(name) for name in allowed)
        self._once = Once()

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Returns why a request is refused, which is logged once for each name; None if its host name is accepted."""
        name = self.stranger(headers)
        if name is None:
            return None
        return self._once.warn(
            f"host {name[:100]!r} is not one that this server answers to; name it in hosts to allow it"
        )

    def stranger(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Returns the host name of a request if it is not accepted, else None. A request without one does not come from a browser."""
        if self._allowed is None or "*" in self._allowed:
            return None
        for name, value in headers:
            if name == b"host" and value.strip():
                asked = _name(value.decode("latin-1"))
                if asked not in self._allowed and not is_loopback(asked):
                    return asked
        return None


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback name or address, whichever machine asks."""
    plain = _plain(host)
    if plain == "localhost" or plain.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(plain).is_loopback
    except ValueError:
        return False


def _checked(name: object) -> str:
    if name == "*":
        return "*"
    plain = _plain(name) if isinstance(name, str) else ""
    if not plain or (":" in plain and not _is_address(plain)) or _NO_NAME.intersection(plain):
        raise InvalidOption("host", name, _RIGHT)
    return plain


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _name(header: str) -> str:
    try:
        return _plain(urlsplit(f"//{header.strip()}").hostname or header)
    except ValueError:
        return header


def _plain(name: str) -> str:
    return name.lower().strip("[]").removesuffix(".")

"""Origins of web pages (RFC 6454): which pages may connect from a browser, and read HTTP responses."""

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from publishers.errors import InvalidOption
from transports.access.host_names import is_loopback
from transports.access.once import Once

__all__ = ["WebOrigins", "checked_origins"]

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_RIGHT: Final = "the origin of a web page, such as https://example.org or http://intranet:8080, or * for all"


class WebOrigins:
    """The allowed origins.

    Args:
        allowed: Origins in addition to those of pages that this machine serves; ``"*"`` allows all.

    Raises:
        InvalidOption: If an item is not an origin, and thus could never match.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = checked_origins(allowed)
        self._once = Once()

    def refusal(self, origin: str | None) -> str | None:
        """Returns why a page is refused, which is logged once for each origin; None if it is allowed, or there is no page."""
        if not origin or self.welcomes(origin):
            return None
        return self._once.warn(f"origin {origin[:100]!r} is not allowed; name it in origins to allow it")

    def welcomes(self, origin: str) -> bool:
        """Whether a page is allowed, judged by the ``Origin`` header of its browser."""
        if origin.rstrip("/") in self._allowed or "*" in self._allowed:
            return True
        try:
            return is_loopback(urlsplit(origin).hostname or "")
        except ValueError:
            return False


def checked_origins(origins: Collection[str]) -> frozenset[str]:
    """Normalises origins to the form that browsers send: scheme, host, and port if needed, without a trailing slash.

    The default port of a scheme is dropped, as browsers do (RFC 6454 §6.2).

    Raises:
        InvalidOption: If an item is not an origin, and thus could never match.
    """
    if isinstance(origins, (str, bytes)) or not isinstance(origins, Collection):
        raise InvalidOption("origins", origins, "a list of them, each " + _RIGHT)
    return frozenset(_checked(origin) for origin in origins)


def _checked(origin: object) -> str:
    if origin in ("*", "null"):
        return str(origin)
    try:
        parts = urlsplit(origin.rstrip("/") if isinstance(origin, str) else "")
        whole = bool(parts.scheme and parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise InvalidOption("origin", origin, _RIGHT) from None
    if not whole or parts.path or parts.query or parts.fragment or parts.username is not None:
        raise InvalidOption("origin", origin, _RIGHT)
    host = parts.netloc.lower()
    if not host.isascii() or any(character.isspace() for character in host):
        raise InvalidOption("origin", origin, _RIGHT)
    if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)):
        before, bracket, after = host.rpartition("]")  # colons before the bracket belong to an IPv6 address
        host = before + bracket + after.partition(":")[0]
    return f"{parts.scheme}://{host}"

"""Files for browsers, with their headers.

Only the files named here, and those that an application supplies, are served. A path is looked up as a whole: it is never
joined to a directory.
"""

import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, Self

from publishers.errors import InvalidOption

__all__ = ["Page", "find_own"]

_KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "ts": "text/plain; charset=utf-8",
    "svg": "image/svg+xml",
}
_OWN: Final = {
    "/": "index.html",
    "/board/penstock.js": "penstock.js",
    "/board/penstock.d.ts": "penstock.d.ts",
    "/favicon.ico": "icon.svg",  # browsers request it for any page
}

# Allows only the server's own files and its own WebSocket; no inline script or style, and no embedding in a frame.
_POLICY: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
)
_ALWAYS: Final = (
    (b"content-security-policy", "; ".join(_POLICY).encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    # Cached, but revalidated with each load, so that a new release takes effect at once.
    (b"cache-control", b"no-cache"),
)


@dataclass(frozen=True)
class Page:
    """One file, served from memory.

    Its content security policy allows scripts, styles, images and connections of the same server only, and nothing inline.

    Attributes:
        data: Its bytes.
        kind: Its media type, such as ``text/html; charset=utf-8``.
    """

    data: bytes
    kind: str

    @classmethod
    def read(cls, file: Traversable) -> Self:
        """Reads a file, which is a path or a package resource.

        Raises:
            InvalidOption: If its name does not end in html, css, js, ts or svg.
            OSError: If it cannot be read.
        """
        kind = _KINDS.get(file.name.rpartition(".")[2])
        if kind is None:
            raise InvalidOption("page", file.name, f"a name that ends in {', '.join(_KINDS)}")
        return cls(file.read_bytes(), kind)

    @classmethod
    def of_client(cls) -> Self:
        """Returns ``penstock.js``, the client for browsers, for a web server of your own: its ``data`` is the module."""
        return cls.read(resources.files("transports.browser").joinpath("penstock.js"))

    @cached_property
    def etag(self) -> str:
        """The entity tag, a strong one (RFC 9110 §8.8.3)."""
        return f'"{hashlib.sha256(self.data).hexdigest()[:32]}"'

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of a response, without those of the body."""
        return [*_ALWAYS, (b"etag", self.etag.encode())]

    def matches(self, if_none_match: str) -> bool:
        """Whether a client has the current version, by its ``If-None-Match`` (RFC 9110 §13.1.2)."""
        tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
        return "*" in tags or self.etag in tags


def find_own(path: str) -> Page | None:
    """Returns the built-in file at the path of a URL, or None; each is read once."""
    return _read(_OWN[path]) if path in _OWN else None


@cache
def _read(name: str) -> Page:
    return Page.read(resources.files("transports.browser").joinpath(name))

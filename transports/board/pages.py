"""The files of the board, with the headers they are served with.

Only the files named here are served, and a path is looked up as a whole: it is never joined to a directory.
"""

import hashlib
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

__all__ = ["Page", "find_page"]

_HTML: Final = "text/html; charset=utf-8"
_CSS: Final = "text/css; charset=utf-8"
_PICTURE: Final = "image/svg+xml"
_SCRIPT: Final = "text/javascript; charset=utf-8"
_FILES: Final = {
    "/": ("index.html", _HTML),
    "/board/help.html": ("help.html", _HTML),
    "/board/board.css": ("board.css", _CSS),
    "/board/icon.svg": ("icon.svg", _PICTURE),
    "/favicon.ico": ("icon.svg", _PICTURE),  # browsers ask for it beside any other answer
} | {
    f"/board/{name}.js": (f"{name}.js", _SCRIPT)
    for name in (
        "board",
        "clock",
        "controls",
        "drawing",
        "flaps",
        "flights",
        "names",
        "penstock",
        "rows",
        "statistics",
    )
}

# Nothing but this server's own files, and its own WebSocket; no inline script, no inline style, no frame around it.
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
    # Kept by the browser, but asked for each time: another release is there with the next load.
    (b"cache-control", b"no-cache"),
)


class Page(NamedTuple):
    """One file.

    Attributes:
        data: Its bytes.
        kind: Its media type.
        etag: Its entity tag, strong (RFC 9110 8.8.3).
    """

    data: bytes
    kind: str
    etag: str

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of an answer, but for those of the body."""
        return [*_ALWAYS, (b"etag", self.etag.encode())]

    def matches(self, if_none_match: str) -> bool:
        """Whether a client has it already, going by the ``If-None-Match`` that it sent (RFC 9110 13.1.2)."""
        tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
        return "*" in tags or self.etag in tags


def find_page(path: str) -> Page | None:
    """The file at the path of a URL, or None; read once."""
    return _read(path) if path in _FILES else None


@cache
def _read(path: str) -> Page:
    name, kind = _FILES[path]
    data = resources.files("transports.board").joinpath(name).read_bytes()
    return Page(data, kind, f'"{hashlib.sha256(data).hexdigest()[:32]}"')

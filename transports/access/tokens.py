"""Tokens of clients, from a file that an operator keeps."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from publishers.errors import InvalidOption

__all__ = ["Authenticator", "TokenFile", "token_given"]

_MOST: Final = 1 << 20
_ENVIRONMENT: Final = "PENSTOCK_TOKEN"
_ONE: Final = "a file with one line, name:token or the token (as :to:ken if it holds a colon)"
_LINE: Final = "lines such as alice:her-token; empty ones and those that begin with # are skipped"

Authenticator = Callable[[str | None], bool]
"""Judges the token of a connection, which may be missing."""


class TokenFile:
    """Judges tokens by a file with a line ``name:token`` for each client; see ``serve(..., authenticate=...)``.

    The names are for who keeps the file. A token may hold colons.

    Args:
        path: The file.

    Raises:
        InvalidOption: If it cannot be read, is above 1 MiB, or a line is none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        # Digests, so that how long a look-up takes tells nothing of a token.
        self._digests: frozenset[bytes] = frozenset()
        self.reload()

    def __len__(self) -> int:
        return len(self._digests)

    def __call__(self, token: str | None) -> bool:
        """Whether a client with this token is let in."""
        return token is not None and _digest(token) in self._digests

    def reload(self) -> None:
        """Reads the file again; if that fails, what was read before stays.

        Raises:
            InvalidOption: See above.
        """
        self._digests = frozenset(map(_digest, _named_tokens(self._path)))


def token_given(token: str | None, path: str | None) -> str | None:
    """The token that a command sends: ``--token``, else that of ``--token-file``, else the environment's ``PENSTOCK_TOKEN``.

    The first and the last are sent as they are. The file holds one line: ``name:token``, as in the file of a server, or the
    bare token. A bare token with a colon needs one more in front of it, as a line without a name: ``:to:ken``.

    Raises:
        InvalidOption: If the file cannot be read, or holds no token or several.
    """
    if token is not None:
        return token
    if path is None:
        return os.environ.get(_ENVIRONMENT) or None
    lines = _lines(Path(path))
    if len(lines) != 1:
        raise InvalidOption("--token-file", path, f"{_ONE}, and not {len(lines)} lines")
    name, colon, rest = lines[0].partition(":")
    found = rest.strip() if colon else name
    if not found:
        raise InvalidOption("--token-file", path, _ONE)
    return found


def _named_tokens(path: Path) -> list[str]:
    found = []
    for line in _lines(path):
        name, _, token = line.partition(":")
        if not name.strip() or not token.strip():
            # Not the line itself: it may be a token.
            raise InvalidOption("--token-file", str(path), _LINE)
        found.append(token.strip())
    if not found:
        raise InvalidOption("--token-file", str(path), _LINE)
    return found


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST + 1)
        if len(text) > _MOST:
            raise InvalidOption("--token-file", str(path), f"a file of at most {_MOST} bytes")
        lines = [line.strip() for line in text.decode().splitlines()]
    except OSError as error:
        raise InvalidOption(
            "--token-file", str(path), f"a file that can be read ({error.strerror})"
        ) from None
    except UnicodeDecodeError:
        raise InvalidOption("--token-file", str(path), "a file in UTF-8") from None
    return [line for line in lines if line and not line.startswith("#")]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()

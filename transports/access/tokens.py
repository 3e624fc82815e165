"""Client tokens from a file of the operator."""

import hashlib
import os
from pathlib import Path
from typing import Final

from publishers.errors import InvalidOption
from transports.access.principal import Credentials, Principal, provable

__all__ = ["TokenFile", "token_given"]

_MOST: Final = 1 << 20
_ENVIRONMENT: Final = "PENSTOCK_TOKEN"
_ONE: Final = "a file with one line, name:token or the token (as :to:ken if it holds a colon)"
_LINE: Final = "lines such as alice:her-token; empty ones and those that begin with # are skipped"


class TokenFile:
    """Authenticates clients by tokens from a file with one line ``name:token`` each; see ``serve(..., authenticate=...)``.

    The names are those of the principals, so several lines with one name are several tokens of one principal. A token may
    contain colons.

    Attributes:
        quick: True: it runs on the event loop, because it reads the file only when constructed and in ``reload``.
        revision: Counts how often new tokens were read; connections are then authenticated again.

    Args:
        path: The file.

    Raises:
        InvalidOption: If the file cannot be read or exceeds 1 MiB, a line is malformed, or two names have the same token.
    """

    quick: Final = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        # Keyed by digests, so that the time of a look-up reveals nothing about a token.
        self._principals: dict[bytes, Principal] = {}
        self.revision: int = 0
        self.reload()

    def __len__(self) -> int:
        return len(self._principals)

    def __call__(self, credentials: Credentials) -> Principal | None:
        """Returns the principal of a token; None if it is unknown."""
        return None if credentials.token is None else self._principals.get(_digest(credentials.token))

    def reload(self) -> None:
        """Reads the file again; if that fails, the previous tokens stay in use.

        Raises:
            InvalidOption: As for the class.
        """
        found: dict[bytes, Principal] = {}
        for name, token in _named_tokens(self._path):
            if found.setdefault(_digest(token), Principal(name)).name != name:
                raise InvalidOption(
                    "--token-file", str(self._path), "a file in which no two names have one token"
                )
        if found != self._principals:
            self._principals = found
            self.revision += 1


def token_given(token: str | None, path: str | None) -> str | None:
    """Returns the token of a command: ``--token``, else from ``--token-file``, else from ``PENSTOCK_TOKEN`` in the environment.

    The first and the last are used verbatim. The file holds one line: ``name:token``, as in the file of a server, or the
    bare token. A bare token that contains a colon needs another colon in front, like a line with an empty name: ``:to:ken``.

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


def _named_tokens(path: Path) -> list[tuple[str, str]]:
    found = []
    for line in _lines(path):
        name, _, token = line.partition(":")
        if not name.strip() or not token.strip():
            # The error omits the line, because it may be a token.
            raise InvalidOption("--token-file", str(path), _LINE)
        if not provable(name.strip()):
            right = f"a file without the name {name.strip()}, which clients without credentials have"
            raise InvalidOption("--token-file", str(path), right)
        found.append((name.strip(), token.strip()))
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

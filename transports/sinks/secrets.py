"""References to secrets: where a secret is stored may be shown and logged; the secret never is."""

import os
from pathlib import Path
from typing import Final

from publishers.errors import InvalidOption
from publishers.model.errors import HIDDEN
from transports.sinks.errors import TargetRefused

__all__ = ["SecretReference"]

_KINDS: Final = ("env", "file")


class SecretReference:
    """A reference to a secret: ``env:NAME`` or ``file:PATH``; or a value that is not secret, ``plain:VALUE``.

    The secret is read at each use, so a replaced file takes effect at once.

    Args:
        text: The reference.

    Raises:
        InvalidOption: If it is malformed; the error omits the text, which may be the secret itself.
    """

    __slots__ = ("_kind", "_what")

    def __init__(self, text: str) -> None:
        kind, colon, what = text.partition(":") if isinstance(text, str) else ("", "", "")
        if kind not in (*_KINDS, "plain") or not colon or (kind in _KINDS and not what):
            raise InvalidOption("secret", HIDDEN, "a reference: env:NAME or file:PATH")
        self._kind, self._what = kind, what

    def value(self) -> str:
        """Returns the secret, without surrounding white space.

        Raises:
            TargetRefused: If it is missing or empty.
        """
        if self._kind == "plain":
            return self._what
        if self._kind == "env":
            found = os.environ.get(self._what, "")
        else:
            try:
                found = Path(self._what).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is not UTF-8"
                raise TargetRefused(f"the secret {self} cannot be read: {why}") from None
        if not found.strip():
            raise TargetRefused(f"the secret {self} is not set, or empty")
        return found.strip()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretReference) and (self._kind, self._what) == (other._kind, other._what)

    def __hash__(self) -> int:
        return hash((self._kind, self._what))

    def __str__(self) -> str:
        return "plain:..." if self._kind == "plain" else f"{self._kind}:{self._what}"

    def __repr__(self) -> str:
        return f"<SecretReference {self}>"

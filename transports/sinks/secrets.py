"""Secrets by reference: where one is kept is told and logged, what it is never is."""

import os
from pathlib import Path
from typing import Final

from publishers.errors import InvalidOption
from transports.sinks.errors import TargetRefused

__all__ = ["SecretReference"]

_KINDS: Final = ("env", "file")


class SecretReference:
    """Where a secret is kept: ``env:NAME``, ``file:PATH``; or a value that is none, ``plain:VALUE``.

    It is read each time that it is used, so a file that is replaced counts at once.

    Args:
        text: The reference.

    Raises:
        InvalidOption: If it is none; the text is not told, as it may be the secret itself.
    """

    __slots__ = ("_kind", "_what")

    def __init__(self, text: str) -> None:
        kind, colon, what = text.partition(":") if isinstance(text, str) else ("", "", "")
        if kind not in (*_KINDS, "plain") or not colon or (kind in _KINDS and not what):
            raise InvalidOption("secret", "what is there", "a reference: env:NAME or file:PATH")
        self._kind, self._what = kind, what

    def value(self) -> str:
        """The secret, without white space around it.

        Raises:
            TargetRefused: If it is not there, or empty.
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
            raise TargetRefused(f"the secret {self} is not there, or empty")
        return found.strip()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretReference) and (self._kind, self._what) == (other._kind, other._what)

    def __hash__(self) -> int:
        return hash((self._kind, self._what))

    def __str__(self) -> str:
        return "plain:..." if self._kind == "plain" else f"{self._kind}:{self._what}"

    def __repr__(self) -> str:
        return f"<SecretReference {self}>"

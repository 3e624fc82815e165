"""The arguments of a command, taken one after the other."""

from collections.abc import Callable
from typing import Final

from transports.resp.replies import RespError

__all__ = ["CommandArguments"]

_SYNTAX: Final = "ERR"


class CommandArguments:
    """What stands behind the name of a command.

    Args:
        command: Its name, for errors.
        rest: The arguments.
    """

    def __init__(self, command: str, rest: list[bytes]) -> None:
        self.command = command
        self._rest = rest
        self._at = 0

    @property
    def left(self) -> int:
        """How many were not taken."""
        return len(self._rest) - self._at

    def raw(self, name: str) -> bytes:
        """The next one.

        Raises:
            RespError: If there is none.
        """
        if not self.left:
            raise RespError(
                _SYNTAX, f"wrong number of arguments for '{self.command}' command: {name} is missing"
            )
        self._at += 1
        return self._rest[self._at - 1]

    def text(self, name: str) -> str:
        """The next one as text.

        Raises:
            RespError: If there is none, or it is not UTF-8.
        """
        given = self.raw(name)
        try:
            return given.decode()
        except UnicodeDecodeError:
            raise RespError(_SYNTAX, f"{name} is {given[:40]!a}, but must be text in UTF-8") from None

    def whole(self, name: str, low: int, high: int) -> int:
        """The next one as a whole number.

        Raises:
            RespError: If it is none, or out of its range.
        """
        given = self.raw(name)
        if not given.isdigit() or len(given) > 19 or not low <= int(given) <= high:
            raise RespError(
                _SYNTAX, f"{name} is {given[:40]!a}, but must be a whole number from {low} to {high}"
            )
        return int(given)

    def next_word(self) -> str | None:
        """The next one in capital letters, if it is there and no whole number."""
        if not self.left or self._rest[self._at].isdigit():
            return None
        return self.raw("option").upper().decode("ascii", "replace")

    def options(self, known: dict[str, Callable[[], None]]) -> None:
        """The rest: words with what belongs to them, in any order, each once.

        Args:
            known: Of each word, in capital letters, what takes the arguments behind it.

        Raises:
            RespError: If a word is unknown, or given twice.
        """
        open_ = dict(known)
        while self.left:
            word = self.raw("option")
            name = word.upper().decode("ascii", "replace")
            take = open_.pop(name, None)
            if take is None:
                right = f"given once, as one of {', '.join(known)}" if known else "left out"
                raise RespError(_SYNTAX, f"syntax error: {word[:40]!a} must be {right}")
            take()

    def done(self) -> None:
        """Nothing more may come.

        Raises:
            RespError: If something does.
        """
        self.options({})

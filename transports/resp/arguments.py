"""The arguments of a command, consumed one by one."""

from collections.abc import Callable
from typing import Final

from transports.resp.replies import RespError, shown

__all__ = ["CommandArguments"]

_SYNTAX: Final = "ERR"


class CommandArguments:
    """The arguments behind the name of a command.

    Args:
        command: The name of the command, for errors.
        rest: The arguments.
    """

    def __init__(self, command: str, rest: list[bytes]) -> None:
        self.command = command
        self._rest = rest
        self._at = 0

    @property
    def left(self) -> int:
        """The number of arguments that are not consumed."""
        return len(self._rest) - self._at

    def raw(self, name: str) -> bytes:
        """Consumes the next argument.

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
        """Consumes the next argument as text.

        Raises:
            RespError: If there is none, or it is not UTF-8.
        """
        given = self.raw(name)
        try:
            return given.decode()
        except UnicodeDecodeError:
            raise RespError(_SYNTAX, f"{name} is {shown(given)}, but must be text in UTF-8") from None

    def whole(self, name: str, low: int, high: int) -> int:
        """Consumes the next argument as a whole number.

        Raises:
            RespError: If there is none, or it is not a whole number within the bounds.
        """
        given = self.raw(name)
        if not given.isdigit() or len(given) > 19 or not low <= int(given) <= high:
            raise RespError(
                _SYNTAX, f"{name} is {shown(given)}, but must be a whole number from {low} to {high}"
            )
        return int(given)

    def next_word(self) -> str | None:
        """Consumes the next argument in upper case; None if there is none or it is a whole number."""
        if not self.left or self._rest[self._at].isdigit():
            return None
        return self.raw("option").upper().decode("ascii", "replace")

    def options(self, known: dict[str, Callable[[], None]]) -> None:
        """Consumes the rest: option words with their arguments, in any order, each at most once.

        Args:
            known: For each word, in upper case, the function that consumes its arguments.

        Raises:
            RespError: If a word is unknown or repeated.
        """
        open_ = dict(known)
        while self.left:
            word = self.raw("option")
            name = word.upper().decode("ascii", "replace")
            take = open_.pop(name, None)
            if take is None:
                right = f"given once, as one of {', '.join(known)}" if known else "left out"
                raise RespError(_SYNTAX, f"syntax error: {shown(word)} must be {right}")
            take()

    def done(self) -> None:
        """Checks that no argument is left.

        Raises:
            RespError: If one is left.
        """
        self.options({})

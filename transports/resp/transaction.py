"""The commands of a client between ``MULTI`` and ``EXEC``."""

from collections import deque
from typing import Final

from transports.resp.replies import RespError

__all__ = ["RespTransaction"]

_EACH: Final = 16  # bytes that an argument costs beside its own, as in the parser


class RespTransaction:
    """The commands of one client behind ``MULTI``.

    Args:
        most: The most bytes of all their arguments, plus 16 for each.
        arguments: The most arguments, including names.

    Attributes:
        executing: Whether ``EXEC`` has come.
        refused: Whether there was an error before ``EXEC``, so that no command is executed.
        held: The bytes of the commands that are not executed yet.
    """

    def __init__(self, most: int, arguments: int) -> None:
        self.executing = False
        self.refused: bool = False
        self.held: int = 0
        self._most = most
        self._arguments = arguments
        self._count = 0
        self._commands: deque[list[bytes]] = deque()

    def __len__(self) -> int:
        return len(self._commands)

    def add(self, words: list[bytes]) -> None:
        """Keeps a command.

        Raises:
            RespError: If the commands are too large together, or have too many arguments.
        """
        self.held += _weight(words)
        self._count += len(words)
        if self.held > self._most or self._count > self._arguments:
            raise RespError(
                "ERR",
                f"the commands of a transaction may have {self._most} bytes and {self._arguments} arguments together",
            )
        self._commands.append(words)

    def refuse(self) -> None:
        """Drops the commands because of an error, unless they are being executed."""
        if not self.executing:
            self.refused, self.held, self._count = True, 0, 0
            self._commands.clear()

    def next(self) -> list[bytes] | None:
        """Takes the next command to execute; None if there is no other."""
        if not self._commands:
            return None
        words = self._commands.popleft()
        self.held -= _weight(words)
        return words


def _weight(words: list[bytes]) -> int:
    return sum(map(len, words)) + _EACH * len(words)

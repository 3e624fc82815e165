"""What the compacted state needs of its log."""

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from publishers.model.position import Position
from publishers.wal import Hold, Reader

__all__ = ["StatedLog"]


class StatedLog(Protocol):
    """The log, as its state uses it.

    Attributes:
        name: What it is called.
        log_id: The id of the log.
        reader: Reads what is visible.
    """

    name: str
    log_id: UUID
    reader: Reader

    def token(self, position: Position) -> str:
        """The text of a position with the history that it belongs to."""
        ...

    def judge(self, token: str) -> Position:
        """The position of such a text; raises a ``PositionError`` if it is not good any more."""
        ...

    def vouch(self, version: int) -> None:
        """Makes HEAD cover a version whose place is about to be stored."""
        ...

    def hold(self, name: str, position: Position, *, sync: Callable[[], None]) -> Hold:
        """Keeps history from a position on; ``sync`` is called before anything is deleted."""
        ...

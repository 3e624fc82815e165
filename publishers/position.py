"""A place in a change log, and its text on the wire."""

from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from publishers.errors import InvalidOption, PositionMalformed

__all__ = ["Position", "PositionToken", "Start", "check_position"]


class Position(NamedTuple):
    """The **next** change to read, never the last one read.

    Every change of a log has a position of its own. Positions compare as they lie in the log.

    Attributes:
        version: Version of the transaction, from 1.
        index: Place inside the transaction; 0 is the leading TRANSACTION event.
    """

    version: int
    index: int = 0  # type: ignore[assignment]  # a field; nobody looks for items in this tuple

    def __str__(self) -> str:
        return f"{self.version}:{self.index}"


def check_position(parameter: str, position: object) -> None:
    """Checks what only a position will do for.

    Raises:
        InvalidOption: If it is none.
    """
    if not isinstance(position, Position):
        raise InvalidOption(
            parameter, position, "a Position, such as log.position_of and log.position_at give"
        )
    for name, value, most in (("version", position.version, 2**63), ("index", position.index, 2**32)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < most:
            raise InvalidOption(f"{parameter}.{name}", value, f"a whole number from 0 to {most - 1}")


class Start(StrEnum):
    """Places that move: what they name is found out when somebody subscribes."""

    EARLIEST = "earliest"
    """The oldest position that is kept."""
    LATEST = "latest"
    """The version after the newest visible one."""


class PositionToken(NamedTuple):
    """A position together with the history it belongs to: what clients store and give back.

    Its text ``log_id:epoch:version:index`` is opaque to clients; only a log can tell whether it is still good.
    """

    log_id: UUID
    epoch: int
    position: Position

    def __str__(self) -> str:
        return f"{self.log_id.hex}:{self.epoch}:{self.position.version}:{self.position.index}"

    @classmethod
    def parse(cls, text: object) -> "PositionToken":
        """Reads the text of a position.

        Raises:
            PositionMalformed: If it is not one.
        """
        if not isinstance(text, str) or len(text) > 120 or not text.isascii():
            raise PositionMalformed(text)
        parts = text.split(":")
        if len(parts) != 4 or len(parts[0]) != 32 or not all(part.isdigit() for part in parts[1:]):
            raise PositionMalformed(text)
        try:
            log_id = UUID(hex=parts[0])
        except ValueError:
            raise PositionMalformed(text) from None
        epoch, version, index = (int(part) for part in parts[1:])
        if not (1 <= epoch < 2**63 and version < 2**63 and index < 2**32):
            raise PositionMalformed(text)
        return cls(log_id, epoch, Position(version, index))

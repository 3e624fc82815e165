"""A position in a change log, and its text on the wire."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from publishers.model.errors import InvalidOption, PositionMalformed

__all__ = ["LogIdentity", "Position", "PositionToken", "Start", "check_position", "epoch_text"]


class Position(NamedTuple):
    """The **next** change to read, never the last one read.

    Every change of a log has a unique position. Positions compare in the order of the log.

    Attributes:
        version: Version of the transaction, from 1.
        index: Place inside the transaction; 0 is the leading TRANSACTION event.
    """

    version: int
    index: int = 0  # type: ignore[assignment]  # a field; it hides tuple.index, which has no use here

    def __str__(self) -> str:
        return f"{self.version}:{self.index}"


def check_position(parameter: str, position: object) -> None:
    """Checks that an argument is a position.

    Raises:
        InvalidOption: If it is not.
    """
    if not isinstance(position, Position):
        raise InvalidOption(
            parameter, position, "a Position, such as log.position_of and log.position_at give"
        )
    for name, value, most in (("version", position.version, 2**63), ("index", position.index, 2**32)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < most:
            raise InvalidOption(f"{parameter}.{name}", value, f"a whole number from 0 to {most - 1}")


class Start(StrEnum):
    """Names of positions that move; they are resolved at each subscribe."""

    EARLIEST = "earliest"
    """The oldest position that is kept."""
    LATEST = "latest"
    """The version after the newest visible one."""


@lru_cache(maxsize=256)
def epoch_text(epoch: int, random: int) -> str:
    """Returns a text that identifies an epoch among all copies of a log.

    Args:
        epoch: Its number.
        random: Its 64 random bits; 0 for an epoch of format 1, which has none.

    Returns:
        ``epoch.random``, the random part as 11 characters of base64url without padding (RFC 4648, section 5).
    """
    if not random:
        return str(epoch)
    return f"{epoch}.{urlsafe_b64encode(random.to_bytes(8, 'little'))[:11].decode()}"


@lru_cache(maxsize=256)
def _epoch_of(text: str) -> tuple[int, int]:
    """Parses the text of an epoch into its number and random bits.

    Raises:
        ValueError: If it is not the text of an epoch.
    """
    number, dot, random_text = text.partition(".")
    random = int.from_bytes(urlsafe_b64decode(random_text + "=")[:8], "little") if dot else 0
    epoch = int(number)
    # No padding, no unused bits, no leading zeros: an epoch has exactly one text.
    if not 1 <= epoch < 2**63 or epoch_text(epoch, random) != text:
        raise ValueError
    return epoch, random


class LogIdentity(NamedTuple):
    """Identifies a log and its history.

    Attributes:
        log_id: Id of the log.
        epoch: Its newest epoch, as the text of `epoch_text`.
    """

    log_id: UUID
    epoch: str

    def __str__(self) -> str:
        return f"log {self.log_id} in epoch {self.epoch}"


class PositionToken(NamedTuple):
    """A position together with the history it belongs to: clients store it and send it back.

    Its text ``log_id:epoch.random:version:index`` is opaque to clients; only a log can decide whether it is still valid.

    Attributes:
        log_id: Id of the log.
        epoch: Number of the epoch that wrote the change before the position.
        position: The position.
        random: The random bits of that epoch; 0 for an epoch of format 1, whose text has no dot.
    """

    log_id: UUID
    epoch: int
    position: Position
    random: int = 0

    def __str__(self) -> str:
        version, index = self.position
        return f"{self.log_id.hex}:{epoch_text(self.epoch, self.random)}:{version}:{index}"

    @classmethod
    def parse(cls, text: object) -> "PositionToken":
        """Parses the text of a position.

        Raises:
            PositionMalformed: If it is not such a text.
        """
        if not isinstance(text, str) or len(text) > 120 or not text.isascii():
            raise PositionMalformed(text)
        parts = text.split(":")
        if len(parts) != 4 or len(parts[0]) != 32 or not all(part.isdigit() for part in parts[2:]):
            raise PositionMalformed(text)
        try:
            log_id = UUID(hex=parts[0])
            epoch, random = _epoch_of(parts[1])
        except ValueError:
            raise PositionMalformed(text) from None
        version, index = (int(part) for part in parts[2:])
        if not (version < 2**63 and index < 2**32):
            raise PositionMalformed(text)
        return cls(log_id, epoch, Position(version, index), random)

"""A place inside a snapshot, and its text."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NoBase64
from typing import Final, NamedTuple

from publishers.errors import PositionMalformed
from publishers.model.position import PositionToken
from publishers.state.rows import RowPlace

__all__ = ["SnapshotCursor"]

_PREFIX: Final = "n1"
_LONGEST: Final = 64 * 1024
_DIGITS: Final = frozenset("0123456789abcdef")  # nothing else, as it is sent back within JSON as it came


class SnapshotCursor(NamedTuple):
    """Where a subscriber is in a snapshot: it has all rows up to one of them, as of a position, and all changes before that.

    Its text is what a subscriber keeps until the snapshot has ended; ``changes(since=text)`` goes on with what is missing.

    Attributes:
        snapshot: The id of the snapshot: 16 hexadecimal digits.
        last: The last row that was given; None if there was none.
        token: The next change to give, with the history that it belongs to.
    """

    snapshot: str
    last: RowPlace | None
    token: PositionToken

    def __str__(self) -> str:
        last = "" if self.last is None else f"{_text(self.last.entity_type.encode())}.{_text(self.last.key)}"
        return f"{_PREFIX}:{self.snapshot}:{last}:{self.token}"

    @staticmethod
    def is_text(text: object) -> bool:
        """Whether a text is meant as that of a place in a snapshot."""
        return isinstance(text, str) and text.startswith(f"{_PREFIX}:")

    @classmethod
    def parse(cls, text: object) -> "SnapshotCursor":
        """Reads the text of a place.

        Raises:
            PositionMalformed: If it is not one.
        """
        if not isinstance(text, str) or len(text) > _LONGEST or not text.isascii():
            raise PositionMalformed(text)
        parts = text.split(":", 3)
        if len(parts) != 4 or parts[0] != _PREFIX or len(parts[1]) != 16 or not _DIGITS.issuperset(parts[1]):
            raise PositionMalformed(text)
        try:
            last = _row(parts[2]) if parts[2] else None
        except ValueError:
            raise PositionMalformed(text) from None
        return cls(parts[1], last, PositionToken.parse(parts[3]))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except NoBase64 as error:
        raise ValueError(text) from error
    if _text(data) != text:  # a place has one text
        raise ValueError(text)
    return data


def _row(text: str) -> RowPlace:
    entity_type, dot, key = text.partition(".")
    if not dot:
        raise ValueError(text)
    return RowPlace(_bytes(entity_type).decode(), _bytes(key))

"""A change: one immutable event of a log, with a position of its own."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from zlib import crc32

import msgspec

from publishers.model.errors import InvalidOption
from publishers.model.fields import Action, Area, ChangeFields, Operation
from publishers.model.flaws import flaw_of
from publishers.model.position import Position

__all__ = ["ROW_ID", "Action", "Area", "Change", "Operation", "flaw_in", "row_id", "time_of"]

ROW_ID: Final = "r1:"
"""Prefix of the ids of snapshot rows. The number is the version of their format."""


_BODILESS: Final = frozenset({Operation.REMOVE, Operation.EXPIRE, Operation.TRUNCATE})
_DIGITS: Final = 4300
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(microseconds: int) -> datetime:
    """Returns the moment ``microseconds`` after the Unix epoch, in UTC and without rounding."""
    return _EPOCH + timedelta(0, *divmod(microseconds, 1_000_000))


def parsed(data: bytes) -> Any:
    """Parses JSON; whole numbers above 4,300 digits, which Python's ``int`` refuses to parse, become a ``Decimal``."""
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError:
        return json.loads(
            data, parse_int=lambda digits: Decimal(digits) if len(digits) > _DIGITS else int(digits)
        )


def flaw_in(body: bytes | None, before: bytes | None) -> str | None:
    """Returns why images cannot be rendered; None if they can."""
    for name, image in (("body", body), ("before", before)):
        if image is not None and (flaw := flaw_of(image)) is not None:
            return f"{name}: {flaw}"
    return None


class Change(ChangeFields, frozen=True, gc=False, eq=False):
    """One event of a change log; its attributes are those of ``ChangeFields``.

    Attributes that do not apply are None. ``body``, ``before`` and ``meta`` are JSON; they are kept as stored bytes and parsed
    each time the property is read, so keep the value if you need it twice. Images are included with ``Content.BODY`` only;
    the ``repr`` of a change that has a body but does not include it says so.
    """

    @property
    def body(self) -> Any:
        """The entity after the change, parsed; None if there is none, or if the view does not include it: see ``repr``."""
        return None if self.body_bytes is None else parsed(self.body_bytes)

    @property
    def before(self) -> Any:
        """The entity before the change, parsed."""
        return None if self.before_bytes is None else parsed(self.before_bytes)

    @property
    def meta(self) -> Any:
        """The JSON that the application attached, parsed."""
        return None if self.meta_bytes is None else parsed(self.meta_bytes)

    @property
    def error(self) -> str | None:
        """Which part of the change cannot be rendered, and why; None if all can. The other attributes are valid."""
        if self.error_text is not None:
            return self.error_text
        return flaw_in(self.body_bytes, self.before_bytes)

    def partition(self, partitions: int) -> int:
        """Returns a number from 0 to below ``partitions``, the same for all changes of a key.

        It is the CRC-32 of the key's bytes modulo ``partitions``, so any program can compute it; 0 without a key.

        Raises:
            InvalidOption: If ``partitions`` is not at least 1.
        """
        if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
            raise InvalidOption("partitions", partitions, "a whole number from 1")
        return 0 if self.key is None else crc32(self.key.encode("utf-8", "surrogateescape")) % partitions

    @property
    def position(self) -> Position:
        """The position of this change."""
        return Position(self.version, self.index)

    @property
    def after(self) -> Position:
        """The position after this change: subscribe there to continue behind it."""
        return (
            Position(self.version + 1, 0)
            if self.index + 1 == self.count
            else Position(self.version, self.index + 1)
        )

    def _identity(self) -> tuple[object, ...]:
        # Only the fields of Change, without those of a subclass: a change is equal over every transport.
        return tuple(getattr(self, name) for name in Change.__struct_fields__ if name != "timestamp")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Change):
            return NotImplemented
        return self._identity() == other._identity()

    def __ne__(self, other: object) -> bool:
        return object.__ne__(
            self, other
        )  # calls __eq__; that of msgspec.Struct would compare identities, as eq=False

    def __hash__(self) -> int:
        return hash((self.version, self.index, self.key))

    def __repr__(self) -> str:
        what = f"{self.operation.name} {self.entity_type}" if self.entity_type else self.operation.name
        # Any log and terminal can write it, also if the key is not UTF-8.
        key = f" {self.key.encode('utf-8', 'backslashreplace').decode()}" if self.key is not None else ""
        # An item removed from an array is a removal with a body.
        none = self.operation in _BODILESS and self.action is not Action.DISCARD
        shown = "" if none or self.body_bytes is not None else ", body not shown"
        return f"<Change {self.version}:{self.index} {what}{key}{shown}>"


def row_id(place: str, row: Change) -> str:
    """Returns the id of a row of a snapshot; all rows of a page have one position, so it contains the entity too."""
    return f"{ROW_ID}{place}:{row.entity_type}:{row.key}"

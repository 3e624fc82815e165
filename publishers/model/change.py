"""A change: one immutable event of a log, with a position of its own."""

import enum
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from zlib import crc32

import msgspec

from publishers.model.errors import InvalidOption
from publishers.model.flaws import flaw_of
from publishers.model.position import Position

__all__ = ["ROW_ID", "Action", "Area", "Change", "Operation", "flaw_in", "row_id", "time_of"]

ROW_ID: Final = "r1:"
"""Prefix of the ids of snapshot rows. The number is the version of their format."""


class Area(enum.IntEnum):
    """The part of the system that a change concerns. The numbers are on disk and are never reused."""

    DATA = 1
    SCHEMA = 2
    INFRASTRUCTURE = 3
    ENGINE = 4
    HOST = 5


class Operation(enum.IntEnum):
    """The operation of a change. The numbers are on disk and are never reused."""

    UPSERT = 1
    REMOVE = 2
    TRANSACTION = 3
    TRUNCATE = 4
    EXPIRE = 5
    READ = 6


class Action(enum.Enum):
    """What a field-level change does to its field."""

    SET = "SET"
    REMOVE = "REMOVE"
    PUSH = "PUSH"
    ADD = "ADD"
    DISCARD = "DISCARD"


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


class Change(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One event of a change log.

    Attributes that do not apply are None. ``body``, ``before`` and ``meta`` are JSON; they are kept as stored bytes and parsed
    each time the property is read, so keep the value if you need it twice. Images are included with ``Content.BODY`` only;
    the ``repr`` of a change that has a body but does not include it says so.

    Attributes:
        version: Version of the transaction.
        index: Place in the transaction; 0 is the leading TRANSACTION event.
        count: Changes of the whole transaction, the TRANSACTION event included.
        timestamp: Commit time of the transaction, UTC; not part of equality.
        area: DATA, SCHEMA, INFRASTRUCTURE, ENGINE or HOST.
        operation: UPSERT, REMOVE, TRANSACTION, TRUNCATE, EXPIRE or READ.
        entity_type: Kind of the entity.
        key: Key of the entity. Bytes that are not UTF-8 appear as lone surrogates (PEP 383).
        body_bytes: JSON of the entity after the change.
        before_bytes: JSON of the entity before the change.
        changed: Names of the fields that changed.
        schema_version: Version of the schema in force.
        entry_version: Version of the entity, for conflict resolution.
        origin: Where the change was first made.
        meta_bytes: JSON that the application attached: to the transaction (index 0) or to the change.
        expires_at: When the entity expires, or expired.
        linked: For each of the two halves of a key change, the key of the other half.
        field: Path of the only field that a field-level change concerns, such as ``lines[0].price``; None for a change of
            the entity as a whole. Body and before image then hold nothing but that field.
        action: What the change does to the field.
        error_text: Which stored part of the change cannot be read; see ``error``.
        lacking: Which of ``body``, ``before`` and ``changed`` the view needs although the log lacks them, or holds them as
            unreadable JSON; empty if none.
    """

    version: int
    index: int
    count: int
    timestamp: datetime
    area: Area
    operation: Operation
    entity_type: str | None = None
    key: str | None = None
    body_bytes: bytes | None = None
    before_bytes: bytes | None = None
    changed: tuple[str, ...] | None = None
    schema_version: int | None = None
    entry_version: int | None = None
    origin: str | None = None
    meta_bytes: bytes | None = None
    expires_at: datetime | None = None
    linked: str | None = None
    field: str | None = None
    action: Action | None = None
    error_text: str | None = None
    lacking: tuple[str, ...] = ()

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

"""What a change is: one event of a log, immutable, with a position of its own."""

import enum
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from publishers.position import Position

__all__ = ["Area", "Change", "Content", "Images", "Operation", "View", "time_of"]


class Area(enum.IntEnum):
    """What part of the system a change concerns. The numbers are on disk and are never reused."""

    DATA = 1
    SCHEMA = 2
    INFRASTRUCTURE = 3
    ENGINE = 4
    HOST = 5


class Operation(enum.IntEnum):
    """What happened. The numbers are on disk and are never reused."""

    UPSERT = 1
    REMOVE = 2
    TRANSACTION = 3
    TRUNCATE = 4
    EXPIRE = 5
    READ = 6


class Content(enum.Enum):
    """How much of a change is delivered: what happened to which key, or the bodies too."""

    HEADER = "HEADER"
    BODY = "BODY"


class Images(enum.Enum):
    """Which images of the entity a change carries. WRITTEN is what the writer stored."""

    WRITTEN = "WRITTEN"


class View(msgspec.Struct, frozen=True):
    """How one subscriber sees a change; part of every key under which anything is shared.

    Attributes:
        content: HEADER leaves out body and images.
        images: Which images there are when ``content`` is BODY.
    """

    content: Content = Content.HEADER
    images: Images = Images.WRITTEN


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(microseconds: int) -> datetime:
    """The moment ``microseconds`` after the Unix epoch, in UTC and without rounding."""
    return _EPOCH + timedelta(microseconds=microseconds)


class Change(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One event of a change log.

    What does not apply is None. ``body``, ``before`` and ``meta`` are JSON; they are kept as the bytes they arrived as
    and parsed each time the property is read, so keep the value if you need it twice.

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
        meta_bytes: JSON of what the application attached: to the transaction (index 0) or to the change.
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

    @property
    def body(self) -> Any:
        """The entity after the change, parsed."""
        return None if self.body_bytes is None else msgspec.json.decode(self.body_bytes)

    @property
    def before(self) -> Any:
        """The entity before the change, parsed."""
        return None if self.before_bytes is None else msgspec.json.decode(self.before_bytes)

    @property
    def meta(self) -> Any:
        """What the application attached, parsed."""
        return None if self.meta_bytes is None else msgspec.json.decode(self.meta_bytes)

    @property
    def position(self) -> Position:
        """Where this change is."""
        return Position(self.version, self.index)

    @property
    def after(self) -> Position:
        """The position after this change: subscribe there to go on behind it."""
        return (
            Position(self.version + 1, 0)
            if self.index + 1 == self.count
            else Position(self.version, self.index + 1)
        )

    def _identity(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name != "timestamp")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Change):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.version, self.index, self.key))

    def __repr__(self) -> str:
        what = f"{self.operation.name} {self.entity_type}" if self.entity_type else self.operation.name
        key = f" {self.key}" if self.key is not None else ""
        return f"<Change {self.version}:{self.index} {what}{key}>"

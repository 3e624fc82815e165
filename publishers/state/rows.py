"""Rows of the compacted state, a page of them, and the statistics of the state."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from publishers.blocks.decode import attached_of
from publishers.fanout.state import SubscriptionLag
from publishers.model.change import parsed, time_of
from publishers.model.errors import brief
from publishers.model.position import Position

__all__ = ["EntityRow", "RowPlace", "StatePage", "StateStatistics", "StoredRow", "shown_row"]


class RowPlace(NamedTuple):
    """Where a row is among all rows: they are in the order of the entity types, and in that of the bytes of their keys.

    Attributes:
        entity_type: Kind of the entity.
        key: Key of the entity, as it is stored.
    """

    entity_type: str
    key: bytes


class StoredRow(NamedTuple):
    """A row as it is stored.

    Attributes:
        entity_type: Kind of the entity.
        key: Its key.
        body: Its JSON, as the change had it.
        meta: The ``meta`` column of the change.
        version: Version of the change.
        index: Its place in the transaction.
        committed_at: When that was committed, in microseconds since the Unix epoch.
    """

    entity_type: str
    key: bytes
    body: bytes | None
    meta: bytes | None
    version: int
    index: int  # type: ignore[assignment]  # a field that hides ``tuple.index``
    committed_at: int

    @property
    def place(self) -> RowPlace:
        """Where it is among all rows."""
        return RowPlace(self.entity_type, self.key)

    @property
    def size(self) -> int:
        """Its bytes, roughly."""
        return 64 + len(self.key) + len(self.body or b"") + len(self.meta or b"")


class EntityRow(msgspec.Struct, frozen=True, gc=False):
    """An entity as the newest change of it has left it.

    Attributes:
        entity_type: Kind of the entity.
        key: Key of the entity. Bytes that are not UTF-8 appear as lone surrogates (PEP 383).
        body_bytes: JSON of the entity.
        version: Version of the transaction that changed it last.
        index: Place of that change in the transaction.
        timestamp: When that was committed, UTC.
        schema_version: Version of the schema that was in force.
        entry_version: Version of the entity.
        origin: Where that change was first made.
        meta_bytes: JSON of what the application attached to it.
        expires_at: When the entity expires; it is there until its EXPIRE comes.
    """

    entity_type: str
    key: str
    body_bytes: bytes | None
    version: int
    index: int
    timestamp: datetime
    schema_version: int | None = None
    entry_version: int | None = None
    origin: str | None = None
    meta_bytes: bytes | None = None
    expires_at: datetime | None = None

    __repr__ = brief

    @property
    def body(self) -> Any:
        """The entity, parsed each time it is asked for."""
        return None if self.body_bytes is None else parsed(self.body_bytes)


def shown_row(row: StoredRow) -> EntityRow:
    """A row as it is shown."""
    attached = attached_of(row.meta)
    return EntityRow(
        row.entity_type,
        row.key.decode("utf-8", "surrogateescape"),
        row.body,
        row.version,
        row.index,
        time_of(row.committed_at),
        attached.schema_version,
        row.version if attached.entry_version is None else attached.entry_version,
        attached.origin,
        bytes(attached.meta) or None,
        attached.expires_at,
    )


@dataclass(frozen=True, slots=True)
class StatePage:
    """Some rows, all of them as of one place.

    Attributes:
        rows: The rows, by entity type and key.
        place: The position after the last change that they contain: what follows from here is not in them.
        more: Whether further rows may follow the last one.
    """

    rows: tuple[EntityRow, ...]
    place: Position
    more: bool

    __repr__ = brief


@dataclass(frozen=True, slots=True)
class StateStatistics:
    """The compacted state at this moment.

    Attributes:
        position: The position after the last change that it contains.
        behind: How far that is behind the watermark.
        rows: How many entities there are.
        nbytes: Bytes of its file.
        batches: How often it has stored what was new, since the log was opened.
        rebuilds: How often it was made anew from the log, since the log was opened.
        failures: How often something could not be read or stored; it is tried again, unless ``failure`` is told.
        failure: Why it does not go on; None while all is well.
    """

    position: Position
    behind: SubscriptionLag
    rows: int
    nbytes: int
    batches: int
    rebuilds: int
    failures: int
    failure: str | None = None

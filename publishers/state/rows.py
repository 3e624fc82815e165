"""Rows of the compacted state, a page of them, what changes do to them, and the statistics of the state."""

from dataclasses import dataclass
from datetime import datetime
from itertools import count, repeat
from typing import Any, Final, NamedTuple

import msgspec

from publishers.blocks.decode import DECODED, attached_of
from publishers.fanout.state import SubscriptionLag
from publishers.model.change import Area, Operation, parsed, time_of
from publishers.model.errors import brief
from publishers.model.fields import ATTACHED, Field, compiled, extended
from publishers.model.position import Position
from publishers.wal import Columns

__all__ = ["EntityRow", "RowActions", "RowPlace", "StatePage", "StateStatistics", "StoredRow", "shown_row"]


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


@extended((field.attribute, field.type | None, None) for field in ATTACHED if field.kept)
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


def _place(field: Field) -> int:
    return EntityRow.__struct_fields__.index(field.attribute)


def _kept(field: Field) -> str:
    text = f"attached.{field.name}"
    if field.kind in DECODED:
        return f"None if {text} is None else {field.kind.name}({text})"
    return f"row.version if {text} is None else {text}" if field.versioned else text


_shown: Final = compiled(
    "shown(row, attached)",
    "key, time = row.key.decode('utf-8', 'surrogateescape'), time_of(row.committed_at)",
    "return EntityRow(row.entity_type, key, row.body, row.version, row.index, time, "
    + ", ".join(map(_kept, sorted((field for field in ATTACHED if field.kept), key=_place)))
    + ")",
    EntityRow=EntityRow,
    time_of=time_of,
    **{kind.name: decoded for kind, decoded in DECODED.items()},
)


def shown_row(row: StoredRow) -> EntityRow:
    """A row as it is shown."""
    shown: EntityRow = _shown(row, attached_of(row.meta))
    return shown


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


_PUT: Final = frozenset({Area.DATA * 16 + Operation.UPSERT, Area.DATA * 16 + Operation.READ})
_DROP: Final = frozenset({Area.DATA * 16 + Operation.REMOVE, Area.DATA * 16 + Operation.EXPIRE})
_CLEAR: Final = Area.DATA * 16 + Operation.TRUNCATE
_ROW: Final = 64  # bytes of a row beside those of its texts, roughly


class RowActions:
    """What some frames in their order do to rows: of each key the last change counts.

    A key change is a REMOVE and an UPSERT, and is no more than these here. A field-level change does nothing: the change of the
    entity that it belongs to comes right before it, with the whole body.

    Attributes:
        cleared: Entity types all rows of which go, before anything else is done.
        rows: By entity type and key the row that is there then; None if there is none.
        nbytes: Bytes of these rows, roughly; what was replaced is counted too.
    """

    __slots__ = ("cleared", "nbytes", "rows")

    def __init__(self) -> None:
        self.cleared: set[str] = set()
        self.rows: dict[tuple[str, bytes], StoredRow | None] = {}
        self.nbytes: int = 0

    def add(self, columns: Columns, version: int, first_index: int, committed_at: int) -> None:
        """Adds what the changes of a frame do.

        Args:
            columns: The changes.
            version: Of their transaction.
            first_index: The index of the first of them.
            committed_at: When that was committed, in microseconds since the Unix epoch.
        """
        rows, nbytes = self.rows, self.nbytes
        names, ids, bodies, metas = columns.entity_types, columns.type_ids, columns.body, columns.meta
        types = repeat(names[0]) if ids is None else map(names.__getitem__, ids)
        parts = zip(
            count(first_index),
            columns.kinds.tobytes(),
            types,
            columns.key,
            repeat(None) if bodies is None else bodies,
            repeat(None) if metas is None else metas,
            strict=False,
        )
        for index, kind, name, key, body, meta in parts:
            if meta is not None and b'"field"' in meta and attached_of(meta).field is not None:
                continue
            place = (name, key or b"")
            if kind in _PUT:
                rows[place] = StoredRow(*place, body, meta, version, index, committed_at)
                nbytes += _ROW + len(place[1]) + (len(body) if body else 0) + (len(meta) if meta else 0)
            elif kind in _DROP:
                rows[place] = None
                nbytes += _ROW
            elif kind == _CLEAR:
                self.cleared.add(name)
                self.rows = rows = {place: row for place, row in rows.items() if place[0] != name}
        self.nbytes = nbytes

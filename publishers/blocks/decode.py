"""From the columns of a frame to ``Change`` objects: one at a time for selective subscribers, else in runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice, pairwise, repeat
from typing import Any, Final

import msgspec

from publishers.model.change import Action, Area, Change, Operation
from publishers.model.fields import ATTACHED, FieldKind, compiled, extended
from publishers.wal import Columns

__all__ = [
    "DECODED",
    "KEYLESS",
    "Attached",
    "attached_of",
    "attributes_of",
    "decode_one",
    "decode_rows",
    "decode_run",
    "names_of",
    "spliced",
    "stored_rows",
]

KEYLESS: Final = Area.DATA * 16 + Operation.TRUNCATE
"""The kind of changes without a key."""


DECODED: Final[Mapping[FieldKind, Callable[[Any], Any]]] = {
    FieldKind.KEY: lambda key: key.decode("utf-8", "surrogateescape"),
    FieldKind.JSON: lambda raw: bytes(raw) or None,
}
"""From the member of ``meta`` to the attribute of the change, where they differ."""


@extended(
    (field.name, msgspec.Raw, msgspec.Raw())
    if field.kind is FieldKind.JSON
    else (field.name, (bytes if field.kind is FieldKind.KEY else field.type) | None, None)
    for field in ATTACHED
)
class Attached(msgspec.Struct, frozen=True):
    """The ``meta`` column of one change; ``error`` is why it cannot be read."""

    schema_version: int | None = None
    entry_version: int | None = None
    origin: str | None = None
    meta: msgspec.Raw = msgspec.Raw()
    expires_at: datetime | None = None
    linked: bytes | None = None
    field: str | None = None
    action: Action | None = None
    error: str | None = None


_attached: Final = msgspec.json.Decoder(Attached)
_attributes: Final = compiled(
    "attributes(attached)",
    "return {"
    + ", ".join(
        f"{field.attribute!r}: None if attached.{field.name} is None else {field.kind.name}(attached.{field.name})"
        if field.kind in DECODED
        else f"{field.attribute!r}: attached.{field.name}"
        for field in ATTACHED
    )
    + "}",
    **{kind.name: decoded for kind, decoded in DECODED.items()},
)
_zoned: Final[Callable[[Attached], Attached]] = compiled(
    "zoned(attached)",
    *(
        f"""if (moment := attached.{field.name}) is not None:
        if moment.tzinfo is None: return Attached(error="meta: {field.name} has no time zone")
        attached = replace(attached, {field.name}=moment.astimezone(UTC))"""
        for field in ATTACHED
        if field.kind is FieldKind.MOMENT
    ),
    "return attached",
    Attached=Attached,
    UTC=UTC,
    replace=msgspec.structs.replace,
)
_names: Final = msgspec.json.Decoder(tuple[str, ...])
_NOTHING: Final = Attached()
_MISSING: Final = repeat(None)  # the values of a column that is not there
_SHORT: Final = 64  # bytes up to which a ``meta`` column is cached
_AREAS: Final = {area.value: area for area in Area}
_OPERATIONS: Final = {operation.value: operation for operation in Operation}


def attached_of(stored: bytes | None) -> Attached:
    """Returns schema version, entry version, origin, meta and the like of a change."""
    if stored is None:
        return _NOTHING
    return _often(stored) if len(stored) <= _SHORT else _read(stored)


def _read(stored: bytes) -> Attached:
    try:
        if not stored.isascii():
            str(stored, "utf-8")
        return _zoned(_attached.decode(stored))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        return Attached(error=f"meta: {error}")


_often = lru_cache(256)(_read)  # changes stamped with a schema share a few values


def spliced(meta: bytes | None, member: bytes) -> bytes:
    """Returns the ``meta`` column of a change with one more member, such as ``"origin":"rome"``, in front."""
    rest = b"}" if meta is None else meta.strip()[1:].lstrip()
    return b"{%b%b%b" % (member, b"" if rest == b"}" else b",", rest)


def names_of(stored: bytes | None) -> tuple[tuple[str, ...] | None, str | None]:
    """Returns the names of changed fields, or why they cannot be read."""
    if stored is None:
        return None, None
    try:
        return _names.decode(stored), None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return None, f"changed: {error}"


def decode_rows(
    values: Sequence[Sequence[Any]],
    start: int,
    stop: int,
    *,
    at: tuple[int, int, int],
    time: datetime,
    bodies: bool,
) -> list[Change]:
    """Makes the changes of rows of the area DATA that were encoded from ``values``; ``at`` belongs to the first row."""
    version, index, count = at
    made = []
    for kind, name, key, body, before, changed, meta in islice(zip(*values, strict=True), start, stop):
        text = key.decode("utf-8", "surrogateescape")
        fields = (version, index, count, time, Area.DATA, _OPERATIONS[kind & 15], name, text)
        after, was = (body, before) if bodies else (None, None)
        if changed is None and meta is None:
            made.append(Change(*fields, after, was, None, None, version))
        else:
            made.append(Change(*fields, after, was, **_rare(changed, meta, version)))
        index += 1
    return made


def decode_one(
    columns: Columns, row: int, *, at: tuple[int, int, int], time: datetime, bodies: bool
) -> Change:
    """Makes the change of one row.

    Args:
        columns: The columns.
        row: Number of the row.
        at: Version, index and count of the change.
        time: Its commit time.
        bodies: Whether to include body and before image.
    """
    kind = columns.kinds[row]
    meta = None if columns.meta is None else columns.meta[row]
    changed = None if columns.changed is None else columns.changed[row]
    return Change(
        *at[:2],
        at[2],
        time,
        _AREAS[kind >> 4],
        _OPERATIONS[kind & 15],
        columns.entity_types[0 if columns.type_ids is None else columns.type_ids[row]],
        None if kind == KEYLESS else (columns.key[row] or b"").decode("utf-8", "surrogateescape"),
        columns.body[row] if bodies and columns.body is not None else None,
        columns.before[row] if bodies and columns.before is not None else None,
        **_rare(changed, meta, at[0] if kind >> 4 == Area.DATA else None),
    )


def _rare(changed: bytes | None, meta: bytes | None, version: int | None) -> dict[str, Any]:
    """Returns the fields that most changes lack, and the entry version: that of the commit unless the writer has set one."""
    if changed is None and meta is not None and len(meta) <= _SHORT:
        found = _stamped(meta)
    else:
        found = _rarely(changed, meta)
    return found if found.get("entry_version") is not None else {**found, "entry_version": version}


def _rarely(changed: bytes | None, meta: bytes | None) -> dict[str, Any]:
    names, flaw = names_of(changed)
    found: dict[str, Any] = {} if names is None else {"changed": names}
    if meta is not None:
        attached = attached_of(meta)
        found |= attributes_of(attached)
        flaw = attached.error or flaw
    if flaw is not None:
        found["error_text"] = flaw
    return found


@lru_cache(256)
def _stamped(meta: bytes) -> dict[str, Any]:
    """The same, cached for a few attachments that many changes share; callers must not modify the result."""
    return {name: value for name, value in _rarely(None, meta).items() if value is not None}


def attributes_of(attached: Attached) -> dict[str, Any]:
    """Returns the attributes of a change that are in its ``meta`` column."""
    found: dict[str, Any] = _attributes(attached)
    return found


def decode_run(
    columns: Columns, start: int, stop: int, *, at: tuple[int, int, int], time: datetime, bodies: bool
) -> list[Change]:
    """Makes the changes of the rows from ``start`` up to ``stop``, column by column; ``at`` belongs to the first row."""
    version, index, count = at
    kinds = bytes(columns.kinds[start:stop])
    names, type_ids = columns.entity_types, columns.type_ids
    keys: list[str | None] | list[str] = _texts(columns, start, stop)
    if KEYLESS in kinds:
        keys = [None if kind == KEYLESS else key for kind, key in zip(kinds, keys, strict=True)]
    places = range(index, index + stop - start)
    after = _values(columns, "body", start, stop) if bodies else _MISSING
    before = _MISSING if columns.before is None or not bodies else _values(columns, "before", start, stop)
    changed = _MISSING if columns.changed is None else _values(columns, "changed", start, stop)
    meta = _MISSING if columns.meta is None else _values(columns, "meta", start, stop)
    if changed is meta is _MISSING and type_ids is None and kinds.count(kinds[:1]) == len(kinds):
        area, operation, name = _AREAS[kinds[0] >> 4], _OPERATIONS[kinds[0] & 15], names[0]
        entry = version if area is Area.DATA else None
        # No loop of this function's own: a third faster for a hundred changes.
        return list(
            map(
                Change,
                repeat(version),
                places,
                repeat(count),
                repeat(time),
                repeat(area),
                repeat(operation),
                repeat(name),
                keys,
                after,
                before,
                _MISSING,
                _MISSING,
                repeat(entry),
            )
        )
    made = []
    rows = (
        places,
        kinds,
        repeat(names[0]) if type_ids is None else map(names.__getitem__, type_ids[start:stop]),
        keys,
        after,
        before,
        changed,
        meta,
    )
    for number, kind, name, key, body, was, altered, attached in zip(*rows, strict=False):
        area, operation = _AREAS[kind >> 4], _OPERATIONS[kind & 15]
        fields = (version, number, count, time, area, operation, name, key, body, was)
        entry = version if area is Area.DATA else None
        if altered is None and attached is None:
            made.append(Change(*fields, None, None, entry))
        else:
            made.append(Change(*fields, **_rare(altered, attached, entry)))
    return made


def stored_rows(columns: Columns, start: int, stop: int) -> Iterator[tuple[Any, ...]]:
    """Yields kind, entity type, key, body, before, changed and meta of the rows from ``start`` up to ``stop``, as stored."""
    names, ids = columns.entity_types, columns.type_ids
    types = repeat(names[0]) if ids is None else map(names.__getitem__, ids[start:stop])
    values = (_values(columns, name, start, stop) for name in ("key", "body", "before", "changed", "meta"))
    return zip(bytes(columns.kinds[start:stop]), types, *values, strict=False)


def _values(columns: Columns, name: str, start: int, stop: int) -> Sequence[bytes | None] | Iterator[None]:
    piece = columns.piece(name, start, stop)
    if piece is not None:
        data, offsets = piece
        return [data[a:b] for a, b in pairwise(offsets)]
    column = getattr(columns, name)
    return _MISSING if column is None else [column[row] for row in range(start, stop)]


def _texts(columns: Columns, start: int, stop: int) -> list[str]:
    piece = columns.piece("key", start, stop)
    assert piece is not None  # keys are never missing
    data, offsets = piece
    if data.isascii():  # one character is one byte, so byte offsets are character offsets
        text = data.decode("ascii")
        return [text[a:b] for a, b in pairwise(offsets)]
    return [data[a:b].decode("utf-8", "surrogateescape") for a, b in pairwise(offsets)]

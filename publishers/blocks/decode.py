"""From the columns of a frame to ``Change`` objects: one at a time for selective subscribers, else in runs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice, pairwise, repeat
from typing import Any, Final

import msgspec

from publishers.model.change import Action, Area, Change, Operation
from publishers.wal import Column, Columns

__all__ = [
    "KEYLESS",
    "Attached",
    "attached_of",
    "decode_one",
    "decode_rows",
    "decode_run",
    "names_of",
    "spliced",
]

KEYLESS: Final = Area.DATA * 16 + Operation.TRUNCATE
"""The kind of changes without a key."""


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
_names: Final = msgspec.json.Decoder(tuple[str, ...])
_NOTHING: Final = Attached()
_ENTITIES: Final = bytes(range(Area.DATA * 16, Area.DATA * 16 + 16))
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
        found = _attached.decode(stored)
        if found.expires_at is None:
            return found
        if found.expires_at.tzinfo is None:
            return Attached(error="meta: expires_at has no time zone")
        return msgspec.structs.replace(found, expires_at=found.expires_at.astimezone(UTC))
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
        found |= _plain(attached)
        flaw = attached.error or flaw
    if flaw is not None:
        found["error_text"] = flaw
    return found


@lru_cache(256)
def _stamped(meta: bytes) -> dict[str, Any]:
    """The same, cached for a few attachments that many changes share; callers must not modify the result."""
    return {name: value for name, value in _rarely(None, meta).items() if value is not None}


def _plain(attached: Attached) -> dict[str, Any]:
    linked = attached.linked
    return {
        "schema_version": attached.schema_version,
        "entry_version": attached.entry_version,
        "origin": attached.origin,
        "meta_bytes": bytes(attached.meta) or None,
        "expires_at": attached.expires_at,
        "linked": None if linked is None else linked.decode("utf-8", "surrogateescape"),
        "field": attached.field,
        "action": attached.action,
    }


def decode_run(
    columns: Columns, start: int, stop: int, *, at: tuple[int, int, int], time: datetime, bodies: bool
) -> list[Change]:
    """Makes the changes of the rows from ``start`` up to ``stop``, column by column; ``at`` belongs to the first row."""
    version, index, count = at
    kinds = bytes(columns.kinds[start:stop])
    areas: Iterator[Area] = repeat(_AREAS[kinds[0] >> 4])
    operations: Iterator[Operation] = repeat(_OPERATIONS[kinds[0] & 15])
    if kinds.count(kinds[:1]) != len(kinds):
        areas = map(_AREAS.__getitem__, [kind >> 4 for kind in kinds])
        operations = map(_OPERATIONS.__getitem__, [kind & 15 for kind in kinds])
    names = columns.entity_types
    types = (
        repeat(names[0]) if columns.type_ids is None else map(names.__getitem__, columns.type_ids[start:stop])
    )
    keys: list[str | None] | list[str] = _texts(columns.key, start, stop)
    if KEYLESS in kinds:
        keys = [None if kind == KEYLESS else key for kind, key in zip(kinds, keys, strict=True)]
    common = (
        range(index, index + stop - start),
        areas,
        operations,
        types,
        keys,
        _values(columns.body if bodies else None, start, stop),
        _values(columns.before if bodies else None, start, stop),
    )
    if columns.changed is None and columns.meta is None:
        # Positional, and without a Python step for each change: most subscribers in process wait for this.
        if kinds.translate(None, _ENTITIES):
            entries: Iterator[int | None] = (version if kind >> 4 == Area.DATA else None for kind in kinds)
        else:
            entries = repeat(version)
        place, *others = common
        nothing = repeat(None)
        first = (repeat(version), place, repeat(count), repeat(time))
        return list(map(Change, *first, *others, nothing, nothing, entries))
    rare = zip(_values(columns.changed, start, stop), _values(columns.meta, start, stop), strict=False)
    made = []
    for (number, area, operation, entity_type, key, body, before), (changed, meta) in zip(
        zip(*common, strict=False), rare, strict=False
    ):
        made.append(
            Change(
                version,
                number,
                count,
                time,
                area,
                operation,
                entity_type,
                key,
                body,
                before,
                **_rare(changed, meta, version if area is Area.DATA else None),
            )
        )
    return made


def _values(column: Column | None, start: int, stop: int) -> Iterator[bytes | None] | Sequence[bytes | None]:
    if column is None:
        return repeat(None, stop - start)
    if column.validity is not None:
        return [column[row] for row in range(start, stop)]
    offsets = column.offsets[start : stop + 1].tolist()
    base = offsets[0]
    data = column.data[base : offsets[-1]].tobytes()
    return [data[a - base : b - base] for a, b in pairwise(offsets)]


def _texts(column: Column, start: int, stop: int) -> list[str]:
    offsets = column.offsets[start : stop + 1].tolist()
    base = offsets[0]
    data = column.data[base : offsets[-1]].tobytes()
    if data.isascii():  # one character is one byte, so byte offsets are character offsets
        text = data.decode("ascii")
        return [text[a - base : b - base] for a, b in pairwise(offsets)]
    return [data[a - base : b - base].decode("utf-8", "surrogateescape") for a, b in pairwise(offsets)]

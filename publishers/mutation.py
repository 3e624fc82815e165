"""What a writer asks for: one change before it has a position."""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final

import msgspec

from publishers.errors import InvalidChange
from publishers.wal.columns import Column, Columns, encode_one

__all__ = [
    "DATA",
    "REMOVE",
    "UPSERT",
    "Mutation",
    "columns_of",
    "encode_json",
    "payload_of",
    "remove",
    "upsert",
]

# The numbers of ``Area.DATA``, ``Operation.UPSERT`` and ``Operation.REMOVE``, which are fixed on disk.
DATA: Final = 1
UPSERT: Final = 1
REMOVE: Final = 2

_encoder: Final = msgspec.json.Encoder(decimal_format="string")
_raw: Final = msgspec.json.Decoder(msgspec.Raw)


class Mutation(msgspec.Struct, frozen=True):
    """One change to be committed; made by ``upsert`` and ``remove``, which check it."""

    operation: int
    entity_type: str
    key: bytes
    body: bytes | None = None
    before: bytes | None = None
    changed: bytes | None = None
    meta: bytes | None = None
    area: int = DATA


def upsert(
    entity_type: str,
    key: str | bytes,
    body: Mapping[str, Any] | bytes,
    *,
    before: Mapping[str, Any] | bytes | None = None,
    changed: Collection[str] | None = None,
    meta: Mapping[str, Any] | None = None,
    schema_version: int | None = None,
    entry_version: int | None = None,
    origin: str | None = None,
) -> Mutation:
    """An entity was created or changed.

    Args:
        entity_type: Kind of the entity.
        key: Key of the entity; text is stored as UTF-8.
        body: The entity after the change: a mapping, or JSON bytes, which are kept as they are.
        before: The entity before the change, likewise.
        changed: Names of the fields that changed.
        meta: Anything that the application wants to say of this change.
        schema_version: Version of the schema in force.
        entry_version: Version of the entity.
        origin: Where the change was first made.

    Raises:
        InvalidChange: If an argument cannot be stored.
    """
    _check(entity_type)
    return Mutation(
        UPSERT,
        entity_type,
        _key(key),
        encode_json("body", body),
        None if before is None else encode_json("before", before),
        None if changed is None else _names(changed),
        _meta(meta, schema_version, entry_version, origin),
    )


def remove(
    entity_type: str,
    key: str | bytes,
    *,
    before: Mapping[str, Any] | bytes | None = None,
    meta: Mapping[str, Any] | None = None,
    schema_version: int | None = None,
    entry_version: int | None = None,
    origin: str | None = None,
) -> Mutation:
    """An entity was removed; the arguments are those of ``upsert``.

    Raises:
        InvalidChange: If an argument cannot be stored.
    """
    _check(entity_type)
    return Mutation(
        REMOVE,
        entity_type,
        _key(key),
        None,
        None if before is None else encode_json("before", before),
        None,
        _meta(meta, schema_version, entry_version, origin),
    )


def encode_json(parameter: str, value: Mapping[str, Any] | bytes) -> bytes:
    """JSON bytes of a mapping, or JSON bytes as they are once they have proved to be JSON in UTF-8.

    Raises:
        InvalidChange: If a mapping holds what JSON cannot, or bytes are no JSON.
    """
    if isinstance(value, Mapping):
        try:
            data = _encoder.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidChange(parameter, value, f"a mapping that JSON can hold ({error})") from None
        if b"null" in data and (path := _not_finite(value)) is not None:
            raise InvalidChange(
                parameter + path, "NaN or an infinity", "finite, or text: JSON has no such number"
            )
        return data
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        try:
            _raw.decode(data)
            if not data.isascii():
                data.decode("utf-8")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidChange(parameter, data, f"valid JSON in UTF-8 ({error})") from None
        return data
    raise InvalidChange(parameter, value, "a mapping, or JSON as bytes")


def _not_finite(value: object) -> str | None:
    """Where in a value a float is that JSON cannot hold; the encoder would write null for it."""
    if isinstance(value, float):
        return None if isfinite(value) else ""
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    for name, item in items:
        if (path := _not_finite(item)) is not None:
            return f"[{name!r}]{path}"
    return None


def columns_of(mutations: Iterable[Mutation]) -> Columns:
    """Turns changes into the columns of a frame.

    Raises:
        InvalidChange: If something is not a mutation, or there are too many entity types for one transaction.
    """
    rows: Sequence[Mutation] = mutations if isinstance(mutations, Sequence) else list(mutations)
    for row in rows:
        _check_row(row)
    names: dict[str, int] = {}
    type_ids = array("H")
    try:
        for row in rows:
            type_ids.append(names.setdefault(row.entity_type, len(names)))
    except OverflowError:
        raise InvalidChange(
            "mutations", f"{len(names)} entity types", "at most 65536 in a transaction"
        ) from None
    try:
        return Columns(
            memoryview(bytes([row.area * 16 + row.operation for row in rows])),
            tuple(names),
            memoryview(type_ids) if len(names) > 1 else None,
            Column.of([row.key for row in rows]),
            _optional([row.body for row in rows]),
            _optional([row.before for row in rows]),
            _optional([row.changed for row in rows]),
            _optional([row.meta for row in rows]),
        )
    except ValueError as error:
        raise InvalidChange(
            "mutations", f"{len(rows)} changes", f"split into smaller transactions ({error})"
        ) from None


def payload_of(row: Mutation, annotations: bytes) -> bytes:
    """The payload of a frame of one change, without columns in between.

    Raises:
        InvalidChange: If it is not a mutation.
    """
    _check_row(row)
    return encode_one(
        row.area * 16 + row.operation,
        row.entity_type.encode(),
        row.key,
        row.body,
        row.before,
        row.changed,
        row.meta,
        annotations,
    )


def _check_row(row: object) -> None:
    if not isinstance(row, Mutation):
        raise InvalidChange("mutations", row, "what upsert() or remove() returned")


def _optional(values: list[bytes | None]) -> Column | None:
    return None if all(value is None for value in values) else Column.of(values)


def _check(entity_type: object) -> None:
    if not isinstance(entity_type, str) or not 0 < len(entity_type) <= 1024 or not _encodable(entity_type):
        raise InvalidChange("entity_type", entity_type, "a text of 1 to 1024 characters")


def _key(key: object) -> bytes:
    if isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        raise InvalidChange("key", key, "text or bytes")
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidChange("key", key, "text that UTF-8 can hold, or bytes") from None


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _names(changed: Collection[str]) -> bytes:
    if isinstance(changed, (str, bytes)) or not all(
        isinstance(name, str) and _encodable(name) for name in changed
    ):
        raise InvalidChange("changed", changed, "a list of field names")
    return _encoder.encode(list(changed))


def _meta(
    meta: Mapping[str, Any] | None, schema_version: int | None, entry_version: int | None, origin: str | None
) -> bytes | None:
    """The ``meta`` column: what is rarely there, as one JSON object."""
    if meta is None and schema_version is None and entry_version is None and origin is None:
        return None
    stored: dict[str, Any] = {}
    for name, number in (("schema_version", schema_version), ("entry_version", entry_version)):
        if number is not None:
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**63:
                raise InvalidChange(name, number, "a whole number from 0 to 2**63 - 1")
            stored[name] = number
    if origin is not None:
        if not isinstance(origin, str) or not _encodable(origin):
            raise InvalidChange("origin", origin, "text")
        stored["origin"] = origin
    if meta is not None:
        stored["meta"] = msgspec.Raw(encode_json("meta", meta))
    return _encoder.encode(stored)

"""Changes on their way into a frame: one before it has a position, and many as columns."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from publishers.errors import InvalidChange
from publishers.wal.columns import Column, Columns, encode_one

__all__ = ["DATA", "Mutation", "columns_of", "flattened", "payload_of"]

DATA: Final = 1
"""The number of ``Area.DATA``, which is fixed on disk."""

_TYPES_MAX: Final = 65536


class Mutation(msgspec.Struct, frozen=True):
    """One change to be committed; made by ``upsert``, ``remove`` and the like, which check it.

    Attributes:
        operation, area: Their numbers.
        entity_type: Kind of the entity.
        key: Its key; empty where there is none.
        body, before, changed, meta: What is stored.
        entry_version: Version of the entity, if it was given.
        follows: Changes that belong to this one and come right after it: of its fields, or the other half of a key
            change.
    """

    operation: int
    entity_type: str
    key: bytes
    body: bytes | None = None
    before: bytes | None = None
    changed: bytes | None = None
    meta: bytes | None = None
    area: int = DATA
    entry_version: int | None = None
    follows: tuple["Mutation", ...] = ()


def flattened(mutations: Iterable[Mutation]) -> list[Mutation]:
    """The changes one by one, each followed by those that belong to it.

    Raises:
        InvalidChange: If something is not a mutation, or the entry version of a key falls.
    """
    given = list(mutations)
    for row in given:
        if type(row) is not Mutation or row.follows or row.entry_version is not None:
            break
    else:
        return given  # the commonest case: nothing to check and nothing to insert
    rows: list[Mutation] = []
    versions: dict[tuple[str, bytes], int] = {}
    for row in _spread(given):
        if row.entry_version is not None:
            entity = (row.entity_type, row.key)
            least = versions.get(entity, 0)
            if row.entry_version < least:
                raise InvalidChange(
                    "entry_version",
                    row.entry_version,
                    f"at least {least}, which this transaction gave before",
                )
            versions[entity] = row.entry_version
        rows.append(row)
    return rows


def _spread(mutations: Iterable[Mutation]) -> Iterator[Mutation]:
    for row in mutations:
        if not isinstance(row, Mutation):
            raise InvalidChange("mutations", row, "what upsert() or remove() returned")
        yield row
        if row.follows:
            yield from row.follows


def columns_of(mutations: Iterable[Mutation]) -> Columns:
    """Turns changes into the columns of a frame.

    Raises:
        InvalidChange: If something is not a mutation, an entry version falls, or there are too many entity types for one
            transaction.
    """
    rows: Sequence[Mutation] = flattened(mutations)
    types = [row.entity_type for row in rows]
    names = {name: number for number, name in enumerate(dict.fromkeys(types))}
    if len(names) > _TYPES_MAX:
        raise InvalidChange(
            "mutations", f"{len(names)} entity types", f"at most {_TYPES_MAX} in a transaction"
        )
    type_ids = array("H", map(names.__getitem__, types)) if len(names) > 1 else None
    try:
        return Columns(
            memoryview(bytes([row.area * 16 + row.operation for row in rows])),
            tuple(names),
            None if type_ids is None else memoryview(type_ids),
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
    if not isinstance(row, Mutation):
        raise InvalidChange("mutations", row, "what upsert() or remove() returned")
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


def _optional(values: list[bytes | None]) -> Column | None:
    return None if values.count(None) == len(values) else Column.of(values)

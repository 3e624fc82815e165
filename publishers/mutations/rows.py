"""Changes before they are written: one change without a position, and many as columns of a frame."""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from struct import error as StructError  # noqa: N812 - it is a class, despite its lower-case name
from typing import Final

import msgspec

from publishers.blocks.decode import KEYLESS, spliced
from publishers.errors import InvalidChange
from publishers.model.change import Area, Operation
from publishers.model.errors import brief
from publishers.mutations.arguments import KEY_RIGHT, check_entity_type
from publishers.options import LogOptions
from publishers.wal.format.columns import Column, Columns
from publishers.wal.format.rows import ROWS_MAX, Rows

__all__ = ["DATA", "Mutation", "RowEncoder", "check_columns", "columns_of", "flattened"]

DATA: Final = 1
"""The number of ``Area.DATA``, which is fixed on disk."""

_TYPES_MAX: Final = 65536
_KINDS: Final = bytes(area * 16 + operation for area in Area for operation in Operation)
_BYTES: Final = frozenset({bytes})
_TEXT: Final = frozenset({str})
_KNOWN: Final = frozenset(_KINDS)
_KEYED: Final = frozenset(Operation) - {Operation.TRUNCATE}
_KINDS_OF_DATA: Final = bytes(DATA * 16 + number if number in _KEYED else 0 for number in range(256))
"""The kind by the number of an operation; 0 for an operation without a key, and for a number that is no operation."""
_ORDINARY: Final = tuple(((DATA,) * count, (None,) * count, ((),) * count) for count in range(ROWS_MAX + 1))
"""Areas, entry versions and following changes of ordinary changes, by their number."""
_RIGHT: Final = "what upsert() or remove() returned"
_NONSENSE: Final = (TypeError, AttributeError, LookupError, UnicodeError, OverflowError)
"""Errors raised by fields of the wrong type, in a mutation that was not made by ``upsert`` and the like."""


class Mutation(msgspec.Struct, frozen=True):
    """One change to commit; made by ``upsert``, ``remove`` and the like, which check it.

    Attributes:
        operation, area: Their numbers.
        entity_type: Kind of the entity.
        key: Its key; empty if there is none.
        body, before, changed, meta: The stored bytes.
        entry_version: Version of the entity, if given.
        follows: Changes that belong to this one and come right after it: changes of its fields, or the other half of a key
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

    __repr__ = brief


_MUTATIONS: Final = frozenset({Mutation})


def flattened(mutations: Iterable[Mutation]) -> list[Mutation]:
    """Lists the changes one by one, each followed by those that belong to it.

    Raises:
        InvalidChange: If an element is not a mutation, or the entry version of a key falls.
    """
    given = list(mutations)
    for row in given:
        if type(row) is not Mutation or row.follows or row.entry_version is not None:
            break
    else:
        return given  # the most common case: nothing to check and nothing to insert
    versions: dict[tuple[str, bytes], int | None] = {}
    return [_versioned(row, versions) for row in _spread(given)]


def _versioned(row: Mutation, versions: dict[tuple[str, bytes], int | None]) -> Mutation:
    """Returns a change whose entry version is not below that of the same key earlier in the transaction.

    A change without an entry version gets that one; if the earlier change has none either, both have the version of the commit.
    """
    if row.area != DATA:
        return row
    entity = (row.entity_type, row.key)
    given = row.entry_version
    last = versions.setdefault(entity, given)
    if given is None:
        return row if last is None else _with_entry_version(row, last)
    if last is None:
        raise InvalidChange(
            "entry_version", given, "given for the key from its first change in the transaction on"
        )
    if given < last:
        raise InvalidChange("entry_version", given, f"at least {last}, which this transaction gave before")
    versions[entity] = given
    return row


def _with_entry_version(row: Mutation, version: int) -> Mutation:
    meta = spliced(row.meta, b'"entry_version":%d' % version)
    return msgspec.structs.replace(row, meta=meta, entry_version=version)


def _spread(mutations: Iterable[Mutation]) -> Iterator[Mutation]:
    for row in mutations:
        if not isinstance(row, Mutation):
            raise InvalidChange("mutations", row, _RIGHT)
        yield row
        if row.follows:
            yield from row.follows


def columns_of(mutations: Iterable[Mutation], *, keyed: bool = False) -> Columns:
    """Turns changes into the columns of a frame.

    Args:
        mutations: The changes.
        keyed: Whether to refuse an empty key, as ``check_columns`` does.

    Raises:
        InvalidChange: If an element is not a mutation, an entry version falls, or there are too many entity types for one
            transaction.
    """
    try:
        return _columns(flattened(mutations), keyed=keyed)
    except _NONSENSE as error:
        raise InvalidChange("mutations", f"something in which {error}", _RIGHT) from error


def _columns(rows: Sequence[Mutation], *, keyed: bool) -> Columns:
    types = [row.entity_type for row in rows]
    names = {name: number for number, name in enumerate(dict.fromkeys(types))}
    for name in names:
        check_entity_type(name)
    if len(names) > _TYPES_MAX:
        raise InvalidChange(
            "mutations", f"{len(names)} entity types", f"at most {_TYPES_MAX} in a transaction"
        )
    type_ids = array("H", map(names.__getitem__, types)) if len(names) > 1 else None
    keys = [row.key for row in rows]
    if not _BYTES.issuperset(map(type, keys)):
        raise InvalidChange(
            "key", next(key for key in keys if type(key) is not bytes), "bytes; upsert() takes text too"
        )
    kinds = [row.area * 16 + row.operation for row in rows]
    if not _KNOWN.issuperset(kinds):
        for row in rows:
            _check_kind(row)
    if keyed and b"" in keys:
        _check_keys(kinds, keys)
    try:
        return Columns(
            memoryview(bytes(kinds)),
            tuple(names),
            None if type_ids is None else memoryview(type_ids),
            Column.of(keys),
            _optional([row.body for row in rows]),
            _optional([row.before for row in rows]),
            _optional([row.changed for row in rows]),
            _optional([row.meta for row in rows]),
        )
    except ValueError as error:
        raise InvalidChange(
            "mutations", f"{len(rows)} changes", f"split into smaller transactions ({error})"
        ) from None


class RowEncoder:
    """Encodes small transactions of ordinary changes directly; all others have to be turned into columns first.

    Args:
        options: Bounds of frames, changes and keys.
        versions: Returns the schema versions of an entity type; changes of a type that has any must be stamped.
        stamp: Replaces each change before it is stored; None to store it unchanged.
    """

    __slots__ = ("_bytes", "_key_bytes", "_most", "_stamp", "_versions")

    def __init__(
        self,
        options: LogOptions,
        versions: Callable[[str], Collection[int]],
        stamp: Callable[[Mutation], Mutation] | None,
    ) -> None:
        self._versions = versions
        self._stamp = stamp
        self._most = ROWS_MAX
        self._key_bytes = options.max_key_bytes
        self._bytes = min(options.frame_bytes, options.max_change_bytes, options.spool_bytes)

    def rows(self, mutations: Sequence[Mutation], annotations: bytes) -> Rows | None:
        """Encodes the changes; None if any of them is not ordinary: then the caller encodes columns, which may raise.

        Args:
            mutations: The changes.
            annotations: JSON of the transaction.
        """
        count = len(mutations)
        if not 0 < count <= self._most or not _MUTATIONS.issuperset(map(type, mutations)):
            return None
        if self._stamp is not None:
            mutations = list(map(self._stamp, mutations))
        fields = zip(*map(msgspec.structs.astuple, mutations), strict=True)
        operations, types, keys, body, before, changed, meta, areas, versions, follows = fields
        if (areas, versions, follows) != _ORDINARY[count]:
            return None
        try:
            kinds = bytes(operations).translate(_KINDS_OF_DATA)
            if 0 in kinds or not all(keys) or not _TEXT.issuperset(map(type, types)):
                return None
            for name in {*types}:
                _known_type(name)
            rows = Rows(kinds, types, keys, body, before, changed, meta, annotations=annotations)
        except (*_NONSENSE, ValueError, StructError):
            return None
        if len(rows.payload) > self._bytes or any(map(self._versions, rows.entity_types)):
            return None
        most = self._key_bytes
        return rows if rows.nbytes <= most or max(map(len, keys)) <= most else None


_known_type = lru_cache(1024)(check_entity_type)


def check_columns(columns: object) -> Columns:
    """Checks that every change in columns has a known area and operation, because no reader could interpret another one.

    Each change must have a key too, unless it is a TRUNCATE. Older logs may contain changes without one; they remain readable.

    Raises:
        InvalidChange: If the columns do not meet this.
    """
    if not isinstance(columns, Columns):
        raise InvalidChange("batches", columns, "Columns of changes")
    if strange := bytes(columns.kinds).translate(None, _KINDS):
        raise InvalidChange("kinds", strange[0], "16 times the number of an Area, plus that of an Operation")
    ends = columns.key.offsets
    if len({*ends}) < len(ends):  # rare, so that changes are usually not examined one by one
        _check_keys(columns.kinds, columns.key)
    return columns


def _check_keys(kinds: Iterable[int], keys: Iterable[bytes | None]) -> None:
    for kind, key in zip(kinds, keys, strict=True):
        if not key and kind != KEYLESS:
            raise InvalidChange("key", key, KEY_RIGHT)


def _check_kind(row: Mutation) -> None:
    if row.area * 16 + row.operation not in _KNOWN:
        right = "the numbers of an Operation and an Area"
        raise InvalidChange("operation", f"{row.operation!r} in area {row.area!r}", right)


def _optional(values: list[bytes | None]) -> Column | None:
    return None if values.count(None) == len(values) else Column.of(values)

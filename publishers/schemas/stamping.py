"""Stamps the changes of a commit with their schema versions, and registers the schemas among them."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from publishers.blocks.decode import attached_of, spliced
from publishers.errors import InvalidChange
from publishers.model.change import Area
from publishers.model.position import Position
from publishers.schemas.registry import RecordedSchema, Schemas
from publishers.wal import Column, Columns, Transaction, decode_payload
from publishers.wal.format.compression import inflate
from publishers.wal.format.frame import COMPRESSED

__all__ = ["Stamping", "has_schemas", "unsealed", "with_meta", "with_versions"]

_PARTS: Final = frozenset(range(Area.SCHEMA * 16, Area.SCHEMA * 16 + 16))


class Stamping:
    """Stamps the changes of one commit, and registers the schemas among them.

    Schemas, and the changes behind them, are stamped under ``Schemas.turn`` after the caller's iterator has ended: the iterator
    may itself commit, even schemas.

    Args:
        schemas: The schemas of the log.

    Attributes:
        registers: Whether schemas are among the changes seen so far.
    """

    def __init__(self, schemas: Schemas) -> None:
        self.registers: bool = False
        self._schemas = schemas
        self._recorded: list[RecordedSchema] = []
        self._forgotten = schemas.forgotten  # read before any version is looked up
        self._versions: dict[str, list[int]] = {}
        self._rows = 0

    def through(self, batches: Iterable[Columns]) -> Iterator[Columns]:
        """The same changes, each stamped with the newest schema version of its entity type, if that has a schema.

        From the first batch with a schema on, batches are passed through unchanged, for `registering`.

        Raises:
            InvalidChange: If a change names a version that was not registered before it.
        """
        for columns in batches:
            self.registers = self.registers or has_schemas(columns)
            if self.registers:
                yield columns
            else:
                yield self._stamped(columns)
                self._rows += columns.count

    def registering(self, batches: Iterable[Columns]) -> Iterator[Columns]:
        """The same changes, with those stamped that `through` left unchanged; the caller holds the turn.

        Raises:
            InvalidChange: If a change names a version that was not registered before it, or registers one that does not rise.
        """
        self._schemas.load(ours=True)
        if not any(self._versions.values()):  # nothing was stamped yet, and the held turn excludes truncation
            self._forgotten = self._schemas.forgotten
        self._versions.clear()
        stamped, self._rows = self._rows, 0
        for columns in batches:
            yield columns if self._rows < stamped else self._stamped(columns)
            self._rows += columns.count

    def vouch(self, versions: Mapping[str, int]) -> None:
        """Checks versions with which changes were stamped elsewhere since this object was made.

        Args:
            versions: The schema version by entity type of those changes.

        Raises:
            InvalidChange: If a version was not registered.
        """
        for entity_type, version in versions.items():
            if version not in self._known(entity_type):
                raise InvalidChange(
                    "schema_version", version, f"told before the changes of {entity_type!r} are committed"
                )

    def outdated(self) -> InvalidChange | None:
        """The error if schemas were truncated since the changes were stamped with them; None if the commit may be written."""
        if self._forgotten == self._schemas.forgotten:
            return None
        stamps = {name: versions[-1] for name, versions in self._versions.items() if versions}
        if not stamps:
            return None
        right = "told still: schemas were forgotten while the changes were on their way; commit them again"
        return InvalidChange("schema_version", stamps, right)

    def done(self, version: int) -> None:
        """Registers the schemas of the commit, which is now a version of the log; the caller holds the turn."""
        self._schemas.adopt(
            msgspec.structs.replace(part, position=Position(version, part.position.index))
            for part in self._recorded
        )

    def _stamped(self, columns: Columns) -> Columns:
        known = [self._known(name) for name in columns.entity_types]
        if not (self.registers and has_schemas(columns)):
            if not any(known):
                return columns
            if columns.meta is None:
                newest = {
                    name: parts[-1] for name, parts in zip(columns.entity_types, known, strict=True) if parts
                }
                return with_versions(columns, newest)
        metas: list[bytes | None] = [None] * columns.count if columns.meta is None else list(columns.meta)
        for row in range(columns.count):
            type_id = 0 if columns.type_ids is None else columns.type_ids[row]
            entity_type, versions = columns.entity_types[type_id], known[type_id]
            if columns.kinds[row] in _PARTS:
                metas[row] = self._register(columns, row, metas[row], entity_type, versions)
            elif versions:
                metas[row] = _checked(metas[row], entity_type, versions)
        return with_meta(columns, Column.of(metas))

    def _known(self, entity_type: str) -> list[int]:
        """The versions of an entity type, including those that this commit registers."""
        found = self._versions.get(entity_type)
        if found is None:
            found = self._versions[entity_type] = list(self._schemas.versions(entity_type))
        return found

    def _register(
        self, columns: Columns, row: int, meta: bytes | None, entity_type: str, versions: list[int]
    ) -> bytes:
        newest = versions[-1] if versions else 0
        given = attached_of(meta).schema_version
        version = newest + 1 if given is None else given
        part = (columns.key[row] or b"").decode("utf-8", "replace")
        parts = {known.part for known in self._recorded if known.entity_type == entity_type}
        if version < newest or (version == newest and (not parts or part in parts)):
            raise InvalidChange("version", version, f"above {newest}, the newest schema of {entity_type!r}")
        if not self._recorded:
            self._schemas.mark()
        if version > newest:
            versions.append(version)
        body = columns.body[row] if columns.body is not None else None
        place = Position(0, self._rows + row + 1)
        self._recorded.append(RecordedSchema(entity_type, part, version, place, msgspec.Raw(body or b"null")))
        return _spliced(meta, version) if given is None else meta or b""


def has_schemas(columns: Columns) -> bool:
    """Whether any of the changes is a schema."""
    return not _PARTS.isdisjoint(bytes(columns.kinds))


def unsealed(transaction: Transaction) -> Iterator[Columns]:
    """Decodes the changes of a sealed transaction that was not written."""
    for sealed, data in transaction.read():
        payload = inflate(data, sealed.raw) if sealed.flags & COMPRESSED else data
        yield decode_payload(payload, sealed.count)[0]


def _checked(meta: bytes | None, entity_type: str, versions: list[int]) -> bytes | None:
    """The ``meta`` of a change with a checked schema version; the newest if it names none."""
    attached = attached_of(meta)
    if attached.error is not None:
        return meta
    given = attached.schema_version
    if given is None:
        return _spliced(meta, versions[-1])
    if given not in versions:
        raise InvalidChange(
            "schema_version", given, f"told before: the newest schema of {entity_type!r} is {versions[-1]}"
        )
    return meta


def _spliced(meta: bytes | None, version: int) -> bytes:
    return spliced(meta, b'"schema_version":%d' % version)


def _repeated(columns: Columns, stamps: list[bytes | None]) -> Column:
    """A column that repeats the stamp of each type; without a loop if there is only one type."""
    count = columns.count
    if columns.type_ids is not None:
        return Column.of([stamps[type_id] for type_id in columns.type_ids])
    stamp = stamps[0] or b""
    size = len(stamp)
    return Column(None, memoryview(array("i", range(0, size * count + 1, size))), memoryview(stamp * count))


def with_versions(columns: Columns, versions: Mapping[str, int]) -> Columns:
    """Stamps changes without ``meta`` with the schema versions of their entity types; types without a schema stay as they are."""
    if versions.keys().isdisjoint(columns.entity_types):
        return columns
    stamps = [_spliced(None, versions[name]) if name in versions else None for name in columns.entity_types]
    return with_meta(columns, _repeated(columns, stamps))


def with_meta(columns: Columns, meta: Column) -> Columns:
    """The same changes with another ``meta`` column."""
    body, before, changed, _ = columns.optional
    return Columns(
        columns.kinds, columns.entity_types, columns.type_ids, columns.key, body, before, changed, meta
    )

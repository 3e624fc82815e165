"""What a commit does about schemas: it stamps its changes, and tells those that are among them."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from publishers.blocks.decode import attached_of, spliced
from publishers.errors import InvalidChange
from publishers.model.change import Area
from publishers.model.position import Position
from publishers.schemas.registry import Schemas, Told
from publishers.wal import Column, Columns, Transaction, decode_payload
from publishers.wal.format.compression import inflate
from publishers.wal.format.frame import COMPRESSED

__all__ = ["Stamping", "tells_schemas", "unsealed", "with_meta", "with_versions"]

_PARTS: Final = frozenset(range(Area.SCHEMA * 16, Area.SCHEMA * 16 + 16))


class Stamping:
    """What one commit does about schemas: it stamps its changes, and tells schemas if some are among them.

    Changes that tell schemas, and those behind them, are stamped under ``Schemas.turn``, once they have all been made: the code
    that makes them may commit, and tell schemas, itself.

    Args:
        schemas: Of the log.

    Attributes:
        tells: Whether schemas are among the changes seen so far.
    """

    def __init__(self, schemas: Schemas) -> None:
        self.tells = False
        self._schemas = schemas
        self._told: list[Told] = []
        self._forgotten = schemas.forgotten  # before any version is looked up
        self._versions: dict[str, list[int]] = {}
        self._rows = 0

    def through(self, batches: Iterable[Columns]) -> Iterator[Columns]:
        """The same changes, each with the version of its schema, as far as one was told.

        From the first that tells a schema on they are left as they are, for `telling`.

        Raises:
            InvalidChange: If a change names a version that was not told before it.
        """
        for columns in batches:
            self.tells = self.tells or tells_schemas(columns)
            if self.tells:
                yield columns
            else:
                yield self._stamped(columns)
                self._rows += columns.count

    def telling(self, batches: Iterable[Columns]) -> Iterator[Columns]:
        """The same changes with those stamped that `through` has left, or all of them; for whoever has the turn.

        Raises:
            InvalidChange: If a change names a version that was not told before it, or tells one that does not rise.
        """
        self._schemas.load(ours=True)
        if not any(self._versions.values()):  # nothing was stamped before, and from now on nobody forgets
            self._forgotten = self._schemas.forgotten
        self._versions.clear()
        stamped, self._rows = self._rows, 0
        for columns in batches:
            yield columns if self._rows < stamped else self._stamped(columns)
            self._rows += columns.count

    def vouch(self, versions: Mapping[str, int]) -> None:
        """Takes changes for stamped that others have stamped since this was made.

        Args:
            versions: Of their entity types, those that they were stamped with.

        Raises:
            InvalidChange: If one was not told.
        """
        for entity_type, version in versions.items():
            if version not in self._known(entity_type):
                raise InvalidChange(
                    "schema_version", version, f"told before the changes of {entity_type!r} are committed"
                )

    def outdated(self) -> InvalidChange | None:
        """Why the commit may not be written: schemas that it was stamped with may be forgotten. None if it may be."""
        if self._forgotten == self._schemas.forgotten:
            return None
        stamps = {name: versions[-1] for name, versions in self._versions.items() if versions}
        if not stamps:
            return None
        right = "told still: schemas were forgotten while the changes were on their way; commit them again"
        return InvalidChange("schema_version", stamps, right)

    def done(self, version: int) -> None:
        """The commit has become a version of the log; for whoever has the turn."""
        self._schemas.adopt(
            msgspec.structs.replace(told, position=Position(version, told.position.index))
            for told in self._told
        )

    def _stamped(self, columns: Columns) -> Columns:
        known = [self._known(name) for name in columns.entity_types]
        if not (self.tells and tells_schemas(columns)):
            if not any(known):
                return columns
            if columns.meta is None:
                newest = {
                    name: told[-1] for name, told in zip(columns.entity_types, known, strict=True) if told
                }
                return with_versions(columns, newest)
        metas: list[bytes | None] = [None] * columns.count if columns.meta is None else list(columns.meta)
        for row in range(columns.count):
            type_id = 0 if columns.type_ids is None else columns.type_ids[row]
            entity_type, versions = columns.entity_types[type_id], known[type_id]
            if columns.kinds[row] in _PARTS:
                metas[row] = self._tell(columns, row, metas[row], entity_type, versions)
            elif versions:
                metas[row] = _checked(metas[row], entity_type, versions)
        return with_meta(columns, Column.of(metas))

    def _known(self, entity_type: str) -> list[int]:
        """The versions of an entity type, those included that this commit tells."""
        found = self._versions.get(entity_type)
        if found is None:
            found = self._versions[entity_type] = list(self._schemas.versions(entity_type))
        return found

    def _tell(
        self, columns: Columns, row: int, meta: bytes | None, entity_type: str, versions: list[int]
    ) -> bytes:
        newest = versions[-1] if versions else 0
        given = attached_of(meta).schema_version
        version = newest + 1 if given is None else given
        part = (columns.key[row] or b"").decode("utf-8", "replace")
        parts = {told.part for told in self._told if told.entity_type == entity_type}
        if version < newest or (version == newest and (not parts or part in parts)):
            raise InvalidChange("version", version, f"above {newest}, the newest schema of {entity_type!r}")
        if not self._told:
            self._schemas.mark()
        if version > newest:
            versions.append(version)
        body = columns.body[row] if columns.body is not None else None
        place = Position(0, self._rows + row + 1)
        self._told.append(Told(entity_type, part, version, place, msgspec.Raw(body or b"null")))
        return _spliced(meta, version) if given is None else meta or b""


def tells_schemas(columns: Columns) -> bool:
    """Whether schemas are among some changes."""
    return not _PARTS.isdisjoint(bytes(columns.kinds))


def unsealed(transaction: Transaction) -> Iterator[Columns]:
    """The changes of a transaction that was not written."""
    for sealed, data in transaction.read():
        payload = inflate(data, sealed.raw) if sealed.flags & COMPRESSED else data
        yield decode_payload(payload, sealed.count)[0]


def _checked(meta: bytes | None, entity_type: str, versions: list[int]) -> bytes | None:
    """The ``meta`` of a change with the version of its schema."""
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
    """One value for all changes of a type; without a loop if there is just one type."""
    count = columns.count
    if columns.type_ids is not None:
        return Column.of([stamps[type_id] for type_id in columns.type_ids])
    stamp = stamps[0] or b""
    size = len(stamp)
    return Column(None, memoryview(array("i", range(0, size * count + 1, size))), memoryview(stamp * count))


def with_versions(columns: Columns, versions: Mapping[str, int]) -> Columns:
    """Changes to which nothing is attached, stamped with the version of the schema of their entity type, as far as there is one."""
    if versions.keys().isdisjoint(columns.entity_types):
        return columns
    stamps = [_spliced(None, versions[name]) if name in versions else None for name in columns.entity_types]
    return with_meta(columns, _repeated(columns, stamps))


def with_meta(columns: Columns, meta: Column) -> Columns:
    """The same changes with something else attached."""
    body, before, changed, _ = columns.optional
    return Columns(
        columns.kinds, columns.entity_types, columns.type_ids, columns.key, body, before, changed, meta
    )

"""What a commit does about schemas: it stamps its changes, and tells those that are among them."""

import contextlib
from array import array
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self

import msgspec

from publishers.change import Area
from publishers.decoding import attached_of, spliced
from publishers.errors import InvalidChange, LogFailed
from publishers.position import Position
from publishers.schemas import Schemas, Told
from publishers.wal import Column, Columns

__all__ = ["Telling"]

_PARTS: Final = frozenset(range(Area.SCHEMA * 16, Area.SCHEMA * 16 + 16))
_SIGNALS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)  # after them nobody knows how far it went


class Telling:
    """What one commit does about schemas: it stamps its changes, and tells schemas if some are among them.

    As a context manager around the commit it lets only one commit at a time tell schemas, and keeps the file right.

    Args:
        schemas: Of the log.
    """

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._told: list[Told] = []
        self._versions: dict[str, list[int]] = {}
        self._rows = 0
        self._held = False

    @property
    def tells(self) -> bool:
        """Whether schemas are among the changes seen so far."""
        return self._held

    def through(self, batches: Iterable[Columns]) -> Iterator[Columns]:
        """The same changes, each of them with the version of its schema, as far as one was told.

        Raises:
            InvalidChange: If a change names a version that was not told before it, or tells one that does not rise.
        """
        for columns in batches:
            yield self._stamped(columns)
            self._rows += columns.count

    def done(self, version: int) -> None:
        """The commit has become a version of the log."""
        if self._told:
            self._schemas.adopt(
                msgspec.structs.replace(told, position=Position(version, told.position.index))
                for told in self._told
            )
            self._told = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._held:
            try:
                if self._told and (kind is None or not issubclass(kind, (LogFailed, *_SIGNALS))):
                    with contextlib.suppress(OSError):  # a repetition, or refused: nothing was told after all
                        self._schemas.write(None)
            finally:
                self._schemas.release(self)

    def _stamped(self, columns: Columns) -> Columns:
        tells = not _PARTS.isdisjoint(bytes(columns.kinds))
        if tells and not self._held:
            self._held = True
            self._schemas.seize(self)
            self._versions.clear()
        known = [self._known(name) for name in columns.entity_types]
        if not tells:
            if not any(known):
                return columns
            if columns.meta is None:
                return _with_meta(columns, _repeated(columns, [_stamp(versions) for versions in known]))
        metas: list[bytes | None] = [None] * columns.count if columns.meta is None else list(columns.meta)
        for row in range(columns.count):
            type_id = 0 if columns.type_ids is None else columns.type_ids[row]
            entity_type, versions = columns.entity_types[type_id], known[type_id]
            if columns.kinds[row] in _PARTS:
                metas[row] = self._tell(columns, row, metas[row], entity_type, versions)
            elif versions:
                metas[row] = _checked(metas[row], entity_type, versions)
        return _with_meta(columns, Column.of(metas))

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
        again = any(told.entity_type == entity_type and told.part == part for told in self._told)
        if version < newest or (version == newest and (again or not self._tells_now(entity_type))):
            raise InvalidChange("version", version, f"above {newest}, the newest schema of {entity_type!r}")
        if not self._told:
            self._schemas.mark()
        if version > newest:
            versions.append(version)
        body = columns.body[row] if columns.body is not None else None
        place = Position(0, self._rows + row + 1)
        self._told.append(Told(entity_type, part, version, place, msgspec.Raw(body or b"null")))
        return _spliced(meta, version) if given is None else meta or b""

    def _tells_now(self, entity_type: str) -> bool:
        return any(told.entity_type == entity_type for told in self._told)


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


def _stamp(versions: list[int]) -> bytes | None:
    return _spliced(None, versions[-1]) if versions else None


def _repeated(columns: Columns, stamps: list[bytes | None]) -> Column:
    """One value for all changes of a type; without a loop if there is just one type."""
    count = columns.count
    if columns.type_ids is not None:
        return Column.of([stamps[type_id] for type_id in columns.type_ids])
    stamp = stamps[0] or b""
    size = len(stamp)
    return Column(None, memoryview(array("i", range(0, size * count + 1, size))), memoryview(stamp * count))


def _with_meta(columns: Columns, meta: Column) -> Columns:
    body, before, changed, _ = columns.optional
    return Columns(
        columns.kinds, columns.entity_types, columns.type_ids, columns.key, body, before, changed, meta
    )

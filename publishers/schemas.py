"""Which schemas a log has told, and by which one each change was written.

A schema is told by a change of the area SCHEMA and has a version: a number that rises for each entity type. Versions told
lie also in a small file beside the segments, so that neither opening a log nor retention asks for a scan: the file is
replaced after each commit that tells a schema, and marked before it; only if a crash came in between is what was written
behind the mark looked through.
"""

import contextlib
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from publishers.change import Area, Change
from publishers.decoding import attached_of
from publishers.errors import InvalidChange, LogFailed
from publishers.lossless import Reader, reader
from publishers.position import Position
from publishers.wal import Column, Columns, FileSystem
from publishers.wal.filesystem import write_all

__all__ = ["SCHEMAS_NAME", "SchemaVersion", "Schemas", "Telling"]

SCHEMAS_NAME: Final = "SCHEMAS"

_PARTS: Final = frozenset(range(Area.SCHEMA * 16, Area.SCHEMA * 16 + 16))
_ENTITY: Final = "entity"
_SIGNALS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)  # after them nobody knows how far it went


class SchemaVersion(msgspec.Struct, frozen=True):
    """A schema as it was told.

    Attributes:
        entity_type: Of which entities.
        version: Its version.
        position: Where it was told.
        parts: JSON of each part by name, those included that an earlier version told and this one left as they were.
    """

    entity_type: str
    version: int
    position: Position
    parts: Mapping[str, bytes]

    @property
    def body(self) -> Any:
        """The part that describes the entity itself, parsed; None if there is none."""
        text = self.parts.get(_ENTITY)
        return None if text is None else msgspec.json.decode(text)

    def reader(self) -> Reader:
        """What turns parsed bodies into Python values; see ``publishers.lossless.reader``."""
        return reader(self.body)


class _Told(msgspec.Struct, frozen=True):
    """One change that told a schema, or a part of one."""

    entity_type: str
    part: str
    version: int
    position: Position
    body: msgspec.Raw


class _File(msgspec.Struct):
    """What lies beside the segments; ``pending`` is the version behind which something may be missing."""

    told: list[_Told]
    pending: int | None = None


class Schemas:
    """The schemas of one log. Thread-safe.

    Args:
        filesystem: Where the file is.
        directory: That of the log.
        replay: Reads the changes of the area SCHEMA from a position on.
        newest: The newest version of the log, for its owner; None for others, who read the file again each time.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        replay: Callable[[Position], Iterable[Change]],
        newest: Callable[[], int] | None,
    ) -> None:
        self._lock = threading.Lock()
        self._free = threading.Condition(self._lock)
        self._teller: object = None
        self._filesystem = filesystem
        self._directory = directory
        self._replay = replay
        self._newest = newest
        self._owned = newest is not None
        self._told: list[_Told] | None = None
        self._versions: dict[str, list[int]] = {}
        self._loading = threading.Lock()

    def seize(self, teller: object) -> None:
        """Waits until nobody else tells schemas; from then on ``teller`` does, until it is released.

        Who holds it is one attribute, so an interrupt at any place leaves no doubt about it.
        """
        with self._lock:
            while self._teller is not None:
                self._free.wait()
            self._teller = teller

    def release(self, teller: object) -> None:
        """Ends what ``seize`` began; does nothing if it did not get that far."""
        with self._lock:
            if self._teller is teller:
                self._teller = None
                self._free.notify()

    def versions(self, entity_type: str) -> list[int]:
        """The versions told of an entity type, rising."""
        self._load()
        return self._versions.get(entity_type, [])

    def find(self, entity_type: str, version: int | None = None) -> SchemaVersion | None:
        """A schema by its version, or the newest; None if it was not told."""
        self._load()
        parts: dict[str, bytes] = {}
        last: _Told | None = None
        for told in self._told or ():
            if told.entity_type == entity_type and (version is None or told.version <= version):
                parts[told.part] = bytes(told.body)
                last = told
        if last is None or (version is not None and last.version != version):
            return None
        return SchemaVersion(entity_type, last.version, last.position, parts)

    def adopt(self, told: Iterable[_Told]) -> None:
        """Adds what a commit has told, and writes the file."""
        for one in told:
            self._add(one)
        with contextlib.suppress(OSError):  # it is committed; the mark stays, so the next opening looks
            self.write(None)

    def forget_after(self, version: int) -> None:
        """Forgets what was told above a version, which is gone.

        Raises:
            OSError: What the file system raises; then the next opening sees to it.
        """
        teller = object()
        try:
            self.seize(teller)
            self._load()
            kept = [told for told in self._told or () if told.position.version <= version]
            if len(kept) < len(self._told or ()):
                self._fill(kept)
                self.write(None)
        finally:
            self.release(teller)

    def mark(self) -> None:
        """Writes into the file that a schema is about to be told.

        Raises:
            OSError: What the file system raises.
        """
        self.write(0 if self._newest is None else self._newest())

    def write(self, pending: int | None) -> None:
        """Replaces the file, durably.

        Raises:
            OSError: What the file system raises.
        """
        text = msgspec.json.encode(_File(self._told or [], pending))
        fresh = self._directory / f"{SCHEMAS_NAME}.tmp"
        file = self._filesystem.open(fresh, "create")
        try:
            file.truncate(0)
            write_all(file, text, 0)
            file.sync()
        finally:
            file.close()
        self._filesystem.rename(fresh, self._directory / SCHEMAS_NAME)
        self._filesystem.sync_directory(self._directory)

    def _load(self) -> None:
        if self._told is not None and self._owned:
            return
        with self._loading:
            if self._told is not None and self._owned:
                return
            found = self._read()
            told = found.told
            if self._newest is not None:  # a crash may have come before those that are gone were forgotten
                last = self._newest()
                told = [one for one in told if one.position.version <= last]
            if found.pending is not None:
                known = {one.position for one in told}
                changes = self._replay(Position(found.pending + 1))
                told += [_told_by(change) for change in changes if change.position not in known]
            self._fill(told)
            if self._owned and found.pending is not None:
                self.write(None)

    def _read(self) -> _File:
        try:
            file = self._filesystem.open(self._directory / SCHEMAS_NAME, "read")
        except FileNotFoundError:
            return _File([])
        with contextlib.closing(file):
            text = file.pread(file.size(), 0)
        try:
            return msgspec.json.decode(text, type=_File)
        except msgspec.DecodeError:  # it is derived from the log, so what is kept of that is looked through
            return _File([], 0)

    def _fill(self, told: list[_Told]) -> None:
        self._versions = {}
        self._told = []
        for one in told:
            self._add(one)

    def _add(self, told: _Told) -> None:
        versions = self._versions.setdefault(told.entity_type, [])
        if not versions or versions[-1] < told.version:
            versions.append(told.version)
        assert self._told is not None
        self._told.append(told)


class Telling:
    """What one commit does about schemas: it stamps its changes, and tells schemas if some are among them.

    As a context manager around the commit it lets only one commit at a time tell schemas, and keeps the file right.

    Args:
        schemas: Of the log.
    """

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._told: list[_Told] = []
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
        self._told.append(_Told(entity_type, part, version, place, msgspec.Raw(body or b"null")))
        return _spliced(meta, version) if given is None else meta or b""

    def _tells_now(self, entity_type: str) -> bool:
        return any(told.entity_type == entity_type for told in self._told)


def _told_by(change: Change) -> _Told:
    return _Told(
        change.entity_type or "",
        change.key or "",
        change.schema_version or 0,
        change.position,
        msgspec.Raw(change.body_bytes or b"null"),
    )


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
    rest = b"}" if meta is None else meta.strip()[1:].lstrip()
    return b'{"schema_version":%d%s%s' % (version, b"" if rest == b"}" else b",", rest)


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

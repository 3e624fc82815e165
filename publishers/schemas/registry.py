"""The registered schemas of a log.

A change of the area SCHEMA registers a schema under a version: a number that rises for each entity type. The registered versions
are also kept in a small file beside the segments, so that neither opening a log nor retention needs a scan.

Each commit that registers schemas writes a mark into the file before it, and replaces the file after it. The mark is a version of
the log: the file is not trusted for later versions, and after a crash the log is scanned from there. Truncating withheld commits
sets the same mark. A commit that registers schemas holds ``Schemas.turn`` from writing its mark to replacing the file. A mark that
exists while no thread holds the turn belongs to a commit that was refused or interrupted; the next reader scans the log from it. If
the file cannot be replaced, the housekeeping retries, and retention deletes nothing behind the mark meanwhile. If the log fails,
the mark stays, since the next opening may find more commits behind it.

The file has two copies (`publishers.wal.files.mirrored_file`). If both are damaged, the whole log is scanned. If retention has
already deleted part of the log, the missing schemas cannot be found, and an error says so; versions are never invented.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from publishers.blocks.block import Block
from publishers.errors import InvalidOption, PenstockError, WalCorrupted
from publishers.lossless import Reader, reader
from publishers.model.change import Area, Change
from publishers.model.errors import brief
from publishers.model.position import Position
from publishers.views.view import Content, View
from publishers.wal import FileSystem, Follower, Wal
from publishers.wal import Reader as LogReader
from publishers.wal.files.mirrored_file import MirroredFile

__all__ = ["SCHEMAS_NAME", "RecordedSchema", "SchemaVersion", "Schemas"]

SCHEMAS_NAME: Final = "SCHEMAS"

_ENTITY: Final = "entity"
_BODY: Final = View(content=Content.BODY)
_UNWRITTEN: Final = f"{SCHEMAS_NAME} cannot be put right"
_log: Final = logging.getLogger("penstock.housekeeping")


class SchemaVersion(msgspec.Struct, frozen=True):
    """A registered schema.

    Attributes:
        entity_type: The entity type that it describes.
        version: Its version.
        position: The position of the change that registered it, or its last part.
        parts: The JSON of each part by name, including the parts of earlier versions that this version did not replace.
    """

    entity_type: str
    version: int
    position: Position
    parts: Mapping[str, bytes]

    __repr__ = brief

    @property
    def body(self) -> Any:
        """The parsed part that describes the entity itself; None if there is none."""
        text = self.parts.get(_ENTITY)
        return None if text is None else msgspec.json.decode(text)

    def reader(self) -> Reader:
        """A function that turns parsed bodies into Python values; see ``publishers.lossless.reader``."""
        return reader(self.body)


class RecordedSchema(msgspec.Struct, frozen=True):
    """One change that registered a schema, or a part of one."""

    entity_type: str
    part: str
    version: int
    position: Position
    body: msgspec.Raw


class _File(msgspec.Struct):
    """The content of the file; ``pending`` is the mark: schemas of later versions of the log may be missing."""

    told: list[RecordedSchema]
    pending: int | None = None


class Schemas:
    """The schemas of one log. Thread-safe.

    The owner of the log caches all registered schemas. A follower reads the file at each call, and returns visible schemas only.

    Args:
        files: The WAL of the log, or its follower.
        filesystem: Where the files are.
        failed: Returns whether the log has failed, so that the next opening may find more commits than can be read now.

    Attributes:
        turn: Held by a commit that registers schemas, and by a truncation that removes some: from before versions are assigned
            until this object has recorded the outcome. No code of a caller runs under it.
        forgotten: The number of truncations that removed schemas, including one that has just begun.
    """

    def __init__(
        self, files: Wal | Follower, filesystem: FileSystem, failed: Callable[[], bool] = lambda: False
    ) -> None:
        self.turn: threading.Lock = threading.Lock()
        self.forgotten: int = 0
        self._files = files
        self._owner = files if isinstance(files, Wal) else None
        self._file = MirroredFile(filesystem, files.directory, SCHEMAS_NAME)
        self._failed = failed
        self._recorded: list[RecordedSchema] | None = None
        # The mark: a commit behind this version may have registered schemas that are not in ``_recorded`` yet.
        self._marked: int | None = None
        # The file may lack schemas behind this version. 0, the whole log, until the file was read.
        self._owed: int | None = 0
        self._complained = False
        self._versions: dict[str, list[int]] = {}
        self._loading = threading.Lock()

    def versions(self, entity_type: str) -> list[int]:
        """The registered versions of an entity type, rising."""
        if self._recorded is None or self._owner is None or self._marked is not None:
            self.load()
        return self._versions.get(entity_type, [])

    def find(self, entity_type: str, version: int | None = None) -> SchemaVersion | None:
        """A schema by its version, or the newest; None if it was not registered, or is not visible yet.

        Raises:
            InvalidOption: If the entity type is no text, or the version neither an integer nor None.
        """
        if not isinstance(entity_type, str):
            raise InvalidOption("entity_type", entity_type, "the name of an entity type")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
            raise InvalidOption("version", version, "the version of a schema, or None for the newest")
        found: SchemaVersion | None = None
        for schemas in self._shown():
            found = _assembled(schemas, entity_type, version)
            if found is not None and version is not None:
                break
        return found

    def by_type(self) -> dict[str, tuple[int, ...]]:
        """The visible schema versions by entity type, rising."""
        versions: dict[str, list[int]] = {}
        for schemas in self._shown():
            for one in schemas:
                _note(versions, one)
        return {name: tuple(found) for name, found in sorted(versions.items())}

    def _shown(self) -> Iterator[list[RecordedSchema]]:
        """The visible schemas; then, if there is a mark, the same with those found in the log behind it."""
        # The mark is read before the schemas: while they are copied, a commit may add to them and clear the mark.
        marked, visible = self._marked, self._visible()
        schemas = [one for one in self.load() if one.position.version <= visible]
        yield schemas
        if marked is not None:
            # A subscriber may receive a change before its commit calls ``adopt``.
            more = self._since(marked, schemas, self._files.reader)
            yield schemas + [one for one in more if one.position.version <= visible]

    def adopt(self, schemas: Iterable[RecordedSchema]) -> None:
        """Adds the schemas of a commit, and writes the file; the caller holds the turn."""
        assert self._recorded is not None
        added = list(schemas)
        for one in added:
            _note(self._versions, one)
        self._recorded += added  # in one step: concurrent readers see all parts of a version
        with contextlib.suppress(OSError):  # the commit is durable; the mark stays, and ``settle`` retries
            self.write(None)

    def forgetting(self, version: int, forget: Callable[[], None]) -> None:
        """Truncates the log behind a version, together with the schemas registered there.

        It holds the turn, so no commit registers schemas meanwhile. After a crash or a disk error the mark stays, and the next
        load scans the log from it.

        Args:
            version: The last version that stays.
            forget: Truncates the log itself.

        Raises:
            OSError: If the file system refuses the mark; then nothing was truncated.
        """
        with self.turn:
            schemas = self.load(ours=True)
            kept = [one for one in schemas if one.position.version <= version]
            # Visible versions are never truncated, and retention may have deleted segments behind a mark that old.
            if len(kept) == len(schemas) or version < self._visible():
                forget()
                return
            self.write(version)
            self._fill(kept)
            # After ``_fill``: a commit that reads this count is not stamped with the removed schemas.
            self.forgotten += 1
            forget()
            with contextlib.suppress(OSError):
                self.write(None)

    def mark(self) -> None:
        """Writes the mark before a commit that registers schemas; the caller holds the turn.

        Raises:
            OSError: From the file system.
        """
        self.write(self._newest())

    def write(self, pending: int | None) -> None:
        """Replaces the file durably. The file of a failed log stays as it is: its mark makes the next opening scan the log.

        Args:
            pending: The mark to write; None if the file is complete.

        Raises:
            OSError: From the file system.
        """
        self._marked = pending
        if pending is not None:
            self._owed = pending if self._owed is None else min(self._owed, pending)
        if self._owner is None or self._failed():
            return
        text = msgspec.json.encode(_File(self._recorded or [], pending))
        self._owner.insist(lambda: self._file.write(text))
        self._owed = pending

    def settle(self) -> int:
        """Retries a failed write of the file; called by the housekeeping and at the opening.

        It raises no error of the disk. It does not wait for the turn: its holder writes the file.

        Returns:
            The oldest version of the log that retention must keep: from there on the log may hold schemas that the file lacks.
        """
        unseen = self._visible() + 1  # read first: schemas that are registered from now on lie behind it
        try:
            self.load()
            if self._owed is not None and self.turn.acquire(blocking=False):
                try:
                    self.load(ours=True)
                    self.write(None)
                finally:
                    self.turn.release()
            if self._owed is None:
                self._complained = False
        except (OSError, PenstockError) as error:
            if not self._complained:
                self._complained = True
                _log.warning("%s: %s; what may tell schemas is not deleted until it can", _UNWRITTEN, error)
        owed = self._owed
        return unseen if owed is None else min(owed + 1, unseen)

    def load(self, *, ours: bool = False) -> list[RecordedSchema]:
        """All registered schemas. The owner reads the file once, and scans the log behind a mark whose commit has ended.

        Args:
            ours: Whether the caller has just acquired the turn, so that an existing mark belongs to an earlier holder.

        Raises:
            WalCorrupted: If the file is damaged, and cannot be rebuilt from the kept part of the log.
        """
        schemas = self._recorded
        if (
            schemas is not None
            and self._owner
            and (self._marked is None or (not ours and self.turn.locked()))
        ):
            return schemas
        with self._loading:
            schemas = self._recorded
            if schemas is None or not self._owner:
                return self._begin()
            marked = self._marked
            # A mark that is the same before and after the turn was seen to be free has no running commit: a thread that
            # acquires the turn now loads first, and waits for ``_loading``. The next commit would write another mark.
            if marked is not None and (ours or not self.turn.locked()) and self._marked == marked:
                schemas = [one for one in schemas if one.position.version <= marked]
                schemas += self._since(marked, schemas)
                # The mark is cleared last: an interrupt before that makes the next load scan again.
                self._fill(schemas)
                self._marked = None
            return schemas

    def _begin(self) -> list[RecordedSchema]:
        found, even = self._read()
        # The file may still hold schemas that were truncated, or that are withheld from followers.
        last = self._newest()
        if found.pending is not None:
            last = min(last, found.pending)
        schemas = [one for one in found.told if one.position.version <= last]
        if self._owner:
            self._owed = found.pending if even and len(schemas) == len(found.told) else 0
        if found.pending is not None:
            schemas += self._since(found.pending, schemas)
        self._fill(schemas)
        return schemas

    def _since(
        self, version: int, schemas: Iterable[RecordedSchema], reader: LogReader | None = None
    ) -> list[RecordedSchema]:
        """The schemas registered in the log behind a version, without the known ones.

        Withheld commits may be truncated meanwhile.
        """
        known = {one.position for one in schemas}
        reader = reader or (self._owner.whole if self._owner else self._files.reader)
        changes = self._replay(reader, version + 1)
        return [_part_of(change) for change in changes if change.position not in known]

    def _replay(self, reader: LogReader, version: int) -> Iterator[Change]:
        """The changes of the area SCHEMA, from a version to the end of a reader."""
        location = reader.locate(max(version, reader.oldest))
        while (frame := reader.read(location)) is not None:
            block = Block.of(frame.header, *frame.decoded)
            for index in block.indices:
                if block.area(index) is Area.SCHEMA:
                    yield block.change(index, _BODY)
            location = frame.next

    def _newest(self) -> int:
        """The newest version of the log for its owner; the newest visible version for a follower."""
        return self._owner.appended if self._owner else self._visible()

    def _visible(self) -> int:
        """The newest visible version: a lookup finds no schema that was registered behind it."""
        return self._files.shown if isinstance(self._files, Follower) else self._files.visible

    def _read(self) -> tuple[_File, bool]:
        """The content of the file, and whether both copies agree."""
        found = self._file.read()
        if not found.exists:
            return _File([]), True
        try:
            if found.text is not None:
                return msgspec.json.decode(found.text, type=_File), found.even
        except ValueError:
            pass  # the checksum is right, but penstock never wrote this content
        oldest = self._files.reader.oldest
        if oldest > 1:
            why = (
                f"{SCHEMAS_NAME} and its copy are damaged, and schemas may have been told before version {oldest}, "
                "the oldest that is kept; without both files, versions of schemas begin anew"
            )
            raise WalCorrupted(0, 0, why)
        return _File([], 0), False

    def _fill(self, schemas: list[RecordedSchema]) -> None:
        versions: dict[str, list[int]] = {}
        for one in schemas:
            _note(versions, one)
        self._versions, self._recorded = versions, schemas  # replaced as a whole, for concurrent readers


def _note(versions: dict[str, list[int]], schema: RecordedSchema) -> None:
    known = versions.setdefault(schema.entity_type, [])
    if not known or known[-1] < schema.version:
        known.append(schema.version)


def _assembled(
    schemas: Iterable[RecordedSchema], entity_type: str, version: int | None
) -> SchemaVersion | None:
    """A version of a schema with all its parts, or the newest; None if it was not registered."""
    parts: dict[str, bytes] = {}
    last: RecordedSchema | None = None
    for one in schemas:
        if one.entity_type == entity_type and (version is None or one.version <= version):
            parts[one.part] = bytes(one.body)
            last = one
    if last is None or (version is not None and last.version != version):
        return None
    return SchemaVersion(entity_type, last.version, last.position, parts)


def _part_of(change: Change) -> RecordedSchema:
    return RecordedSchema(
        change.entity_type or "",
        change.key or "",
        change.schema_version or 0,
        change.position,
        msgspec.Raw(change.body_bytes or b"null"),
    )

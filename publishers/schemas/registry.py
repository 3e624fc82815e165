"""Which schemas a log has told, and by which one each change was written.

A schema is told by a change of the area SCHEMA and has a version: a number that rises for each entity type. Versions told
lie also in a small file beside the segments, so that neither opening a log nor retention asks for a scan: the file is
replaced after each commit that tells a schema, and marked before it. Behind a mark nothing in the file is believed; if a
crash came in between, what was written there is looked through. Forgetting withheld commits sets the same mark. A commit that
tells schemas has the turn (``Schemas.turn``) from its mark to the file; a mark that is there while nobody has it is of a commit
that was refused or interrupted, and the next one who asks looks behind it. Where the file cannot be replaced the housekeeping
tries again, and nothing behind the mark is deleted meanwhile. When the log fails the mark stays, for the next opening may find
more there.

There are two copies of it (`publishers.wal.files.mirrored_file`). Is neither whole, all of the log is looked through; if retention has
deleted some of that already, nobody can tell what is missing, and the log says so instead of making versions up.
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
from publishers.model.position import Position
from publishers.views.view import Content, View
from publishers.wal import FileSystem, Follower, Wal
from publishers.wal import Reader as LogReader
from publishers.wal.files.mirrored_file import MirroredFile

__all__ = ["SCHEMAS_NAME", "SchemaVersion", "Schemas", "Told"]

SCHEMAS_NAME: Final = "SCHEMAS"

_ENTITY: Final = "entity"
_BODY: Final = View(content=Content.BODY)
_UNWRITTEN: Final = f"{SCHEMAS_NAME} cannot be put right"
_log: Final = logging.getLogger("penstock.housekeeping")


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


class Told(msgspec.Struct, frozen=True):
    """One change that told a schema, or a part of one."""

    entity_type: str
    part: str
    version: int
    position: Position
    body: msgspec.Raw


class _File(msgspec.Struct):
    """What lies beside the segments; ``pending`` is the version behind which something may be missing."""

    told: list[Told]
    pending: int | None = None


class Schemas:
    """The schemas of one log. Thread-safe.

    The owner knows all that were told; others know those that are shown, and read the file again each time.

    Args:
        files: Of the log.
        filesystem: Where they are.
        failed: Whether the log has failed, so that the next opening may find more in it than can be read now.

    Attributes:
        turn: Held by a commit that tells schemas and by what forgets some, from before versions are given until what has
            become of them is known here. No code of a caller runs under it.
        forgotten: How often schemas were, or were about to be, forgotten.
    """

    def __init__(
        self, files: Wal | Follower, filesystem: FileSystem, failed: Callable[[], bool] = lambda: False
    ) -> None:
        self.turn = threading.Lock()
        self.forgotten = 0
        self._files = files
        self._owner = files if isinstance(files, Wal) else None
        self._file = MirroredFile(filesystem, files.directory, SCHEMAS_NAME)
        self._failed = failed
        self._told: list[Told] | None = None
        # Behind this version a commit may have told what is not in ``_told`` yet.
        self._marked: int | None = None
        # Behind this version the file tells nothing, or may not; until it was read that is all.
        self._owed: int | None = 0
        self._complained = False
        self._versions: dict[str, list[int]] = {}
        self._loading = threading.Lock()

    def versions(self, entity_type: str) -> list[int]:
        """The versions told of an entity type, rising."""
        if self._told is None or self._owner is None or self._marked is not None:
            self.load()
        return self._versions.get(entity_type, [])

    def find(self, entity_type: str, version: int | None = None) -> SchemaVersion | None:
        """A schema by its version, or the newest; None if it was not told, or is not shown yet.

        Raises:
            InvalidOption: If it is no entity type, or no version.
        """
        if not isinstance(entity_type, str):
            raise InvalidOption("entity_type", entity_type, "the name of an entity type")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
            raise InvalidOption("version", version, "the version of a schema, or None for the newest")
        found: SchemaVersion | None = None
        for told in self._shown():
            found = _assembled(told, entity_type, version)
            if found is not None and version is not None:
                break
        return found

    def told(self) -> dict[str, tuple[int, ...]]:
        """Of each entity type that has schemas the versions that were told and are shown, rising."""
        versions: dict[str, list[int]] = {}
        for told in self._shown():
            for one in told:
                _note(versions, one)
        return {name: tuple(found) for name, found in sorted(versions.items())}

    def _shown(self) -> Iterator[list[Told]]:
        """What was told and is shown; then, if there is a mark, the same with what is found behind it."""
        # Before what is told: while that is copied, a commit may add to it and clear the mark.
        marked, visible = self._marked, self._visible()
        told = [one for one in self.load() if one.position.version <= visible]
        yield told
        if marked is not None:
            # Subscribers may have a change before the commit has come to say here what it told.
            more = self._since(marked, told, self._files.reader)
            yield told + [one for one in more if one.position.version <= visible]

    def adopt(self, told: Iterable[Told]) -> None:
        """Adds what a commit has told, and writes the file; for whoever has the turn."""
        assert self._told is not None
        added = list(told)
        for one in added:
            _note(self._versions, one)
        self._told += added  # all parts of a version at once, for those who look meanwhile
        with contextlib.suppress(OSError):  # it is committed; the mark stays, and ``settle`` tries again
            self.write(None)

    def forgetting(self, version: int, forget: Callable[[], None]) -> None:
        """Forgets everything above a version: what was told there is forgotten with it, or nothing is.

        Nobody tells schemas meanwhile. A crash, or a disk that fails, leaves the mark, and so the rest to the next look.

        Raises:
            OSError: What the file system raises before anything is forgotten.
        """
        with self.turn:
            told = self.load(ours=True)
            kept = [one for one in told if one.position.version <= version]
            # What is visible is never forgotten, and retention may have deleted what a mark so far back asks for.
            if len(kept) == len(told) or version < self._visible():
                forget()
                return
            self.write(version)
            self._fill(kept)
            self.forgotten += 1  # in this order: who comes from now on is not stamped with what goes
            forget()
            with contextlib.suppress(OSError):
                self.write(None)

    def mark(self) -> None:
        """Writes into the file that a schema is about to be told; for whoever has the turn.

        Raises:
            OSError: What the file system raises.
        """
        self.write(self._newest())

    def write(self, pending: int | None) -> None:
        """Replaces the file, durably; that of a log that has failed stays as it is, and leads the next opening to the rest.

        Raises:
            OSError: What the file system raises.
        """
        self._marked = pending
        if pending is not None:
            self._owed = pending if self._owed is None else min(self._owed, pending)
        if self._owner is None or self._failed():
            return
        text = msgspec.json.encode(_File(self._told or [], pending))
        self._owner.insist(lambda: self._file.write(text))
        self._owed = pending

    def settle(self) -> int:
        """Writes the file again where that has failed, for the housekeeping and at the opening.

        It never raises for the disk. Whoever has the turn is not waited for: the file is written then.

        Returns:
            The oldest version of the log that has to stay: from there on it may tell what the file does not.
        """
        unseen = self._visible() + 1  # first: whatever is told from now on lies behind it
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

    def load(self, *, ours: bool = False) -> list[Told]:
        """What was told; the owner reads it once, and looks behind a mark that is nobody's any more.

        Args:
            ours: Whether the caller has just got the turn, so that a mark is of those who had it before.

        Raises:
            WalCorrupted: If the file is damaged, and cannot be made out from what is kept of the log.
        """
        told = self._told
        if told is not None and self._owner and (self._marked is None or (not ours and self.turn.locked())):
            return told
        with self._loading:
            told = self._told
            if told is None or not self._owner:
                return self._begin()
            marked = self._marked
            # A mark that was there before the turn was seen to be free, and is there after it, is nobody's: whoever takes the
            # turn now loads first, and waits here. Of the commit that marks next it would be another one.
            if marked is not None and (ours or not self.turn.locked()) and self._marked == marked:
                told = [one for one in told if one.position.version <= marked]
                told += self._since(marked, told)
                # In this order: wherever an interrupt comes, the next one looks again, or has nothing to look for.
                self._fill(told)
                self._marked = None
            return told

    def _begin(self) -> list[Told]:
        found, even = self._read()
        # Of what was forgotten, or is withheld from others, the file may tell yet.
        last = self._newest()
        if found.pending is not None:
            last = min(last, found.pending)
        told = [one for one in found.told if one.position.version <= last]
        if self._owner:
            self._owed = found.pending if even and len(told) == len(found.told) else 0
        if found.pending is not None:
            told += self._since(found.pending, told)
        self._fill(told)
        return told

    def _since(self, version: int, told: Iterable[Told], reader: LogReader | None = None) -> list[Told]:
        """What was told behind a version, without what is known already. What is not shown may be cut off meanwhile."""
        known = {one.position for one in told}
        reader = reader or (self._owner.whole if self._owner else self._files.reader)
        changes = self._replay(reader, version + 1)
        return [_told_by(change) for change in changes if change.position not in known]

    def _replay(self, reader: LogReader, version: int) -> Iterator[Change]:
        """The changes that tell schemas, from a version on, as far as a reader reads."""
        location = reader.locate(max(version, reader.oldest))
        while (frame := reader.read(location)) is not None:
            block = Block.of(frame.header, *frame.decoded)
            for index in block.indices:
                if block.area(index) is Area.SCHEMA:
                    yield block.change(index, _BODY)
            location = frame.next

    def _newest(self) -> int:
        """The newest version of the log, for its owner; of those that are shown for others."""
        return self._owner.appended if self._owner else self._visible()

    def _visible(self) -> int:
        """The newest version that may be shown: who looks a schema up is not told of what was told behind it."""
        return self._files.shown if isinstance(self._files, Follower) else self._files.visible

    def _read(self) -> tuple[_File, bool]:
        """What the file tells, and whether both copies do."""
        found = self._file.read()
        if not found.exists:
            return _File([]), True
        try:
            if found.text is not None:
                return msgspec.json.decode(found.text, type=_File), found.even
        except ValueError:
            pass  # whole, but nothing that was ever written here
        oldest = self._files.reader.oldest
        if oldest > 1:
            why = (
                f"{SCHEMAS_NAME} and its copy are damaged, and schemas may have been told before version {oldest}, "
                "the oldest that is kept; without both files, versions of schemas begin anew"
            )
            raise WalCorrupted(0, 0, why)
        return _File([], 0), False

    def _fill(self, told: list[Told]) -> None:
        versions: dict[str, list[int]] = {}
        for one in told:
            _note(versions, one)
        self._versions, self._told = versions, told  # whole, for those who look meanwhile


def _note(versions: dict[str, list[int]], told: Told) -> None:
    known = versions.setdefault(told.entity_type, [])
    if not known or known[-1] < told.version:
        known.append(told.version)


def _assembled(told: Iterable[Told], entity_type: str, version: int | None) -> SchemaVersion | None:
    """A version of a schema with all its parts, or the newest; None if it was not told."""
    parts: dict[str, bytes] = {}
    last: Told | None = None
    for one in told:
        if one.entity_type == entity_type and (version is None or one.version <= version):
            parts[one.part] = bytes(one.body)
            last = one
    if last is None or (version is not None and last.version != version):
        return None
    return SchemaVersion(entity_type, last.version, last.position, parts)


def _told_by(change: Change) -> Told:
    return Told(
        change.entity_type or "",
        change.key or "",
        change.schema_version or 0,
        change.position,
        msgspec.Raw(change.body_bytes or b"null"),
    )

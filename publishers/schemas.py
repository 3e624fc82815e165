"""Which schemas a log has told, and by which one each change was written.

A schema is told by a change of the area SCHEMA and has a version: a number that rises for each entity type. Versions told
lie also in a small file beside the segments, so that neither opening a log nor retention asks for a scan: the file is
replaced after each commit that tells a schema, and marked before it; only if a crash came in between is what was written
behind the mark looked through. A crc32 in its last line tells whether it is whole; if not, all of the log is looked
through.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec

from publishers.change import Change
from publishers.lossless import Reader, reader
from publishers.position import Position
from publishers.wal import FileSystem
from publishers.wal.filesystem import write_all

__all__ = ["SCHEMAS_NAME", "SchemaVersion", "Schemas", "Told"]

SCHEMAS_NAME: Final = "SCHEMAS"

_ENTITY: Final = "entity"


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
        self._told: list[Told] | None = None
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
        last: Told | None = None
        for told in self._told or ():
            if told.entity_type == entity_type and (version is None or told.version <= version):
                parts[told.part] = bytes(told.body)
                last = told
        if last is None or (version is not None and last.version != version):
            return None
        return SchemaVersion(entity_type, last.version, last.position, parts)

    def adopt(self, told: Iterable[Told]) -> None:
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
        text = _seal(msgspec.json.encode(_File(self._told or [], pending)))
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
            return msgspec.json.decode(_unseal(text), type=_File)
        except ValueError:  # damaged: it is derived from the log, so what is kept of that is looked through
            return _File([], 0)

    def _fill(self, told: list[Told]) -> None:
        self._versions = {}
        self._told = []
        for one in told:
            self._add(one)

    def _add(self, told: Told) -> None:
        versions = self._versions.setdefault(told.entity_type, [])
        if not versions or versions[-1] < told.version:
            versions.append(told.version)
        assert self._told is not None
        self._told.append(told)


def _seal(text: bytes) -> bytes:
    return b"%b\n%08x" % (text, crc32(text))


def _unseal(data: bytes) -> bytes:
    """The text whose crc32 stands in the last line.

    Raises:
        ValueError: If it is another one.
    """
    text, _, crc = data.rpartition(b"\n")
    if crc != b"%08x" % crc32(text):
        raise ValueError("the crc is wrong")
    return text


def _told_by(change: Change) -> Told:
    return Told(
        change.entity_type or "",
        change.key or "",
        change.schema_version or 0,
        change.position,
        msgspec.Raw(change.body_bytes or b"null"),
    )

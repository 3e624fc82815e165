"""Which schemas a log has told, and by which one each change was written.

A schema is told by a change of the area SCHEMA and has a version: a number that rises for each entity type. Versions told
lie also in a small file beside the segments, so that neither opening a log nor retention asks for a scan: the file is
replaced after each commit that tells a schema, and marked before it. Behind a mark nothing in the file is believed; if a
crash came in between, what was written there is looked through. Forgetting withheld commits sets the same mark. After an
interrupt, or a refusal, the owner looks behind it, too. Where the file cannot be replaced the housekeeping tries again, and
nothing behind the mark is deleted meanwhile. When the log fails the mark stays, for the next opening may find more there.

There are two copies of it (`publishers.wal.files.mirrored_file`). Is neither whole, all of the log is looked through; if retention has
deleted some of that already, nobody can tell what is missing, and the log says so instead of making versions up.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from publishers.errors import InvalidOption, PenstockError, WalCorrupted
from publishers.lossless import Reader, reader
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.wal import FileSystem
from publishers.wal.files.mirrored_file import MirroredFile

__all__ = ["SCHEMAS_NAME", "SchemaVersion", "Schemas", "Told"]

SCHEMAS_NAME: Final = "SCHEMAS"

_ENTITY: Final = "entity"
_ALL: Final = 2**63
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

    Args:
        filesystem: Where the file is.
        directory: That of the log.
        replay: Reads the changes of the area SCHEMA from a position on: those that are shown only, or all.
        newest: The newest version of the log, for its owner; None for others, who read the file again each time.
        visible: The newest version that may be shown: who looks a schema up is not told of what was told behind it.
        oldest: The oldest version that is kept.
        insist: Does a write for which room is kept back on a full disk.
        failed: Whether the log has failed, so that the next opening may find more in it than can be read now.

    Attributes:
        forgotten: How often schemas were, or were about to be, forgotten.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        replay: Callable[[Position, bool], Iterable[Change]],
        newest: Callable[[], int] | None,
        *,
        visible: Callable[[], int] = lambda: _ALL,
        oldest: Callable[[], int] = lambda: 1,
        insist: Callable[[Callable[[], None]], None] = lambda write: write(),
        failed: Callable[[], bool] = lambda: False,
    ) -> None:
        self.forgotten = 0
        self._lock = threading.Lock()
        # Who tells schemas, and behind him those who wait for it, each asleep at a lock of his own.
        self._line: tuple[tuple[object, threading.Lock], ...] = ()
        self._file = MirroredFile(filesystem, directory, SCHEMAS_NAME)
        self._visible = visible
        self._oldest = oldest
        self._insist = insist
        self._failed = failed
        self._replay = replay
        self._newest = newest
        self._owned = newest is not None
        self._told: list[Told] | None = None
        self._doubted = False
        # Behind this version a commit may have told what is not in ``_told`` yet.
        self._marked: int | None = None
        # Behind this version the file tells nothing, or may not; until it was read that is all.
        self._owed: int | None = 0
        self._complained = False
        self._versions: dict[str, list[int]] = {}
        self._loading = threading.Lock()

    def seize(self, teller: object, *, wait: bool = True) -> bool:
        """Waits until nobody else tells schemas; from then on ``teller`` does, until it is released.

        Who does is one attribute, so an interrupt at any place leaves no doubt about it.

        Args:
            teller: Who wants to.
            wait: False answers False instead of waiting.
        """
        asleep = threading.Lock()
        asleep.acquire()
        with self._lock:
            if self._line and not wait:
                return False
            self._line = (*self._line, (teller, asleep))
        while self._line[0][0] is not teller:
            asleep.acquire()
        return True

    def release(self, teller: object) -> None:
        """Ends what ``seize`` began, however far it got. May be done twice, as it must be where it can be interrupted."""
        with self._lock:
            self._line = tuple(place for place in self._line if place[0] is not teller)
            if self._line:
                _rouse(self._line[0][1])

    def versions(self, entity_type: str) -> list[int]:
        """The versions told of an entity type, rising."""
        self._load()
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
        # Before what is told: while that is copied, a commit may add to it and clear the mark.
        marked, visible = self._marked, self._visible()
        told = [one for one in self._load() if one.position.version <= visible]
        found = _assembled(told, entity_type, version)
        if marked is not None and (found is None or version is None):
            # Subscribers may have a change before the commit has come to say here what it told.
            more = [one for one in self._since(marked, told, shown=True) if one.position.version <= visible]
            found = _assembled([*told, *more], entity_type, version)
        return found

    def told(self) -> dict[str, tuple[int, ...]]:
        """Of each entity type that has schemas the versions that were told and are shown, rising."""
        marked, visible = self._marked, self._visible()  # first, as in ``find``
        told = list(self._load())
        if marked is not None:
            told += self._since(marked, told, shown=True)
        versions: dict[str, list[int]] = {}
        for one in told:
            if one.position.version <= visible:
                _note(versions, one)
        return {name: tuple(found) for name, found in sorted(versions.items())}

    def adopt(self, told: Iterable[Told]) -> None:
        """Adds what a commit has told, and writes the file."""
        assert self._told is not None
        added = list(told)
        for one in added:
            _note(self._versions, one)
        self._told += added  # all parts of a version at once, for those who look meanwhile
        with contextlib.suppress(OSError):  # it is committed; the mark stays, and ``settle`` tries again
            self.write(None)

    def doubt(self) -> None:
        """Nobody knows any more what was told behind the mark: who wants to know it looks. For whoever tells schemas."""
        self._doubted = True

    def forgetting(self, version: int, forget: Callable[[], None]) -> None:
        """Forgets everything above a version: what was told there is forgotten with it, or nothing is.

        Nobody tells schemas meanwhile. A crash, or a disk that fails, leaves the mark, and so the rest to the next look.

        Raises:
            OSError: What the file system raises before anything is forgotten.
        """
        teller = object()
        try:
            try:
                self.seize(teller)
                self._forget(version, forget)
            finally:
                self.release(teller)
        finally:
            self.release(teller)  # again, as an interrupt may have come where the first one begins

    def _forget(self, version: int, forget: Callable[[], None]) -> None:
        told = self._load()
        kept = [one for one in told if one.position.version <= version]
        # What is visible is never forgotten, and retention may have deleted what a mark so far back asks for.
        if len(kept) == len(told) or version < self._visible():
            forget()
            return
        self.write(version)
        try:
            self._fill(kept)
            self.forgotten += 1  # in this order: who comes from now on is not stamped with what goes
            forget()
            with contextlib.suppress(OSError):
                self.write(None)
        except BaseException:
            self._doubted = True  # as ``doubt`` does, but nothing can interrupt it
            raise

    def mark(self) -> None:
        """Writes into the file that a schema is about to be told.

        Raises:
            OSError: What the file system raises.
        """
        self.write(0 if self._newest is None else self._newest())

    def write(self, pending: int | None) -> None:
        """Replaces the file, durably; that of a log that has failed stays as it is, and leads the next opening to the rest.

        Raises:
            OSError: What the file system raises.
        """
        self._marked = pending
        if pending is not None:
            self._owed = pending if self._owed is None else min(self._owed, pending)
        if self._failed():
            return
        text = msgspec.json.encode(_File(self._told or [], pending))
        self._insist(lambda: self._file.write(text))
        self._owed = pending

    def settle(self) -> int:
        """Writes the file again where that has failed, for the housekeeping; never raises for the disk.

        Returns:
            The oldest version of the log that has to stay: from there on it may tell what the file does not.
        """
        unseen = self._visible() + 1  # first: whatever is told from now on lies behind it
        teller = object()
        try:
            self._load()
            if self._owed is not None and self.seize(teller, wait=False):
                self._load()
                self.write(None)
            if self._owed is None:
                self._complained = False
        except (OSError, PenstockError) as error:
            if not self._complained:
                self._complained = True
                _log.warning("%s: %s; what may tell schemas is not deleted until it can", _UNWRITTEN, error)
        finally:
            self.release(teller)
        owed = self._owed
        return unseen if owed is None else min(owed + 1, unseen)

    def load(self) -> None:
        """Reads the file, for the owner of a log at its opening, and puts right what a crash or a damage has left.

        Raises:
            WalCorrupted: If it is damaged, and cannot be made out from what is kept of the log.
        """
        self._load()
        self.settle()

    def _load(self) -> list[Told]:
        """What was told; the owner reads it once, and looks behind the mark after a doubt."""
        told = self._told
        if told is not None and self._owned and not self._doubted:
            return told
        with self._loading:
            told = self._told if self._owned else None
            if told is None:
                told = self._begin()
            elif self._doubted:
                if self._marked is not None:
                    told = [one for one in told if one.position.version <= self._marked]
                    told += self._since(self._marked, told)
                # In this order: wherever an interrupt comes, the next one looks again, or has nothing to look for.
                self._fill(told)
                self._marked = None
                self._doubted = False
            return told

    def _begin(self) -> list[Told]:
        found, even = self._read()
        # Of what was forgotten, or is withheld from others, the file may tell yet.
        last = self._visible() if self._newest is None else self._newest()
        if found.pending is not None:
            last = min(last, found.pending)
        told = [one for one in found.told if one.position.version <= last]
        if self._owned:
            self._owed = found.pending if even and len(told) == len(found.told) else 0
        if found.pending is not None:
            told += self._since(found.pending, told)
        self._fill(told)
        return told

    def _since(self, version: int, told: Iterable[Told], *, shown: bool = False) -> list[Told]:
        """What was told behind a version, without what is known already. What is not shown may be cut off meanwhile."""
        known = {one.position for one in told}
        changes = self._replay(Position(version + 1), shown)
        return [_told_by(change) for change in changes if change.position not in known]

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
        if self._oldest() > 1:
            why = (
                f"{SCHEMAS_NAME} and its copy are damaged, and schemas may have been told before version {self._oldest()}, "
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


def _rouse(asleep: threading.Lock) -> None:
    try:
        asleep.release()
    except RuntimeError:  # it was roused before
        return

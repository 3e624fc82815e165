"""Which schemas a log has told, and by which one each change was written.

A schema is told by a change of the area SCHEMA and has a version: a number that rises for each entity type. Versions told
lie also in a small file beside the segments, so that neither opening a log nor retention asks for a scan: the file is
replaced after each commit that tells a schema, and marked before it. Behind a mark nothing in the file is believed; if a
crash came in between, what was written there is looked through. Forgetting withheld commits sets the same mark.

There are two copies of it (`publishers.wal.twin`). Is neither whole, all of the log is looked through; if retention has
deleted some of that already, nobody can tell what is missing, and the log says so instead of making versions up.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from publishers.change import Change
from publishers.errors import InvalidOption, LogFailed, WalCorrupted
from publishers.lossless import Reader, reader
from publishers.position import Position
from publishers.wal import FileSystem
from publishers.wal.twin import Twin

__all__ = ["SCHEMAS_NAME", "SchemaVersion", "Schemas", "Told"]

SCHEMAS_NAME: Final = "SCHEMAS"

_ENTITY: Final = "entity"
_ALL: Final = 2**63
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
        visible: The newest version that may be shown: who looks a schema up is not told of what was told behind it.
        oldest: The oldest version that is kept.
        insist: Does a write for which room is kept back on a full disk.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        replay: Callable[[Position], Iterable[Change]],
        newest: Callable[[], int] | None,
        *,
        visible: Callable[[], int] = lambda: _ALL,
        oldest: Callable[[], int] = lambda: 1,
        insist: Callable[[Callable[[], None]], None] = lambda write: write(),
    ) -> None:
        self._lock = threading.Lock()
        self._free = threading.Condition(self._lock)
        self._teller: object = None
        self._file = Twin(filesystem, directory, SCHEMAS_NAME)
        self._visible = visible
        self._oldest = oldest
        self._insist = insist
        self._replay = replay
        self._newest = newest
        self._owned = newest is not None
        self._told: list[Told] | None = None
        self._marked: int | None = (
            None  # behind this version a commit may have told what is not in ``_told`` yet
        )
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
        """A schema by its version, or the newest; None if it was not told, or is not shown yet.

        Raises:
            InvalidOption: If it is no entity type, or no version.
        """
        if not isinstance(entity_type, str):
            raise InvalidOption("entity_type", entity_type, "the name of an entity type")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
            raise InvalidOption("version", version, "the version of a schema, or None for the newest")
        self._load()
        visible = self._visible()
        # Before what is told: while that is copied, a commit may add to it and clear the mark.
        marked = self._marked
        told = [one for one in self._told or () if one.position.version <= visible]
        found = _assembled(told, entity_type, version)
        if marked is not None and (found is None or version is None):
            # Subscribers may have a change before the commit has come to say here what it told.
            more = [one for one in self._since(marked, told) if one.position.version <= visible]
            found = _assembled([*told, *more], entity_type, version)
        return found

    def told(self) -> dict[str, tuple[int, ...]]:
        """Of each entity type that has schemas the versions that were told and are shown, rising."""
        self._load()
        visible = self._visible()
        marked = self._marked  # first, as in ``find``
        told = list(self._told or ())
        if marked is not None:
            told += self._since(marked, told)
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
        with contextlib.suppress(OSError):  # it is committed; the mark stays, so the next opening looks
            self.write(None)

    @contextlib.contextmanager
    def forgetting(self, version: int) -> Iterator[None]:
        """While everything above a version is being forgotten: what was told there is forgotten with it, or nothing is.

        Nobody tells schemas meanwhile. A crash, or a disk that fails, leaves the mark, and so the rest to the next opening.

        Raises:
            OSError: What the file system raises before anything is forgotten.
        """
        teller = object()
        try:
            self.seize(teller)
            self._load()
            told = self._told or []
            kept = [one for one in told if one.position.version <= version]
            if len(kept) == len(told):
                yield
                return
            self.write(version)
            try:
                yield
            except (LogFailed, *_SIGNALS):
                raise  # nobody knows how far it went
            except BaseException:
                with contextlib.suppress(OSError):
                    self.write(None)  # nothing was forgotten
                raise
            self._fill(kept)
            with contextlib.suppress(OSError):
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
        self._marked = pending
        text = msgspec.json.encode(_File(self._told or [], pending))
        self._insist(lambda: self._file.write(text))

    def load(self) -> None:
        """Reads the file, for the owner of a log at its opening, and puts right what a crash or a damage has left.

        Raises:
            WalCorrupted: If it is damaged, and cannot be made out from what is kept of the log.
        """
        self._load()

    def _load(self) -> None:
        if self._told is not None and self._owned:
            return
        with self._loading:
            if self._told is not None and self._owned:
                return
            found, even = self._read()
            # Of what was forgotten, or is withheld from others, the file may tell yet.
            last = self._visible() if self._newest is None else self._newest()
            if found.pending is not None:
                last = min(last, found.pending)
            told = [one for one in found.told if one.position.version <= last]
            if found.pending is not None:
                told += self._since(found.pending, told)
            self._fill(told)
            if self._owned and (found.pending is not None or not even or len(told) < len(found.told)):
                with contextlib.suppress(OSError):  # what stands there leads to the same, another time
                    self.write(None)

    def _since(self, version: int, told: Iterable[Told]) -> list[Told]:
        """What was told behind a version, without what is known already."""
        known = {one.position for one in told}
        changes = self._replay(Position(version + 1))
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

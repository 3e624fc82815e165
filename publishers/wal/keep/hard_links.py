"""Hard links: segments that outlive the owner's retention, for a process that must not depend on it.

Each such *consumer* has a directory ``held/<consumer>/``. The owner links a segment there when it makes it, before there
is any transaction in it (a link at the roll would come a segment late), and syncs the directory. The consumer reads
through its own links up to TAIL, removes those it needs no more, and keeps its own position; retention may delete the
originals whenever it likes. It never removes its newest link, so that what is missing above that one is still to be made.

The disk is protected all the same: when links whose original is gone have more than ``held_max_bytes``, the owner makes
no more of them for that consumer and leaves a file ``GAP-<segment>`` with the first number that will be missing. A
consumer that comes there, or to any number that is missing, gets `HistoryPruned`, and has to be linked anew.
"""

import contextlib
import errno
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final
from uuid import UUID

from publishers.errors import ConsumerBusy, HistoryPruned, InvalidOption, LogBusy, WalCorrupted
from publishers.model.position import Position
from publishers.wal.disk.filesystem import FileSystem, SyncError, sync_names
from publishers.wal.files.directory import sign, take_lock
from publishers.wal.files.segment import remove_segment, segment_name, segment_numbers
from publishers.wal.read.catalog import Catalog, Limit, SegmentEntry
from publishers.wal.read.reader import Reader

__all__ = ["HELD_NAME", "HeldReader", "HeldSegments", "Links", "held_directory", "link_again", "link_segment"]

HELD_NAME: Final = "held"
_GAP: Final = "GAP-"
_CONSUMER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_LOG: Final = logging.getLogger(__name__)


def held_directory(directory: Path, consumer: str) -> Path:
    """Where the links of a consumer are.

    Raises:
        InvalidOption: If the name is not 1 to 64 letters, digits, ``_``, ``-`` or ``.``, the first not ``-`` or ``.``.
    """
    if not isinstance(consumer, str) or not _CONSUMER.fullmatch(consumer):
        raise InvalidOption("consumer", consumer, "1 to 64 letters, digits, _, - or ., not - or . first")
    return directory / HELD_NAME / consumer


def link_segment(filesystem: FileSystem, directory: Path, number: int) -> None:
    """Links a segment that was just made for every consumer, and syncs their directories.

    A consumer whose link cannot be made does not hold the owner up: it is tried again, and if that fails until the
    original is gone, the consumer finds that it is missing.

    Raises:
        SyncError: If a directory cannot be synced; then nothing is known of the disk any more.
    """
    for consumer in _consumers(filesystem, directory):
        try:
            names = filesystem.listing(consumer)
            if not _has_gap(names):
                _link(filesystem, directory, consumer, number, names)
                sync_names(filesystem, consumer)
        except SyncError:
            raise
        except OSError as error:
            _LOG.warning("segment %d could not be linked for consumer %s: %s", number, consumer.name, error)


def link_again(filesystem: FileSystem, directory: Path, number: int) -> None:
    """Links a segment anew, whose file was replaced, for every consumer that has a link to the one before.

    Raises:
        OSError: What the file system raises.
    """
    for consumer in _consumers(filesystem, directory):
        names = filesystem.listing(consumer)
        if segment_name(number) in names:
            _link(filesystem, directory, consumer, number, names)
            sync_names(filesystem, consumer)


def _consumers(filesystem: FileSystem, directory: Path) -> list[Path]:
    try:
        names = filesystem.listing(directory / HELD_NAME)
    except OSError:  # nobody wants links
        return []
    return [directory / HELD_NAME / name for name in names if _CONSUMER.fullmatch(name)]


def _link(filesystem: FileSystem, directory: Path, consumer: Path, number: int, names: Sequence[str]) -> None:
    name = segment_name(number)
    if name in names:  # of a segment that was cut off before anybody was shown it
        filesystem.unlink(consumer / name)
    filesystem.link(directory / name, consumer / name)


def _has_gap(names: Sequence[str]) -> bool:
    return any(name.startswith(_GAP) for name in names)


@dataclass(eq=False, repr=False)
class Links:
    """The owner's side; made with what links a crash has left to be made.

    Args:
        filesystem: Where.
        directory: Of the log.
        entries: Tells the segments of the log.
        max_bytes: ``held_max_bytes``, for each consumer.

    Attributes:
        held_bytes: Bytes of segments whose original is gone while some consumer has a link, as of the last `tend`.

    Raises:
        InvalidOption: If ``held/`` is on another file system than the log.
        OSError: What the file system raises.
    """

    _filesystem: FileSystem
    _directory: Path
    _entries: Callable[[], Sequence[SegmentEntry]]
    _max_bytes: int
    held_bytes: int = 0
    _sizes: dict[int, int] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        for path in _consumers(self._filesystem, self._directory):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._complete(path)

    @property
    def consumers(self) -> tuple[str, ...]:
        """Who gets links."""
        return tuple(path.name for path in _consumers(self._filesystem, self._directory))

    def add(self, consumer: str) -> Path:
        """Begins to link for a consumer, from the oldest segment on; anew if there is a gap, else it changes nothing.

        Returns:
            The directory of its links.

        Raises:
            InvalidOption: If the name is none, or ``held/`` is on another file system than the log.
            OSError: What the file system raises.
        """
        path = held_directory(self._directory, consumer)
        with self._lock:
            self._filesystem.make_directory(path)
            names = self._filesystem.listing(path)
            if _has_gap(names):
                self._clear(path, names)
            self._complete(path)
        return path

    def remove(self, consumer: str) -> None:
        """Links no more for a consumer, and removes its links.

        Raises:
            InvalidOption: If the name is none.
            OSError: What the file system raises.
        """
        path = held_directory(self._directory, consumer)
        with self._lock, contextlib.suppress(FileNotFoundError):
            self._clear(path, self._filesystem.listing(path))
            self._filesystem.remove_directory(path)

    def _clear(self, path: Path, names: Sequence[str]) -> None:
        # Newest first: what remains after a crash is without a hole. The mark of the gap goes last.
        for name in sorted(names, key=lambda name: (not name.startswith(_GAP), name), reverse=True):
            self._filesystem.unlink(path / name)
        sync_names(self._filesystem, path)

    def tend(self) -> bool:
        """One step of housekeeping, before retention: makes links that are still to be made, and measures.

        A consumer for whom that cannot be done holds nobody up; it is tried again each time.

        Raises:
            SyncError: If a directory cannot be synced.
        """
        gone: set[int] = set()
        done = False
        with self._lock:
            for path in _consumers(self._filesystem, self._directory):
                try:
                    done = self._complete(path) or done
                    gone |= self._bound(path)
                    self._warned.discard(path.name)
                except SyncError:
                    raise
                except (OSError, InvalidOption) as error:
                    self._warn(path, error)
            self._sizes = {number: self._sizes[number] for number in gone}
            self.held_bytes = sum(self._sizes.values())
        return done

    def _warn(self, path: Path, error: Exception) -> None:
        gone = isinstance(error, FileNotFoundError | NotADirectoryError)  # it was removed, or is no directory
        if not gone and path.name not in self._warned:
            self._warned.add(path.name)
            _LOG.warning("segments cannot be linked for consumer %s: %s", path.name, error)

    def _complete(self, path: Path) -> bool:
        """Makes the links above the newest one, unless there is a gap."""
        names = self._filesystem.listing(path)
        if _has_gap(names):
            return False
        newest = max(segment_numbers(names), default=0)
        missing = [entry.number for entry in self._entries() if entry.number > newest]
        try:
            for number in missing:
                self._filesystem.link(self._directory / segment_name(number), path / segment_name(number))
        except FileExistsError:
            return True  # the segment was made at this moment, and linked
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise InvalidOption("held", str(path), "a directory on the file system of the log") from error
            raise
        if missing:
            sync_names(self._filesystem, path)
        return bool(missing)

    def _bound(self, path: Path) -> set[int]:
        """The numbers of which a consumer alone keeps the bytes; too many bytes, and a gap is announced."""
        oldest, newest = self._entries()[0].number, self._entries()[-1].number
        names = self._filesystem.listing(path)
        numbers = segment_numbers(names)
        gone = {number for number in numbers if number < oldest}
        held = 0
        for number in gone:
            size = self._sizes.get(number)
            if size is None:
                with contextlib.closing(self._filesystem.open(path / segment_name(number), "read")) as file:
                    size = self._sizes[number] = file.size()
            held += size
        if held > self._max_bytes and not _has_gap(names):
            _LOG.warning(
                "consumer %s holds %d bytes, but held_max_bytes is %d: no more segments are linked for it",
                path.name,
                held,
                self._max_bytes,
            )
            first = max(newest, *numbers) + 1
            self._filesystem.open(path / f"{_GAP}{first:012d}", "create").close()
            sync_names(self._filesystem, path)
        return gone


class HeldSegments:
    """A consumer's side: its links, which are its own to remove.

    Attributes:
        directory: Where they are.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, consumer: str, log_id: UUID) -> None:
        """Takes the consumer's lock.

        Args:
            filesystem: Where.
            directory: Of the log.
            consumer: Name under which the owner links.
            log_id: Of the log.

        Raises:
            ConsumerBusy: If another process is this consumer.
            InvalidOption: If the owner does not link for such a consumer.
            OSError: What the file system raises.
        """
        self.directory = held_directory(directory, consumer)
        self._filesystem = filesystem
        self._original = directory
        self._log_id = log_id
        try:
            self._lock = take_lock(filesystem, self.directory)
        except LogBusy as error:
            raise ConsumerBusy(self.directory, error.pid) from None
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidOption("consumer", consumer, "one for which the owner links segments") from None
        sign(self._lock, filesystem, 0)

    def release(self, catalog: Catalog, version: int) -> int:
        """Removes the links of segments whose versions are all below one; answers how many.

        Raises:
            OSError: What the file system raises.
        """
        catalog.refresh()
        entries = catalog.entries
        done = [entry.number for entry, following in pairwise(entries) if following.first_version <= version]
        for number in done:
            remove_segment(self._filesystem, self.directory, number)
        if done:
            catalog.drop(done[-1] + 1)
        return len(done)

    def missing(self, segment: int, catalog: Catalog) -> HistoryPruned:
        """What tells a consumer that it has come to a gap, and what can be read behind it."""
        rest = [entry for entry in catalog.entries if entry.number > segment]
        if not rest:
            original = Catalog(self._filesystem, self._original, self._log_id)
            with contextlib.suppress(OSError, WalCorrupted):
                original.refresh()
            rest = [entry for entry in original.entries if entry.number > segment]
        return HistoryPruned(Position(rest[0].first_version if rest else 0))

    def close(self) -> None:
        """Frees the lock; the links stay."""
        self._lock.close()


class HeldReader(Reader):
    """A reader to whom a segment that is missing is history that was pruned, whatever its number."""

    def __init__(self, held: HeldSegments, catalog: Catalog, limit: Callable[[], Limit]) -> None:
        """See `Reader`."""
        super().__init__(catalog, limit, refresh=True)
        self._held = held

    def _gone(self, segment: int) -> HistoryPruned | WalCorrupted:
        with contextlib.suppress(OSError):
            self._catalog.refresh()
        return self._held.missing(segment, self._catalog)

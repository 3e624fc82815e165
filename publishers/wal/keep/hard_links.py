"""Hard links to segments: a consumer in another process keeps history independently of the owner's retention.

Each *consumer* has a directory ``held/<consumer>/``. When the owner creates a segment, it links it there before it writes a
transaction (a link at the roll would be a segment late), and syncs the directory. The consumer reads through its links up to
TAIL, removes links that it no longer needs, and stores its own position. Retention may delete the originals at any time. The
consumer never removes its newest link: the owner makes the links above it.

``held_max_bytes`` bounds the disk space: when the links of a consumer whose originals were deleted exceed it, the owner makes no
more links for this consumer, and creates a file ``GAP-<segment>`` that names the first missing segment. A consumer that
reaches a missing segment gets `HistoryPruned`, and must be added again.
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
_LOG: Final = logging.getLogger("penstock.housekeeping")


def held_directory(directory: Path, consumer: str) -> Path:
    """Returns the directory of a consumer's links.

    Raises:
        InvalidOption: If the name is not 1 to 64 letters, digits, ``_``, ``-`` or ``.``, the first not ``-`` or ``.``.
    """
    if not isinstance(consumer, str) or not _CONSUMER.fullmatch(consumer):
        raise InvalidOption("consumer", consumer, "1 to 64 letters, digits, _, - or ., not - or . first")
    return directory / HELD_NAME / consumer


def link_segment(filesystem: FileSystem, directory: Path, number: int) -> None:
    """Links a new segment for every consumer, and syncs their directories.

    A failed link does not stop the owner: `Links.tend` repeats it. If it fails until the original is deleted, the segment is
    missing for this consumer.

    Raises:
        SyncError: If a directory cannot be synced; then the content of the disk is unknown.
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
    """Replaces every consumer's link to a segment whose file was replaced.

    Raises:
        OSError: From the file system.
    """
    for consumer in _consumers(filesystem, directory):
        names = filesystem.listing(consumer)
        if segment_name(number) in names:
            _link(filesystem, directory, consumer, number, names)
            sync_names(filesystem, consumer)


def _consumers(filesystem: FileSystem, directory: Path) -> list[Path]:
    try:
        names = filesystem.listing(directory / HELD_NAME)
    except OSError:  # there are no consumers
        return []
    return [directory / HELD_NAME / name for name in names if _CONSUMER.fullmatch(name)]


def _link(filesystem: FileSystem, directory: Path, consumer: Path, number: int, names: Sequence[str]) -> None:
    name = segment_name(number)
    if name in names:  # to a segment that was truncated before it was visible
        filesystem.unlink(consumer / name)
    filesystem.link(directory / name, consumer / name)


def _has_gap(names: Sequence[str]) -> bool:
    return any(name.startswith(_GAP) for name in names)


@dataclass(eq=False, repr=False)
class Links:
    """The owner's side. The constructor makes links that are missing after a crash.

    Args:
        filesystem: The file system.
        directory: The directory of the log.
        entries: Returns the segments of the log.
        max_bytes: ``held_max_bytes``, for each consumer.

    Attributes:
        held_bytes: Bytes of deleted segments to which a consumer still has a link, as of the last `tend`.

    Raises:
        InvalidOption: If ``held/`` is on another file system than the log.
        OSError: From the file system.
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
        """The names of the consumers."""
        return tuple(path.name for path in _consumers(self._filesystem, self._directory))

    def add(self, consumer: str) -> Path:
        """Adds a consumer, and links every segment for it. If it has a gap, its links are made again from the oldest segment.

        Returns:
            The directory of its links.

        Raises:
            InvalidOption: If the name is invalid, or ``held/`` is on another file system than the log.
            OSError: From the file system.
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
        """Removes a consumer and its links.

        Raises:
            InvalidOption: If the name is invalid.
            OSError: From the file system.
        """
        path = held_directory(self._directory, consumer)
        with self._lock, contextlib.suppress(FileNotFoundError):
            self._clear(path, self._filesystem.listing(path))
            self._filesystem.remove_directory(path)

    def _clear(self, path: Path, names: Sequence[str]) -> None:
        # Newest first, so a crash leaves no hole. The GAP file is removed last.
        for name in sorted(names, key=lambda name: (not name.startswith(_GAP), name), reverse=True):
            self._filesystem.unlink(path / name)
        sync_names(self._filesystem, path)

    def tend(self) -> bool:
        """Makes missing links, and measures the held bytes. Housekeeping calls it before retention.

        A failure for one consumer does not affect the others, and is retried at the next call.

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
        gone = isinstance(
            error, FileNotFoundError | NotADirectoryError
        )  # it was removed, or is not a directory
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
            return True  # the owner has just created this segment, and linked it
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise InvalidOption("held", str(path), "a directory on the file system of the log") from error
            raise
        if missing:
            sync_names(self._filesystem, path)
        return bool(missing)

    def _bound(self, path: Path) -> set[int]:
        """Returns the deleted segments that a consumer still holds; above the bound, creates the GAP file."""
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
    """The consumer's side: reads and removes its links.

    Attributes:
        directory: The directory of the links.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, consumer: str, log_id: UUID) -> None:
        """Takes the consumer's lock.

        Args:
            filesystem: The file system.
            directory: The directory of the log.
            consumer: The name of the consumer.
            log_id: The id of the log.

        Raises:
            ConsumerBusy: If another process is this consumer.
            InvalidOption: If the owner has not added this consumer.
            OSError: From the file system.
        """
        self.directory: Path = held_directory(directory, consumer)
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
        """Removes the links to segments whose versions are all below ``version``; returns their number.

        Raises:
            OSError: From the file system.
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
        """Returns the error for a missing segment, with the oldest position behind it that can be read."""
        rest = [entry for entry in catalog.entries if entry.number > segment]
        if not rest:
            original = Catalog(self._filesystem, self._original, self._log_id)
            with contextlib.suppress(OSError, WalCorrupted):
                original.refresh()
            rest = [entry for entry in original.entries if entry.number > segment]
        return HistoryPruned(Position(rest[0].first_version if rest else 0))

    def close(self) -> None:
        """Releases the lock; the links stay."""
        self._lock.close()


class HeldReader(Reader):
    """A reader that raises `HistoryPruned` for every missing segment."""

    def __init__(self, held: HeldSegments, catalog: Catalog, limit: Callable[[], Limit]) -> None:
        """See `Reader`."""
        super().__init__(catalog, limit, refresh=True)
        self._held = held

    def _gone(self, segment: int) -> HistoryPruned | WalCorrupted:
        with contextlib.suppress(OSError):
            self._catalog.refresh()
        return self._held.missing(segment, self._catalog)

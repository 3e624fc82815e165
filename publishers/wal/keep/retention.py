"""Retention: decides which segments are deleted, and deletes them.

A segment may be deleted if no hold (`publishers.wal.keep.holds`) needs it, and the log is above ``retain_bytes`` or the segment
above ``retain_age``. The order of a deletion leaves no gap after a crash: the owners of holds make their positions durable,
HEAD names the oldest segment that stays, the files are unlinked, oldest first, and the directory is synced.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from publishers.options import LogOptions
from publishers.wal.disk.filesystem import FileSystem, names_of
from publishers.wal.files.segment import remove_segment
from publishers.wal.keep.holds import Extent, Holds, HoldStatistics
from publishers.wal.keep.segment_ages import Ages
from publishers.wal.read.catalog import Catalog, SegmentEntry

__all__ = ["Retention", "oldest_to_keep"]

_T = TypeVar("_T")


def oldest_to_keep(
    entries: Sequence[SegmentEntry],
    size: Callable[[int], int],
    options: LogOptions,
    floor: int | None,
    ages: Sequence[float],
) -> int:
    """The number of the oldest segment that stays.

    A segment may be deleted if all its versions are below the floor and either the log is above ``retain_bytes`` or the segment
    was closed longer than ``retain_age`` ago. Segments are deleted oldest first; the active segment always stays.

    Args:
        entries: All segments, oldest first.
        size: Returns the bytes of a segment by its number.
        options: ``retain_bytes`` and ``retain_age``; if both are None, every segment stays.
        floor: The least version that a hold needs; None if there are no holds.
        ages: Seconds since each segment but the last was closed.
    """
    most, age = options.retain_bytes, options.retain_age
    total = sum(size(entry.number) for entry in entries) if most is not None else 0
    for (entry, following), elapsed in zip(pairwise(entries), ages, strict=True):
        if floor is not None and following.first_version > floor:
            return entry.number
        large = most is not None and total > most
        old = age is not None and elapsed > age
        if not large and not old:
            return entry.number
        if most is not None:
            total -= size(entry.number)
    return entries[-1].number


@dataclass
class Retention:
    """Deletes old segments, for the owner of a log. `step` is for the housekeeping thread, the other methods are for any thread.

    Args:
        catalog: The segments of the log.
        active: Returns the number of the active segment, and the end of its last frame.
        write_head: Makes HEAD name the oldest segment that stays.
        options: The bounds.
        filesystem: The file system.
        directory: The directory of the log.
        ages: Measures the ages of segments.

    Attributes:
        holds: The holds of the log.
    """

    _catalog: Catalog
    _active: Callable[[], tuple[int, int]]
    _write_head: Callable[[int], None]
    _options: LogOptions
    _filesystem: FileSystem
    _directory: Path
    _ages: Ages

    def __post_init__(self) -> None:
        self.holds: Holds = Holds(lambda: self._catalog.entries[0].first_version)

    def size(self, number: int) -> int:
        """Bytes of a segment, without the zeros behind the end."""
        active, end = self._active()
        return end if number == active else self._catalog.size(number)

    @property
    def bytes(self) -> int:
        """Bytes of all segments."""
        return self._judged(lambda entries: sum(self.size(entry.number) for entry in entries))

    def statistics(self, name: str | None = None) -> tuple[HoldStatistics, ...]:
        """The statistics of every hold, as of now; with ``name`` of the hold of this name, if there is one."""
        return self._judged(
            lambda entries: self.holds.statistics(self._extents(entries, self._ages.of(entries)), name)
        )

    def left(self, version: int) -> tuple[int | None, float | None]:
        """The bytes and the seconds that are left until ordinary retention may delete the segment of a version.

        Returns:
            Bytes until the log is above ``retain_bytes``, and seconds until the segment is above ``retain_age``, counted from
            its closing; each at least 0, and None without that bound.
        """

        def judge(entries: Sequence[SegmentEntry]) -> tuple[int | None, float | None]:
            found = self._extents(entries, self._ages.of(entries))(version)
            most, age = self._options.retain_bytes, self._options.retain_age
            return (
                None if most is None else max(0, most - found.nbytes),
                None if age is None else max(0.0, age - (found.age or 0.0)),
            )

        return self._judged(judge)

    def _judged(self, judge: Callable[[Sequence[SegmentEntry]], _T]) -> _T:
        """The result of a function of the segments, for a thread beside which retention may delete them."""
        while True:
            entries = self._catalog.entries
            try:
                return judge(entries)
            except FileNotFoundError:
                if self._catalog.entries is entries:
                    raise  # retention has not deleted it

    def step(self, floor: int | None) -> bool:
        """Deletes the segments that may be deleted now; returns whether there were any.

        Args:
            floor: The least version that must be kept in addition to the holds, or None.

        Raises:
            OSError: From the file system.
        """
        entries = self._catalog.entries
        self._ages.observe()
        ages = self._ages.of(entries)
        kept = self._kept(entries, ages)
        oldest = entries[0].number

        def decide(held: int | None) -> int:
            nonlocal oldest
            needs = [version for version in (floor, held) if version is not None]
            oldest = oldest_to_keep(entries, self.size, self._options, min(needs, default=None), ages)
            return entries[oldest - entries[0].number].first_version

        if kept == entries[0].number and not any(self.holds):
            return False
        lost = self.holds.settle(self._extents(entries, ages), decide)
        gone = range(entries[0].number, oldest)
        try:
            if gone and self.holds.synchronise():
                self._delete(gone)
        finally:
            self.holds.notify(lost)
        return bool(gone)

    def _delete(self, gone: range) -> None:
        # The directory is opened first, so that a lack of descriptors leaves everything as it is.
        with names_of(self._filesystem, self._directory) as sync:
            self._write_head(gone.stop)
            self._catalog.drop(gone.stop)
            for number in gone:
                remove_segment(self._filesystem, self._directory, number)
            sync()

    def _kept(self, entries: Sequence[SegmentEntry], ages: Sequence[float]) -> int:
        return oldest_to_keep(entries, self.size, self._options, None, ages)

    def _extents(self, entries: Sequence[SegmentEntry], ages: Sequence[float]) -> Callable[[int], Extent]:
        """A function that returns the extent of a version's segment; sizes are added up once."""
        behind: dict[int, int] = {}
        total = 0
        for entry in reversed(entries):
            total += self.size(entry.number)
            behind[entry.number] = total
        first, last, kept = entries[0].number, entries[-1].number, self._kept(entries, ages)

        def extent(version: int) -> Extent:
            number = self._catalog.find(version).number
            number = min(max(number, first), last)  # the log may have grown or been pruned meanwhile
            age = None if number == last else ages[number - first]
            return Extent(behind[number], age, number >= kept)

        return extent

"""Retention: which segments may go, and how they go.

A segment may go if nobody needs it and the log is above ``retain_bytes`` or the segment above ``retain_age``. Who needs
something says so with a *hold* (`publishers.wal.keep.holds`). Segments go in an order that no crash can turn into a gap: the
owners of holds make their places durable, HEAD names the oldest segment that stays, the files are unlinked from the
oldest on, and the directory is synced.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from publishers.options import LogOptions
from publishers.wal.disk.filesystem import FileSystem, sync_names
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

    A segment may go if all its versions are below the floor and either the log is above ``retain_bytes`` or the segment
    was closed longer than ``retain_age`` ago. Segments go from the oldest on, and the last one, which is being written,
    never goes.

    Args:
        entries: All segments, oldest first.
        size: Bytes of a segment by its number.
        options: ``retain_bytes`` and ``retain_age``; where both are None everything stays.
        floor: The least version that somebody still needs; None if nobody holds anything.
        ages: Seconds since each of them but the last was closed.
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
    """Deletes what may go, for the owner of a log. `step` is for the housekeeping thread, the rest for any.

    Args:
        catalog: Its segments.
        active: Number of the active segment, and where its last frame ends.
        write_head: Makes HEAD name the oldest segment that stays.
        options: Bounds.
        filesystem: Where the files are.
        directory: Of the log.
        ages: Judges how old segments are.

    Attributes:
        holds: What somebody still needs.
    """

    _catalog: Catalog
    _active: Callable[[], tuple[int, int]]
    _write_head: Callable[[int], None]
    _options: LogOptions
    _filesystem: FileSystem
    _directory: Path
    _ages: Ages

    def __post_init__(self) -> None:
        self.holds = Holds(lambda: self._catalog.entries[0].first_version)

    def size(self, number: int) -> int:
        """Bytes of a segment, zeros ahead of the end not counted."""
        active, end = self._active()
        return end if number == active else self._catalog.size(number)

    @property
    def bytes(self) -> int:
        """Bytes of all segments."""
        return self._judged(lambda entries: sum(self.size(entry.number) for entry in entries))

    def statistics(self) -> tuple[HoldStatistics, ...]:
        """Every hold, judged now."""
        return self._judged(
            lambda entries: self.holds.statistics(self._extents(entries, self._ages.of(entries)))
        )

    def left(self, version: int) -> tuple[int | None, float | None]:
        """How much may be written, and how long it may take, until ordinary retention deletes the segment of a version.

        Returns:
            Bytes until the log is above ``retain_bytes``, and seconds until the segment is above ``retain_age``, which begin
            when it is closed; each at least 0, and None without that bound.
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
        """What is to be said of the segments that there are, by a thread beside which they may be deleted."""
        while True:
            entries = self._catalog.entries
            try:
                return judge(entries)
            except FileNotFoundError:
                if self._catalog.entries is entries:
                    raise  # it was not retention that took it

    def step(self, floor: int | None) -> bool:
        """Deletes what may go now; answers whether something went.

        Args:
            floor: The least version that somebody needs beside the holds, or None.

        Raises:
            OSError: What the file system raises.
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
        if gone and self.holds.synchronise():
            self._write_head(oldest)
            self._catalog.drop(oldest)
            for number in gone:
                remove_segment(self._filesystem, self._directory, number)
            sync_names(self._filesystem, self._directory)
        self.holds.tell(lost)
        return bool(gone)

    def _kept(self, entries: Sequence[SegmentEntry], ages: Sequence[float]) -> int:
        return oldest_to_keep(entries, self.size, self._options, None, ages)

    def _extents(self, entries: Sequence[SegmentEntry], ages: Sequence[float]) -> Callable[[int], Extent]:
        """Tells of the segment of a version; sizes are added up once."""
        behind: dict[int, int] = {}
        total = 0
        for entry in reversed(entries):
            total += self.size(entry.number)
            behind[entry.number] = total
        first, last, kept = entries[0].number, entries[-1].number, self._kept(entries, ages)

        def extent(version: int) -> Extent:
            number = self._catalog.find(version).number
            number = min(max(number, first), last)  # the log may have grown since, or lost its beginning
            age = None if number == last else ages[number - first]
            return Extent(behind[number], age, number >= kept)

        return extent

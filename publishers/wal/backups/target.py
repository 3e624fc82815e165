"""Compares the target of a backup with the source: which segments are to be copied, or why the target is refused."""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from publishers.errors import BackupRefused, WalCorrupted
from publishers.wal.backups.source import Overtaken, ShownVersion, overtaking
from publishers.wal.disk.filesystem import File, FileSystem, read_blocks
from publishers.wal.files.directory import LOCK_NAME, PLACES_NAME
from publishers.wal.files.head import HEAD_NAME, HeadState, read_head
from publishers.wal.files.mirrored_file import COPY_SUFFIX, TWINS
from publishers.wal.files.segment import read_header, segment_name, segment_number, segment_numbers
from publishers.wal.files.tail_page import TAIL_NAME
from publishers.wal.recover.inspector import inspect_segment

__all__ = ["CopyComparison", "CopyPlan", "belongs"]

_ENDING: Final = 64 * 1024
"""Bytes at the beginning and at the end of a segment that are compared. Each frame repeats the previous crc, so the end depends on all frames."""

_OURS: Final = frozenset({HEAD_NAME, LOCK_NAME, PLACES_NAME, *TWINS, *(name + COPY_SUFFIX for name in TWINS)})
_ELSEWHERE: Final = "use another directory, or empty this one if it is not needed"

_WITHOUT_HEAD: Final = (
    "remove its HEAD and begin again: the segments are compared, and those that fit are kept"
)


class CopyPlan(NamedTuple):
    """The work of a backup.

    Attributes:
        shown: The visible part of the source.
        head: HEAD of the target; None if it has none.
        first: The oldest segment that the target will have.
        wanted: Segments to copy, ascending; always with the last one, unless there is no work.
        there: Number of segments that the target keeps.
    """

    shown: ShownVersion
    head: HeadState | None
    first: int
    wanted: tuple[int, ...]
    there: int


@dataclass
class CopyComparison:
    """Compares a target with the source.

    Args:
        filesystem: Holds both directories.
        source: Directory of the log.
        target: Directory of the backup; it may be missing.
        shown: The visible part of the log.
        links: Whether hard links to segments of the source may stay.
    """

    _filesystem: FileSystem
    _source: Path
    _target: Path
    _shown: ShownVersion
    _links: bool
    _numbers: list[int] = field(default_factory=list)

    def plan(self) -> CopyPlan:
        """Returns the work; changes nothing.

        Raises:
            BackupRefused: If the target does not fit.
            Overtaken: If retention deletes a segment during the comparison.
            OSError: From the file system.
        """
        head = self._look()
        if head is not None and head.durable == self._shown.version:
            # While a transaction is withheld, the control frames before it are not part of the visible part.
            end = max((self._shown.segment, self._shown.end), (head.segment, head.offset))
            self._shown = self._shown._replace(segment=end[0], end=end[1])
        shown = self._shown
        # Left by an unfinished backup: segments behind the visible part, and segments before a gap.
        stale = [number for number in self._numbers if self._is_beyond(number)]
        if head is not None:
            self._check_end(head)
        first, below = self._joined(head)
        stale += below
        there = [number for number in self._numbers if number not in stale]
        wanted = [
            number
            for number in range(shown.first, shown.segment)
            if number not in there or not self._same(number)
        ]
        at_end = head is not None and (head.segment, head.offset) == (shown.segment, shown.end)
        if wanted or not at_end or (head is not None and (head.flags or head.oldest != first)):
            wanted.append(shown.segment)
        kept = [number for number in range(first, shown.segment + 1) if number not in wanted]
        return CopyPlan(shown, head, first, tuple(wanted), len(kept))

    def _refusal(self, why: str, choice: str = _ELSEWHERE) -> BackupRefused:
        return BackupRefused(self._target, why, choice)

    def _look(self) -> HeadState | None:
        """Returns HEAD of the target; refuses files that do not belong to a backup."""
        try:
            names = self._filesystem.listing(self._target)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise self._refusal(
                "it is not a directory", "name a directory, or a path that does not exist"
            ) from None
        if TAIL_NAME in names:
            raise self._refusal("it was opened for writing, so it is a log of its own")
        strange = [name for name in names if not belongs(name)]
        if strange:
            raise self._refusal(f"it holds files that do not belong to a backup: {', '.join(strange[:3])}")
        self._numbers = segment_numbers(names)
        if HEAD_NAME not in names:
            return None
        with contextlib.closing(self._filesystem.open(self._target / HEAD_NAME, "read")) as file:
            head = read_head(file)
        if head is None:
            raise self._refusal("its HEAD is damaged", _WITHOUT_HEAD)
        if head.log_id != self._shown.log_id:
            raise self._refusal(f"it is of log {head.log_id.hex}, not of {self._shown.log_id.hex}")
        if head.segment not in self._numbers:
            raise self._refusal(f"its last segment, {segment_name(head.segment)}, is missing", _WITHOUT_HEAD)
        return head

    def _is_beyond(self, number: int) -> bool:
        """Whether a segment is behind the visible part, since all of its transactions may be withheld now.

        Refuses the target if the header, which has the crc of everything before it, differs from the header in the source.
        """
        shown = self._shown
        beyond = number > shown.segment
        try:
            header = read_header(self._filesystem, self._target, number)
        except WalCorrupted:
            return beyond  # damaged: it is copied again, or the examination of the target reports it
        if header.log_id != shown.log_id:
            why = f"{segment_name(number)} is of log {header.log_id.hex}, not of {shown.log_id.hex}"
            raise self._refusal(why)
        if number >= shown.first:
            try:
                theirs = read_header(self._filesystem, self._source, number)
            except FileNotFoundError:
                raise (self._beyond(f"segment {number}") if beyond else Overtaken(number)) from None
            if theirs != header:
                raise self._refusal(self._other(number, 0))
        return beyond

    def _check_end(self, head: HeadState) -> None:
        """Refuses the target unless its last segment, as far as HEAD covers it, equals the source."""
        shown = self._shown
        if (head.segment, head.offset) > (shown.segment, shown.end):
            raise self._beyond(f"version {head.durable}")
        if head.segment < shown.first:
            return  # `_joined` checks that the source continues it
        with self._open_target(head.segment) as ours, self._open_source(head.segment) as theirs:
            for at, data in read_blocks(theirs, 0, head.offset):
                if ours.pread(len(data), at) != data:
                    raise self._refusal(self._other(head.segment, at))

    def _beyond(self, what: str) -> BackupRefused:
        """After a boot and before an opening for writing only HEAD counts, which may cover less than was synced."""
        return self._refusal(
            f"it goes up to {what}, but {self._source} shows only version {self._shown.version}",
            "open the log for writing, if it was not opened since the machine was booted; else the log has lost its end, and the "
            "backup is of another history: use another directory",
        )

    def _other(self, number: int, at: int) -> str:
        return (
            f"{segment_name(number)} differs from that of {self._source} at byte {at} or behind it: it is damaged, "
            "which 'penstock verify' shows, or of another history of the log"
        )

    def _joined(self, head: HeadState | None) -> tuple[int, list[int]]:
        """Returns the first segment of the target, and the segments to remove because segments behind them are missing."""
        first = begin = self._shown.first
        below = [number for number in self._numbers if number < first]
        oldest, vouched = (head.oldest, head.segment) if head is not None else (1, 0)
        while begin > oldest and begin - 1 in below and (begin <= vouched or self._continued(begin)):
            begin -= 1
        if head is not None and begin > oldest:
            raise self._refusal(
                f"it ends with version {head.durable}, but {self._source} begins at segment {first}: retention has deleted "
                "the versions between",
                "back up into another directory, and raise retain_bytes or retain_age of the log",
            )
        return begin, [number for number in below if number < begin]

    def _continued(self, number: int) -> bool:
        """Whether the previous segment is whole in the target, and this segment continues it."""
        goes_on = self._source if number >= self._shown.first else self._target
        try:
            with overtaking(number):
                following = read_header(self._filesystem, goes_on, number)
            left = inspect_segment(self._filesystem, self._target, number - 1)
        except WalCorrupted:
            return False
        return left.trailer.fits(left.size, following)

    def _same(self, number: int) -> bool:
        """Whether the target has a closed segment with the content of the source; the headers were compared before."""
        with self._open_source(number) as theirs:
            if theirs.is_at(self._target / segment_name(number)):
                return self._links
            with self._open_target(number) as ours:
                size = theirs.size()
                places = (0, max(size - _ENDING, 0))
                same = all(ours.pread(_ENDING, at) == theirs.pread(_ENDING, at) for at in places)
                return same and ours.size() == size

    def _open_source(self, number: int) -> contextlib.closing[File]:
        with overtaking(number):
            return contextlib.closing(self._filesystem.open(self._source / segment_name(number), "read"))

    def _open_target(self, number: int) -> contextlib.closing[File]:
        return contextlib.closing(self._filesystem.open(self._target / segment_name(number), "read"))


def belongs(name: str) -> bool:
    """Whether a file of this name belongs to a backup, finished or not."""
    plain = name.removesuffix(".tmp")
    return plain in _OURS or bool(segment_number(plain) or segment_number(plain, "idx"))

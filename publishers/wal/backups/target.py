"""What a target holds already, and what a backup has to add to it; or why it must not be touched."""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from publishers.errors import BackupRefused, WalCorrupted
from publishers.wal.backups.source import Overtaken, ShownVersion, overtaking
from publishers.wal.disk.filesystem import File, FileSystem, read_blocks
from publishers.wal.files.directory import LOCK_NAME
from publishers.wal.files.head import HEAD_NAME, HeadState, read_head
from publishers.wal.files.mirrored_file import COPY_SUFFIX, TWINS
from publishers.wal.files.segment import read_header, segment_name, segment_number, segment_numbers
from publishers.wal.files.tail_page import TAIL_NAME
from publishers.wal.recover.inspector import inspect_segment

__all__ = ["CopyComparison", "CopyPlan", "belongs"]

_ENDING: Final = 64 * 1024
"""So much of the beginning and of the end of a segment is compared. Each frame repeats the crc of the one before, so its end tells of all of it."""

_OURS: Final = frozenset({HEAD_NAME, LOCK_NAME, *TWINS, *(name + COPY_SUFFIX for name in TWINS)})
_ELSEWHERE: Final = "give it another directory, or empty this one if it is not needed"

_WITHOUT_HEAD: Final = (
    "remove HEAD there and begin again: the segments are compared, and those that fit are kept"
)


class CopyPlan(NamedTuple):
    """What is to be done.

    Attributes:
        shown: What the source shows.
        head: HEAD of the target; None if there is none yet.
        first: The oldest segment that the target will have.
        wanted: Segments to be copied, rising; the last one is always among them, unless nothing is to be done.
        there: Segments that are there already.
    """

    shown: ShownVersion
    head: HeadState | None
    first: int
    wanted: tuple[int, ...]
    there: int


@dataclass
class CopyComparison:
    """Compares a target with what is to be in it.

    Args:
        filesystem: Where both are.
        source: Directory of the log.
        target: Directory of the backup; it may be missing.
        shown: What the log shows.
        links: Whether hard links to the segments of the source may stay.
    """

    _filesystem: FileSystem
    _source: Path
    _target: Path
    _shown: ShownVersion
    _links: bool
    _numbers: list[int] = field(default_factory=list)

    def plan(self) -> CopyPlan:
        """What is to be done; changes nothing.

        Raises:
            BackupRefused: If the target does not fit.
            Overtaken: If retention takes what is compared.
            OSError: From the file system.
        """
        head = self._look()
        if head is not None and head.durable == self._shown.version:
            # Of frames that are no versions the log shows fewer while something behind them is withheld.
            end = max((self._shown.segment, self._shown.end), (head.segment, head.offset))
            self._shown = self._shown._replace(segment=end[0], end=end[1])
        shown = self._shown
        # What an unfinished backup has left behind the end of what is shown, or with a gap behind it.
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
        """HEAD; and whether there is anything that belongs to no backup."""
        try:
            names = self._filesystem.listing(self._target)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise self._refusal("it is not a directory", "name one, or what is not there yet") from None
        if TAIL_NAME in names:
            raise self._refusal("it was opened for writing, and is a log of its own since")
        strange = [name for name in names if not belongs(name)]
        if strange:
            raise self._refusal(f"it holds what belongs to no backup: {', '.join(strange[:3])}")
        self._numbers = segment_numbers(names)
        if HEAD_NAME not in names:
            return None
        with contextlib.closing(self._filesystem.open(self._target / HEAD_NAME, "read")) as file:
            head = read_head(file)
        if head is None:
            raise self._refusal("its HEAD is damaged", _WITHOUT_HEAD)
        if head.log_id != self._shown.log_id:
            raise self._refusal(f"it is of log {head.log_id.hex}, and not of {self._shown.log_id.hex}")
        if head.segment not in self._numbers:
            raise self._refusal(f"its last segment, {segment_name(head.segment)}, is missing", _WITHOUT_HEAD)
        return head

    def _is_beyond(self, number: int) -> bool:
        """Whether a segment lies behind what is shown, as all of it may be withheld by now.

        It is of the source as far as its header tells, in which the crc of everything before it stands; else it is refused.
        """
        shown = self._shown
        beyond = number > shown.segment
        try:
            header = read_header(self._filesystem, self._target, number)
        except WalCorrupted:
            return beyond  # damaged: it is copied anew, or what is made is found to be damaged
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
        """What HEAD of the target vouches for is in the source, byte for byte."""
        shown = self._shown
        if (head.segment, head.offset) > (shown.segment, shown.end):
            raise self._beyond(f"version {head.durable}")
        if head.segment < shown.first:
            return  # `_joined` looks whether the source goes on where it ends
        with self._open_target(head.segment) as ours, self._open_source(head.segment) as theirs:
            for at, data in read_blocks(theirs, 0, head.offset):
                if ours.pread(len(data), at) != data:
                    raise self._refusal(self._other(head.segment, at))

    def _beyond(self, what: str) -> BackupRefused:
        """HEAD of a log may tell less than what was synced, and it alone counts between a start of the machine and an opening."""
        return self._refusal(
            f"it goes up to {what}, and {self._source} shows version {self._shown.version} and no more",
            "open the log for writing, if nobody has since the machine was started; else it has lost its end, and these are "
            "two histories of it: give the new one another directory",
        )

    def _other(self, number: int, at: int) -> str:
        return (
            f"{segment_name(number)} differs from that of {self._source} at byte {at} or behind it: it is damaged, "
            "which 'penstock verify' tells, or of another history of the log"
        )

    def _joined(self, head: HeadState | None) -> tuple[int, list[int]]:
        """Where the target begins, and what has to go from it because something behind it is missing."""
        first = begin = self._shown.first
        below = [number for number in self._numbers if number < first]
        oldest, vouched = (head.oldest, head.segment) if head is not None else (1, 0)
        while begin > oldest and begin - 1 in below and (begin <= vouched or self._continued(begin)):
            begin -= 1
        if head is not None and begin > oldest:
            raise self._refusal(
                f"it ends with version {head.durable}, and {self._source} has deleted what follows, so it begins at "
                f"segment {first}",
                "make the next one in another directory, and keep more in the log (retain_bytes, retain_age)",
            )
        return begin, [number for number in below if number < begin]

    def _continued(self, number: int) -> bool:
        """Whether the segment before one is whole in the target, and the one that it continues."""
        goes_on = self._source if number >= self._shown.first else self._target
        try:
            with overtaking(number):
                following = read_header(self._filesystem, goes_on, number)
            left = inspect_segment(self._filesystem, self._target, number - 1)
        except WalCorrupted:
            return False
        return left.trailer.fits(left.size, following)

    def _same(self, number: int) -> bool:
        """Whether a closed segment is there, whole and of the right content; its header has been compared."""
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
    """Whether a backup has such a file, or is about to have it."""
    plain = name.removesuffix(".tmp")
    return plain in _OURS or bool(segment_number(plain) or segment_number(plain, "idx"))

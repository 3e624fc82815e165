"""Dropping the damaged beginning of a log, on request only: what is intact behind it stays, instead of being cut off.

It is what retention does, for another reason and with a copy: second names for the segments that go, HEAD that names the
oldest one that stays, in both slots, and then the segments go, the oldest first. A crash in between leaves the rest to the
next opening.
"""

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

from publishers.wal.checks.report import Report, Verdict
from publishers.wal.disk.filesystem import FileSystem, sync_names
from publishers.wal.files.head import CUT, DEFERRED, KEEP, Head, HeadState
from publishers.wal.files.segment import (
    DATA_START,
    SegmentHeader,
    remove_segment,
    segment_name,
    segment_number,
    segment_numbers,
)

__all__ = ["Beginning", "damaged_beginning", "drop"]

_ELSEWHERE: Final = frozenset({"padding", "leftover"})
_JOINT: Final = "segment-chain"


class Beginning(NamedTuple):
    """What can be dropped so that an intact log is left.

    Attributes:
        numbers: The segments that go, as far as they are there.
        first: Number of the oldest segment that stays.
        version: Its first version.
    """

    numbers: tuple[int, ...]
    first: int
    version: int


def damaged_beginning(filesystem: FileSystem, report: Report, state: HeadState) -> Beginning | str:
    """What has to go, or why that is not possible.

    Args:
        filesystem: Where the log lies.
        report: What was found.
        state: Of HEAD. If it tells of a cut, the log ends in the segment of the cut: what lies behind it is going to be
            removed, so it is nothing that would be left.

    Raises:
        OSError: If the directory or a header cannot be read.
    """
    numbers = [
        number for number in segment_numbers(filesystem.listing(report.path)) if number >= report.first
    ]
    if state.flags & CUT:
        numbers = [number for number in numbers if number <= state.segment]
    first = report.first
    for one in report.findings:
        if segment_number(one.name) is None or one.kind in _ELSEWHERE or one.verdict < Verdict.CORRUPT:
            continue
        # A header that does not continue the segment before is at fault only if that one stays.
        first = max(first, one.segment + (one.kind != _JOINT))
    last = max(numbers, default=0)
    while first <= last and first not in numbers:
        first += 1
    if first > last:
        return "the last segment is damaged too, so nothing would be left; without --drop-oldest the log is cut there"
    with contextlib.closing(filesystem.open(report.path / segment_name(first), "read")) as file:
        header = SegmentHeader.unpack(file.pread(DATA_START, 0))
    return Beginning(tuple(number for number in numbers if number < first), first, header.first_version)


def drop(filesystem: FileSystem, directory: Path, head: Head, beginning: Beginning) -> None:
    """Lets the log begin behind its damage. Copies were made, and the lock is held.

    Raises:
        OSError: If something cannot be written.
    """
    state = head.state
    # What was withheld from an earlier place on is withheld from the new beginning on.
    behind = state.flags & DEFERRED and state.visible < beginning.version - 1
    visible = beginning.version - 1 if behind else KEEP
    place = state.epoch, state.durable, state.segment, state.offset
    for _ in range(2):
        head.write(*place, oldest=beginning.first, flags=state.flags & CUT, visible=visible)
    for number in beginning.numbers:
        remove_segment(filesystem, directory, number)
    sync_names(filesystem, directory)

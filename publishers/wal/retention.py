"""Retention: which segments may go."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from publishers.options import LogOptions
from publishers.wal.catalog import SegmentEntry

__all__ = ["oldest_to_keep"]


def oldest_to_keep(
    entries: Sequence[SegmentEntry],
    size: Callable[[int], int],
    options: LogOptions,
    floor: int | None,
    now: int,
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
        now: Unix microseconds.
    """
    most, age = options.retain_bytes, options.retain_age
    total = sum(size(entry.number) for entry in entries) if most is not None else 0
    for entry, following in pairwise(entries):
        if floor is not None and following.first_version > floor:
            return entry.number
        large = most is not None and total > most
        old = age is not None and now - following.created_at > age * 1e6
        if not large and not old:
            return entry.number
        if most is not None:
            total -= size(entry.number)
    return entries[-1].number

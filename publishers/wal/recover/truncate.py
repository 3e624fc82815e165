"""Cutting the end of a log off: what was withheld, and is to be forgotten.

The order is what makes it safe. HEAD tells of the cut, with its place, and is synced; then the later segments go, the
newest first, the segment of the cut is truncated, file and directory are synced; then HEAD tells of it no more. A crash
anywhere in between leads back to the first of these steps, because recovery finishes a cut before it looks at anything.
The segment of the cut is opened before any other goes: where it is missing, nothing is removed.

A HEAD of an older copy may tell of a cut that was finished long ago, and what lies behind its place was committed since.
TAIL says so, as no cut is older than the epoch of a writer that has shown something: then nothing is cut.

The place is where the first forgotten transaction *begins*, behind the control frames that are before it, so that it is
never before a place that anybody has been told of.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from publishers.errors import WalCorrupted
from publishers.model.position import epoch_text
from publishers.wal.disk.filesystem import FileSystem, sync_file, sync_names
from publishers.wal.files.head import Head, HeadState
from publishers.wal.files.segment import index_name, segment_name
from publishers.wal.files.tail_page import Tail, TailState
from publishers.wal.read.catalog import Catalog, Limit, Location
from publishers.wal.read.reader import Reader

__all__ = ["finish_truncation", "is_outdated", "place_of", "truncate"]


def place_of(catalog: Catalog, limit: Limit, version: int) -> Location:
    """Where a transaction begins, or the end of the log if it is not there yet; leaves nothing in any cache.

    Raises:
        HistoryPruned: If it is older than what is kept.
        WalCorrupted: If a frame on the way is damaged.
    """
    return Reader(catalog, lambda: limit).locate(version)


def truncate(
    filesystem: FileSystem, directory: Path, segment: int, offset: int, numbers: Iterable[int]
) -> None:
    """Removes what lies behind a place, durably; may be done again.

    Args:
        filesystem: Where.
        directory: Of the log.
        segment: The segment that becomes the last one.
        offset: Where it ends.
        numbers: The segments that may be there.

    Raises:
        OSError: What the file system raises; FileNotFoundError, and nothing is removed, if ``segment`` is missing.
    """
    with contextlib.closing(filesystem.open(directory / segment_name(segment), "write")) as file:
        for number in sorted(numbers, reverse=True):
            if number > segment:
                for name in (segment_name(number), index_name(number)):
                    with contextlib.suppress(FileNotFoundError):
                        filesystem.unlink(directory / name)
        with contextlib.suppress(FileNotFoundError):
            filesystem.unlink(directory / index_name(segment))
        file.truncate(min(offset, file.size()))  # also once more: of the first time the sync may have failed
        sync_file(file)
    sync_names(filesystem, directory)


def is_outdated(state: HeadState, shown: TailState) -> bool:
    """Whether HEAD is of an older copy: TAIL, written since this machine was started, tells of an epoch that HEAD cannot know.

    Only TAIL says so: a backup that was not finished has segments of later epochs behind its HEAD, which go.
    """
    return shown.epoch > state.epoch or (shown.epoch == state.epoch and shown.random != state.random)


def finish_truncation(
    filesystem: FileSystem, directory: Path, head: Head, numbers: list[int], tail: Tail
) -> list[int]:
    """Finishes a cut that HEAD tells of; returns the segments that are left.

    It may be that of a repair, which gives up what had been shown; so TAIL, which may tell of it, is cleared before HEAD does
    not tell of the cut any more.

    Raises:
        WalCorrupted: If the segment of the cut is missing, or HEAD is that of an older copy.
        OSError: What the file system raises.
    """
    state = head.state
    shown = tail.read()
    if shown is not None and is_outdated(state, shown):
        ours, theirs = epoch_text(state.epoch, state.random), epoch_text(shown.epoch, shown.random)
        why = f"HEAD tells of a cut in epoch {ours}, but TAIL of epoch {theirs}: HEAD is older than the rest"
        raise WalCorrupted(state.segment, state.offset, why)
    try:
        truncate(filesystem, directory, state.segment, state.offset, numbers)
    except FileNotFoundError:
        raise WalCorrupted(
            state.segment, 0, "HEAD tells of a cut in this segment, which is missing"
        ) from None
    tail.clear()
    head.write(state.epoch, state.durable, state.segment, state.offset)
    return [number for number in numbers if number <= state.segment]

"""Truncates the end of a log: withheld transactions that are to be removed.

HEAD records the truncation, with its location, and is synced. Then the later segments are removed, newest first; the segment of
the truncation is truncated; file and directory are synced. Then HEAD drops the record. After a crash in between, recovery repeats
these steps before it reads anything else. The segment of the truncation is opened first: if it is missing, nothing is removed.

A HEAD of an older copy may record a truncation that was finished long ago, while the transactions behind its location were
committed since. TAIL shows that, as no pending truncation is older than the epoch of a writer that has published: then nothing is
truncated.

The location is the *beginning* of the first removed transaction, behind the control frames before it, so it is never before a
location that a reader has seen.
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
    """The location of a transaction, or the end of the log if it is not written yet; leaves nothing in any cache.

    Raises:
        HistoryPruned: If it is older than the kept history.
        WalCorrupted: If a frame on the way is damaged.
    """
    return Reader(catalog, lambda: limit).locate(version)


def truncate(
    filesystem: FileSystem, directory: Path, segment: int, offset: int, numbers: Iterable[int]
) -> None:
    """Removes everything behind a location, durably. Idempotent.

    Args:
        filesystem: The file system.
        directory: The directory of the log.
        segment: The segment that becomes the last one.
        offset: Its new end.
        numbers: The segments that may exist.

    Raises:
        OSError: From the file system; FileNotFoundError, and nothing is removed, if ``segment`` is missing.
    """
    with contextlib.closing(filesystem.open(directory / segment_name(segment), "write")) as file:
        for number in sorted(numbers, reverse=True):
            if number > segment:
                for name in (segment_name(number), index_name(number)):
                    with contextlib.suppress(FileNotFoundError):
                        filesystem.unlink(directory / name)
        with contextlib.suppress(FileNotFoundError):
            filesystem.unlink(directory / index_name(segment))
        file.truncate(min(offset, file.size()))  # repeated even if done before: that sync may have failed
        sync_file(file)
    sync_names(filesystem, directory)


def is_outdated(state: HeadState, shown: TailState) -> bool:
    """Whether HEAD belongs to an older copy: TAIL, written since this machine was booted, has an epoch that HEAD cannot know.

    Only TAIL proves that: an unfinished backup has segments of later epochs than its HEAD, which are to be removed.
    """
    return shown.epoch > state.epoch or (shown.epoch == state.epoch and shown.random != state.random)


def finish_truncation(
    filesystem: FileSystem, directory: Path, head: Head, numbers: list[int], tail: Tail
) -> list[int]:
    """Finishes a truncation that HEAD records; returns the remaining segments.

    A repair may truncate even visible versions; so TAIL, which may hold them, is cleared before HEAD drops the record of the
    truncation.

    Raises:
        WalCorrupted: If the segment of the truncation is missing, or HEAD belongs to an older copy.
        OSError: From the file system.
    """
    state = head.state
    shown = tail.read()
    if shown is not None and is_outdated(state, shown):
        ours, theirs = epoch_text(state.epoch, state.random), epoch_text(shown.epoch, shown.random)
        why = f"HEAD records a truncation in epoch {ours}, but TAIL is of epoch {theirs}: HEAD is older than the rest"
        raise WalCorrupted(state.segment, state.offset, why)
    try:
        truncate(filesystem, directory, state.segment, state.offset, numbers)
    except FileNotFoundError:
        raise WalCorrupted(
            state.segment, 0, "HEAD records a truncation in this segment, which is missing"
        ) from None
    tail.clear()
    head.write(state.epoch, state.durable, state.segment, state.offset)
    return [number for number in numbers if number <= state.segment]

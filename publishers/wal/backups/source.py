"""The source of a backup: the visible part of a log at one moment, with segments kept open against retention."""

import contextlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from publishers.wal.disk.filesystem import File, FileSystem
from publishers.wal.files.segment import DATA_START, segment_name
from publishers.wal.follower import Follower
from publishers.wal.recover.inspector import header_at

__all__ = ["Overtaken", "ShownVersion", "look", "open_ahead", "overtaking"]

_OPEN: Final = 64
"""Most segments opened ahead: an open segment stays readable when retention deletes it."""


class Overtaken(Exception):
    """Retention has deleted a segment before it was opened.

    Attributes:
        number: The number of the segment.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"segment {number} was deleted")
        self.number = number


@contextlib.contextmanager
def overtaking(number: int) -> Iterator[None]:
    """Raises `Overtaken` if a segment of the source no longer exists."""
    try:
        yield
    except FileNotFoundError:
        raise Overtaken(number) from None


class ShownVersion(NamedTuple):
    """The visible part of a log.

    Attributes:
        log_id: The id of the log.
        first: Its oldest segment.
        version: The newest visible version.
        segment: The segment in which this version ends.
        end: The offset of its end in the segment.
    """

    log_id: UUID
    first: int
    version: int
    segment: int
    end: int


def look(filesystem: FileSystem, directory: Path) -> ShownVersion:
    """Reads the visible part of a log; writes nothing.

    Raises:
        NotALog: If there is no log.
        LogUnreadable: If a file cannot be opened.
        WalCorrupted: If HEAD or the header of a segment is damaged.
    """
    with contextlib.closing(Follower.open(directory, filesystem=filesystem)) as follower:
        first, limit = follower.extent
    # If all transactions of the last segment are withheld, the visible part ends before its checkpoint. The checkpoint is copied
    # nevertheless: a segment begins with one, and retention may delete the previous segment.
    end = limit.offset
    if end <= DATA_START:
        with contextlib.closing(filesystem.open(directory / segment_name(limit.segment), "read")) as file:
            end = DATA_START + header_at(file, DATA_START).extent
    return ShownVersion(follower.log_id, first, limit.version, limit.segment, end)


def open_ahead(
    filesystem: FileSystem, directory: Path, numbers: Iterable[int]
) -> Generator[tuple[int, File], None, None]:
    """Yields opened segments in the given order, opens a bounded number ahead, and closes them.

    Raises:
        Overtaken: If a segment is missing, also one that is opened ahead.
        OSError: From the file system.
    """
    waiting = deque(numbers)
    opened: deque[tuple[int, File]] = deque()
    try:
        while waiting or opened:
            while waiting and len(opened) <= _OPEN:
                number = waiting.popleft()
                with overtaking(number):
                    opened.append((number, filesystem.open(directory / segment_name(number), "read")))
            yield opened[0]
            opened.popleft()[1].close()
    finally:
        for _, file in opened:
            file.close()

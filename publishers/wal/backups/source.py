"""What there is to be copied: the segments that a log shows at one moment, kept open against retention."""

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
"""Most files that are open ahead: what is open stays readable when retention deletes it."""


class Overtaken(Exception):
    """Retention has deleted a segment before it was opened.

    Attributes:
        number: Of the segment.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"segment {number} was deleted")
        self.number = number


@contextlib.contextmanager
def overtaking(number: int) -> Iterator[None]:
    """Raises `Overtaken` where a segment of the source is not there any more."""
    try:
        yield
    except FileNotFoundError:
        raise Overtaken(number) from None


class ShownVersion(NamedTuple):
    """What a log shows.

    Attributes:
        log_id: Of the log.
        first: Its oldest segment.
        version: The newest version that is visible.
        segment: The segment in which that ends.
        end: Where it ends there.
    """

    log_id: UUID
    first: int
    version: int
    segment: int
    end: int


def look(filesystem: FileSystem, directory: Path) -> ShownVersion:
    """Looks how far a log is shown, as any reader does; nothing is written.

    Raises:
        NotALog: If there is none.
        LogUnreadable: If a file cannot be opened.
        WalCorrupted: If HEAD or the header of a segment is damaged.
    """
    with contextlib.closing(Follower.open(directory, filesystem=filesystem)) as follower:
        first, limit = follower.extent
    # Where all of a segment is withheld, what is shown ends before its checkpoint. That withholds nothing, and without it
    # there is no segment; the one before may be deleted.
    end = limit.offset
    if end <= DATA_START:
        with contextlib.closing(filesystem.open(directory / segment_name(limit.segment), "read")) as file:
            end = DATA_START + header_at(file, DATA_START).extent
    return ShownVersion(follower.log_id, first, limit.version, limit.segment, end)


def open_ahead(
    filesystem: FileSystem, directory: Path, numbers: Iterable[int]
) -> Generator[tuple[int, File], None, None]:
    """Opens segments in the order in which they are asked for, a bounded number of them ahead, and closes them.

    Raises:
        Overtaken: If one of them is missing, also one that is opened ahead.
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

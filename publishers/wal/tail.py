"""TAIL: a page of 4 KiB, mapped by writer and followers, that tells the live visible position.

It is never synced and counts only within the boot that wrote it; otherwise HEAD does. The counter is odd while the
page is being changed; a reader takes what it has read between two equal even counters, with the right crc.

Behind it stands a number that each opening for writing raises before it touches anything else. An owner who finds another
number than his own was fenced off: somebody took his lock away from him, and writes.
"""

from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from publishers.wal.filesystem import FileSystem, write_all

__all__ = ["TAIL_NAME", "Tail", "TailState"]

TAIL_NAME: Final = "TAIL"
_PAGE: Final = 4096
_COUNTER: Final = Struct("<Q")
_BODY: Final = Struct("<QQQQQ16s")
_CRC: Final = Struct("<I")
_ATTEMPTS: Final = 64
_FENCE: Final = 128
_NO_BOOT: Final = bytes(16)


class TailState(NamedTuple):
    """What TAIL tells.

    Attributes:
        epoch: Of the writer.
        visible: Newest visible version.
        segment: Where its last frame lies.
        end: Offset behind that frame.
        durable: Newest durable version.
    """

    epoch: int
    visible: int
    segment: int
    end: int
    durable: int


class Tail:
    """The page, mapped. One writer; any number of readers in any process."""

    def __init__(self, page: memoryview, boot_id: bytes) -> None:
        self._page = page
        self._boot_id = boot_id
        # Where an older kernel or a foreign hand left nonsense, counting starts anew.
        self._counter: int = _COUNTER.unpack_from(page)[0] & 0xFFFFFFFF
        self._fence = bytes(page[_FENCE : _FENCE + 8])

    @classmethod
    def create(cls, filesystem: FileSystem, directory: Path) -> "Tail":
        """Maps the page for writing, making it where there is none.

        Raises:
            OSError: What the file system raises.
        """
        file = filesystem.open(directory / TAIL_NAME, "create")
        try:
            if file.size() < _PAGE:
                # Written, not lengthened: a store into a hole of a full disk would end the process with SIGBUS.
                write_all(file, bytes(_PAGE), 0)
            return cls(file.map(_PAGE), filesystem.boot_id())
        finally:
            file.close()

    @classmethod
    def open(cls, filesystem: FileSystem, directory: Path) -> "Tail | None":
        """Maps the page for reading; None where there is no whole page."""
        try:
            file = filesystem.open(directory / TAIL_NAME, "read")
        except OSError:
            return None
        try:
            return cls(file.map(_PAGE), filesystem.boot_id()) if file.size() >= _PAGE else None
        except OSError:
            return None
        finally:
            file.close()

    def claim(self) -> None:
        """Fences off every owner before, who finds it out at his next commit."""
        number = (_COUNTER.unpack(self._fence)[0] + 1) & 0xFFFFFFFFFFFFFFFF
        self._fence = _COUNTER.pack(number)
        self._page[_FENCE : _FENCE + 8] = self._fence

    @property
    def claimed(self) -> bool:
        """Whether nobody has claimed the log since."""
        return self._page[_FENCE : _FENCE + 8] == self._fence

    def write(self, epoch: int, visible: int, segment: int, end: int, durable: int) -> None:
        """Publishes a position."""
        page = self._page
        counter = (self._counter | 1) + 2
        body = _BODY.pack(epoch, visible, segment, end, durable, self._boot_id)
        _COUNTER.pack_into(page, 0, counter)
        page[8:68] = body + _CRC.pack(crc32(body))
        self._counter = counter = counter + 1
        _COUNTER.pack_into(page, 0, counter)

    def read(self) -> TailState | None:
        """What the page tells, or None if it is of another boot, or is not whole (its writer died in the middle)."""
        page = self._page
        for _ in range(_ATTEMPTS):
            (before,) = _COUNTER.unpack_from(page)
            if before & 1:
                continue
            copy = bytes(page[8:68])
            if _COUNTER.unpack_from(page)[0] != before:
                continue
            if crc32(copy[:56]) != _CRC.unpack_from(copy, 56)[0]:
                continue
            *fields, boot_id = _BODY.unpack_from(copy)
            return TailState(*fields) if boot_id == self._boot_id != _NO_BOOT else None
        return None

    def close(self) -> None:
        """Unmaps the page."""
        self._page.release()

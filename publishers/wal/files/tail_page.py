"""TAIL: a page of 4 KiB, mapped by writer and followers, that tells the live visible position.

It is never synced and counts only within the boot that wrote it; otherwise HEAD does. Within that boot nothing that it tells
of can be lost by a crash: where the files hold less, some of them are missing, or were replaced by older ones. The counter is odd while the
page is being changed; a reader takes what it has read between two equal even counters, with the right crc.

What format 1 tells is 56 bytes with their crc; format 2 adds the random bits of the epoch, before the crc.

Behind it stands a number that each opening for writing raises before it touches anything else. An owner who finds another
number than his own was fenced off: somebody took his lock away from him, and writes.
"""

import contextlib
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from flow import forks
from publishers.wal.disk.filesystem import File, FileSystem, open_file, write_all

__all__ = ["TAIL_NAME", "Tail", "TailState"]

TAIL_NAME: Final = "TAIL"
_PAGE: Final = 4096
_COUNTER: Final = Struct("<Q")
_BODY: Final = Struct("<QQQQQ16sQ")
_SEALED: Final = Struct("<QQQQQ16sQI")
_PLAIN: Final = _BODY.size - 8
_COPY: Final = slice(8, 8 + _SEALED.size)
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
        random: Random bits of the epoch; 0 for one of format 1.
    """

    epoch: int
    visible: int
    segment: int
    end: int
    durable: int
    random: int = 0


class Tail:
    """The page, mapped. One writer; any number of readers in any process.

    Attributes:
        fence: What the last opening for writing has left in the page.
        own: The same, as this one has left it.
    """

    def __init__(
        self, page: memoryview, boot_id: bytes, file: File | None = None, path: Path = Path()
    ) -> None:
        self._page = page
        self._file = file
        self._path = path
        self._boot_id = boot_id
        # Where an older kernel or a foreign hand left nonsense, counting starts anew.
        self._counter: int = _COUNTER.unpack_from(page)[0] & 0xFFFFFFFF
        self.fence = page[_FENCE : _FENCE + 8]
        self.own = bytes(self.fence)
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`: the page is shared with the parent. An empty one tells nothing, and that it is claimed."""
        self._page = memoryview(bytes(_PAGE))
        self.fence = self._page[_FENCE : _FENCE + 8]

    @classmethod
    def create(cls, filesystem: FileSystem, directory: Path) -> "Tail":
        """Maps the page for writing, making it where there is none.

        Raises:
            LogUnreadable: If it is there and cannot be opened.
            OSError: What the file system raises.
        """
        with contextlib.closing(open_file(filesystem, directory / TAIL_NAME, "create")) as file:
            if file.size() < _PAGE:
                # Written, not lengthened: a store into a hole of a full disk would end the process with SIGBUS.
                write_all(file, bytes(_PAGE), 0)
            return cls(file.map(_PAGE), filesystem.boot_id())

    @classmethod
    def open(cls, filesystem: FileSystem, directory: Path) -> "Tail | None":
        """Maps the page for reading; None where there is no whole page.

        Raises:
            LogUnreadable: If it is there and cannot be opened.
        """
        path = directory / TAIL_NAME
        try:
            file = open_file(filesystem, path, "read")
        except OSError:
            return None
        try:
            if file.size() >= _PAGE:
                return cls(file.map(_PAGE), filesystem.boot_id(), file, path)
        except OSError:
            pass
        file.close()
        return None

    def holds(self) -> bool:
        """Whether the page that was opened for reading still has its name; else another one may be written."""
        return self._file is None or self._file.is_at(self._path)

    def claim(self) -> None:
        """Fences off every owner before, who finds it out at his next commit."""
        number = (_COUNTER.unpack(self.own)[0] + 1) & 0xFFFFFFFFFFFFFFFF
        self.fence[:] = self.own = _COUNTER.pack(number)

    @property
    def claimed(self) -> bool:
        """Whether nobody has claimed the log since."""
        return self.fence == self.own

    def write(self, epoch: int, visible: int, segment: int, end: int, durable: int, random: int = 0) -> bool:
        """Publishes a position, if nobody has claimed the log since; else it does nothing, and answers false."""
        if self.fence != self.own:
            return False
        body = _BODY.pack(epoch, visible, segment, end, durable, self._boot_id, random)
        page = self._page
        counter = (self._counter | 1) + 2
        _COUNTER.pack_into(page, 0, counter)
        page[_COPY] = body + _CRC.pack(crc32(body))
        self._counter = counter = counter + 1
        _COUNTER.pack_into(page, 0, counter)
        return True

    def clear(self) -> None:
        """Lets the page tell nothing, because what it tells of is given up: as if its writer had died while it wrote."""
        self._counter |= 1
        _COUNTER.pack_into(self._page, 0, self._counter)

    def read(self) -> TailState | None:
        """What the page tells, or None if it is of another boot, or is not whole (its writer died in the middle)."""
        page = self._page
        for _ in range(_ATTEMPTS):
            (before,) = _COUNTER.unpack_from(page)
            if before & 1:
                continue
            copy = bytes(page[_COPY])
            if _COUNTER.unpack_from(page)[0] != before:
                continue
            epoch, visible, segment, end, durable, boot_id, random, crc = _SEALED.unpack(copy)
            if crc32(copy[: _BODY.size]) != crc:
                if crc32(copy[:_PLAIN]) != _CRC.unpack_from(copy, _PLAIN)[0]:
                    continue
                random = 0
            if not boot_id == self._boot_id != _NO_BOOT:
                return None
            return TailState(epoch, visible, segment, end, durable, random)
        return None

    def close(self) -> None:
        """Unmaps the page."""
        self.fence.release()
        self._page.release()
        if self._file is not None:
            self._file.close()

"""TAIL: a page of 4 KiB, mapped by writer and followers, with the current visible position.

It is never synced, and valid only within the boot that wrote it; otherwise HEAD is used. Within that boot a crash cannot lose
anything that TAIL records: if the files hold less, some are missing, or were replaced by older ones. The counter is odd
while the page is being changed; a read is valid if the counter was the same even number before and after it, and the crc is
right.

Format 1 has 56 bytes and their crc; format 2 adds the random bits of the epoch before the crc.

A further number follows, which each opening for writing raises before it touches anything else. An owner that finds another
number than its own was fenced off: another process has acquired its lock, and writes.

Behind it the writer says until when it is alive, by the monotonic clock of this boot, and moves that on. It is for followers that
may not open LOCK. It has the number of the opening, so that nothing is believed of an earlier one.
"""

import contextlib
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from flow import forks
from publishers.wal.disk.filesystem import File, FileSystem, open_file, write_all

__all__ = ["TAIL_NAME", "Tail", "TailLife", "TailState"]

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
_LIFE: Final = 192
_ALIVE: Final = Struct("<Q16sQQ")
_NO_BOOT: Final = bytes(16)


class TailState(NamedTuple):
    """The content of TAIL.

    Attributes:
        epoch: Epoch of the writer.
        visible: Newest visible version.
        segment: Segment of its last frame.
        end: Offset behind that frame.
        durable: Newest durable version.
        random: Random bits of the epoch; 0 for an epoch of format 1.
    """

    epoch: int
    visible: int
    segment: int
    end: int
    durable: int
    random: int = 0


class TailLife(NamedTuple):
    """What the writer says of itself.

    Attributes:
        until: Time in microseconds, by the monotonic clock, until which it is alive; 0 behind its end.
        pid: Its process.
    """

    until: int
    pid: int


class Tail:
    """The mapped page. It has one writer, and any number of readers in any process.

    Attributes:
        fence: The number of the latest opening for writing, in the page.
        own: The number of this opening.
    """

    def __init__(
        self, page: memoryview, boot_id: bytes, file: File | None = None, path: Path = Path()
    ) -> None:
        self._page = page
        self._file = file
        self._path = path
        self._boot_id = boot_id
        # An older kernel or another program may have left garbage; then counting restarts.
        self._counter: int = _COUNTER.unpack_from(page)[0] & 0xFFFFFFFF
        self.fence: memoryview[int] = page[_FENCE : _FENCE + 8]
        self.own: bytes = bytes(self.fence)
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`: the page is shared with the parent, so an empty one replaces it, which reads as claimed."""
        self._page = memoryview(bytes(_PAGE))
        self.fence = self._page[_FENCE : _FENCE + 8]

    @classmethod
    def create(cls, filesystem: FileSystem, directory: Path) -> "Tail":
        """Maps the page for writing; creates it if there is none.

        Raises:
            LogUnreadable: If it exists and cannot be opened.
            OSError: From the file system.
        """
        with contextlib.closing(open_file(filesystem, directory / TAIL_NAME, "create")) as file:
            if file.size() < _PAGE:
                # Written, not extended: a store into a hole on a full disk would end the process with SIGBUS.
                write_all(file, bytes(_PAGE), 0)
            return cls(file.map(_PAGE), filesystem.boot_id())

    @classmethod
    def open(cls, filesystem: FileSystem, directory: Path) -> "Tail | None":
        """Maps the page for reading; None if there is no complete page.

        Raises:
            LogUnreadable: If it exists and cannot be opened.
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
        """Whether the page opened for reading is still the file at its path; else the writer may write another one."""
        return self._file is None or self._file.is_at(self._path)

    def claim(self) -> None:
        """Fences off every earlier owner, which notices at its next commit."""
        number = (_COUNTER.unpack(self.own)[0] + 1) & 0xFFFFFFFFFFFFFFFF
        self.fence[:] = self.own = _COUNTER.pack(number)

    @property
    def claimed(self) -> bool:
        """Whether this opening still holds its claim: no later opening has claimed the log."""
        return self.fence == self.own

    def live(self, until: int, pid: int) -> None:
        """Says until when this writer is alive, in microseconds; 0 for its end."""
        if self.fence == self.own:
            number = _COUNTER.unpack(self.own)[0]
            _ALIVE.pack_into(self._page, _LIFE, number, self._boot_id, until, pid)

    def life(self) -> TailLife | None:
        """Returns what the writer has said last; None if the latest opening for writing has said nothing, or nothing is known of boots."""
        fence, boot_id, until, pid = _ALIVE.unpack_from(self._page, _LIFE)
        if fence != _COUNTER.unpack(self.fence)[0] or self._boot_id == _NO_BOOT:
            return None
        return TailLife(until if boot_id == self._boot_id else 0, pid)

    def write(self, epoch: int, visible: int, segment: int, end: int, durable: int, random: int = 0) -> bool:
        """Publishes a position; does nothing and returns False if a later opening has claimed the log."""
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
        """Invalidates the page, because its content is given up: as if its writer had died during a write."""
        self._counter |= 1
        _COUNTER.pack_into(self._page, 0, self._counter)

    def read(self) -> TailState | None:
        """Returns the content; None if it is from another boot, or incomplete because its writer died during a write."""
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

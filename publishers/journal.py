"""A journal beside a log: each frame is appended to two files, and synced in one of them, in the other one than the frame before.

A frame has the header of a CONTROL frame of the log: its crc, the crc of the previous frame, the id of the log in place of the
producer, and in place of the version a number that rises by 1. The first frame of a file (FIRST) holds the whole content. The
files are replaced by a fresh first frame when they have grown to four times its size, and after every error of the disk, since
it is then unknown what of the old file has reached the medium.

A power cut leaves at least one file with every frame whose append returned. The file with the higher number is used, and intact
frames of either file that continue it. If a later intact frame proves that a frame was written, and neither file has that frame,
the journal is damaged: `JournalDamaged`. Damage to one file loses nothing, unless the power is cut before the last frame is in
the other one: then the last frame, at most.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID
from zlib import crc32

from publishers.wal import FileSystem, FrameHeader
from publishers.wal.disk.filesystem import put_file, read_file, sync_file, sync_names, write_all
from publishers.wal.format.frame import CONTROL, FIRST, HEADER_BYTES, padded, seal

__all__ = ["JOURNAL_NAMES", "Journal", "JournalDamaged"]

JOURNAL_NAMES: Final = ("JOURNAL", "JOURNAL.copy")

_LEAST: Final = 64 * 1024
_GROWTH: Final = 4
_PRODUCER_AT: Final = 48  # offset in the header of a frame


class JournalDamaged(Exception):
    """A frame that was synced is in neither of the files.

    Attributes:
        path: The file with more good frames.
        why: What is wrong with it.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is {why}")
        self.path = path
        self.why = why


class _Scan(NamedTuple):
    """The content of one file.

    Attributes:
        payloads: Payloads of its good frames, up to the first bad one.
        sequence: Number of the last good frame; 0 if there is none.
        crc: Checksum of the last good frame.
        end: Offset behind the last good frame.
        later: Intact frames behind the first bad one, with their payloads.
    """

    payloads: list[bytes]
    sequence: int
    crc: int
    end: int
    later: list[tuple[FrameHeader, bytes]]


class Journal:
    """The two files of a journal. For one thread at a time.

    Args:
        filesystem: Holds the files.
        directory: Their directory, created with the first frame.
        log_id: Id of the log.
        insist: Repeats a write while the disk is full and reserved room can be released for it; see `Wal.insist`.

    Attributes:
        path: The first of the files.
        nbytes: Bytes of one of the files.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        log_id: UUID,
        insist: Callable[[Callable[[], None]], None] = lambda write: write(),
    ) -> None:
        self.nbytes: int = 0
        self._filesystem = filesystem
        self._directory = directory
        self.path: Path = self._directory / JOURNAL_NAMES[0]
        self._log_id = log_id.bytes
        self._insist = insist
        self._sequence = 0
        self._crc = 0
        self._live = 0  # bytes of the first frame
        self._even = False  # whether both files are equal, and known to be durable

    def load(self, *, owned: bool = False) -> list[bytes]:
        """Reads both files; writes nothing.

        Args:
            owned: Whether the owner of the log reads them, who leaves them to itself alone.

        Returns:
            The payloads of the valid frames; empty if nothing was ever written.

        Raises:
            JournalDamaged: If a synced frame is in neither of the files.
            OSError: From the file system.
        """
        data = [self._read(name, owned=owned) for name in JOURNAL_NAMES]
        if data == [None, None]:
            return []
        scans = [_scan(one or b"", self._log_id) for one in data]
        best = max(scans, key=lambda one: one.sequence)
        self._sequence, self._crc = best.sequence, best.crc
        later = sorted((one for scan in scans for one in scan.later), key=lambda one: one[0].version)
        for header, payload in later if best.payloads else ():
            if header.version == self._sequence + 1 and header.previous == self._crc:
                best.payloads.append(payload)
                self._sequence, self._crc = header.version, header.crc
        if not best.payloads or (later and self._sequence < later[-1][0].version):
            path = self._directory / JOURNAL_NAMES[scans.index(best)]
            raise JournalDamaged(path, f"damaged at byte {best.end}, and so is {self._other(path)}")
        self._live = HEADER_BYTES + padded(len(best.payloads[0]))
        self.nbytes = best.end
        self._even = data[0] == data[1] and best.end == len(data[0] or b"")
        return best.payloads

    def append(self, payload: bytes, everything: Callable[[], bytes]) -> None:
        """Writes a frame durably, or replaces the files if that is due.

        Args:
            payload: The modification.
            everything: Makes the payload of the whole content, this modification included.

        Raises:
            OSError: From the file system. The modification may or may not have been stored.
        """
        self._sequence += 1  # a failed write may have left a frame of the current number
        if self.replaces(payload):
            self._replace(everything())
            return
        frame, crc = self._sealed(payload, self._crc, CONTROL)
        self._even = False
        self._insist(lambda: self._write(frame))
        self._crc = crc
        self.nbytes += len(frame)
        self._even = True

    def replaces(self, payload: bytes) -> bool:
        """Whether `append` of a payload replaces the files instead."""
        size = HEADER_BYTES + padded(len(payload))
        return not self._even or self.nbytes + size > max(_LEAST, _GROWTH * self._live)

    def _write(self, frame: bytes) -> None:
        """Writes a frame to both files, and syncs the one that was not synced last.

        While that one is written, the other has no write that is not durable, so a power cut that damages the sectors being
        written takes nothing from it.
        """
        synced = self._sequence % 2
        for name in (JOURNAL_NAMES[synced], JOURNAL_NAMES[not synced]):
            with contextlib.closing(self._filesystem.open(self._directory / name, "write")) as file:
                write_all(file, frame, self.nbytes)
                if name == JOURNAL_NAMES[synced]:
                    sync_file(file)

    def _replace(self, payload: bytes) -> None:
        frame, crc = self._sealed(payload, 0, CONTROL | FIRST)
        self._even = False
        self._filesystem.make_directory(self._directory)
        self._insist(lambda: self._put(frame))
        self._crc = crc
        self._live = self.nbytes = len(frame)
        self._even = True

    def _put(self, frame: bytes) -> None:
        for name in JOURNAL_NAMES:
            put_file(self._filesystem, self._directory / name, frame, "private")
            sync_names(self._filesystem, self._directory)

    def _sealed(self, payload: bytes, previous: int, flags: int) -> tuple[bytes, int]:
        header, fields = seal(
            len(payload), crc32(payload), previous, 0, self._sequence, 0, flags, 0, 0, self._log_id, 0, 0, 0
        )
        return header + payload.ljust(padded(len(payload)), b"\0"), fields.crc

    def _read(self, name: str, *, owned: bool) -> bytes | None:
        try:
            data = read_file(self._filesystem, self._directory / name)
        except FileNotFoundError:
            return None
        if owned:  # an earlier version made it for all to read
            self._filesystem.open(self._directory / name, "private").close()
        return data

    def _other(self, path: Path) -> str:
        return JOURNAL_NAMES[path.name == JOURNAL_NAMES[0]]


def _scan(data: bytes, log_id: bytes) -> _Scan:
    payloads: list[bytes] = []
    sequence = crc = end = 0
    while (header := _frame(data, end, log_id)) is not None:
        if header.previous != crc or header.flags != (CONTROL if payloads else CONTROL | FIRST):
            break
        if payloads and header.version != sequence + 1:
            break
        payloads.append(data[end + HEADER_BYTES : end + HEADER_BYTES + header.length])
        sequence, crc = header.version, header.crc
        end += header.extent
    later, at = [], end
    while (at := data.find(log_id, at)) >= 0:
        start = at - _PRODUCER_AT
        header = _frame(data, start, log_id)
        if header is not None:
            later.append((header, data[start + HEADER_BYTES : start + HEADER_BYTES + header.length]))
        at += 1
    return _Scan(payloads, sequence, crc, end, later)


def _frame(data: bytes, at: int, log_id: bytes) -> FrameHeader | None:
    """Returns the header of an intact frame of this log at an offset; None if there is none."""
    if at < 0 or len(data) - at < HEADER_BYTES:
        return None
    header = FrameHeader.unpack(data, at)
    payload = data[at + HEADER_BYTES : at + HEADER_BYTES + header.length]
    whole = header.length > 0 and header.extent <= len(data) - at and header.verify(payload)
    return header if whole and header.producer == log_id and header.flags & CONTROL else None

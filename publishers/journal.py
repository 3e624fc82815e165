"""A journal beside a log: frames that are appended to two files, one after the other, each synced before the next.

A frame has the header of a CONTROL frame of the log: its crc, the crc of the one before, the id of the log as the producer, and a
number that rises by 1 as the version. The first frame of a file (FIRST) holds everything; files are replaced by such a one when
they have grown to four times of it, and after every error of the disk, as nobody knows then what of the old file is on the medium.

A crash leaves at least one of the files with everything that was synced. The one that tells more counts. A frame of which the
files give evidence, because a later one is whole, and which neither of them has, is damage: `JournalDamaged`.
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
_PRODUCER_AT: Final = 48  # in the header of a frame


class JournalDamaged(Exception):
    """Something that was synced is in neither of the files.

    Attributes:
        path: The file that tells more.
        why: What is wrong with it.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is {why}")
        self.path = path
        self.why = why


class _Scan(NamedTuple):
    """What one file holds.

    Attributes:
        payloads: Of its good frames, up to the first that is none.
        sequence: Number of the last of them; 0 if there is none.
        crc: Of the last of them.
        end: Where they end.
        evidence: Number of the last frame that is whole, wherever it lies.
    """

    payloads: list[bytes]
    sequence: int
    crc: int
    end: int
    evidence: int


class Journal:
    """The two files. For one thread at a time.

    Args:
        filesystem: Where they are.
        directory: Their directory, which the first frame makes.
        log_id: Of the log.
        insist: Does a write again as long as room that is kept back can be given to it; see `Wal.insist`.

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
        self.nbytes = 0
        self._filesystem = filesystem
        self._directory = directory
        self.path = self._directory / JOURNAL_NAMES[0]
        self._log_id = log_id.bytes
        self._insist = insist
        self._sequence = 0
        self._crc = 0
        self._live = 0  # bytes of the first frame
        self._even = False  # whether both files hold the same, and all of it is durable for all that is known

    def load(self) -> list[bytes]:
        """Reads both files, and writes nothing.

        Returns:
            The payloads of the frames that count; none if nothing was ever written.

        Raises:
            JournalDamaged: If something that was synced is in neither of them.
            OSError: What the file system raises.
        """
        data = [self._read(name) for name in JOURNAL_NAMES]
        if data == [None, None]:
            return []
        scans = [_scan(one or b"", self._log_id) for one in data]
        best = max(scans, key=lambda one: one.sequence)
        if not best.payloads or best.sequence < max(one.evidence for one in scans):
            path = self._directory / JOURNAL_NAMES[scans.index(best)]
            raise JournalDamaged(path, f"damaged at byte {best.end}, and so is {self._other(path)}")
        self._sequence, self._crc = best.sequence, best.crc
        self._live = HEADER_BYTES + padded(len(best.payloads[0]))
        self.nbytes = best.end
        self._even = data[0] == data[1] and best.end == len(data[0] or b"")
        return best.payloads

    def append(self, payload: bytes, everything: Callable[[], bytes]) -> None:
        """Writes a frame, durably; or, where it is time, new files.

        Args:
            payload: What has changed.
            everything: Makes the payload that holds everything, this change included.

        Raises:
            OSError: What the file system raises. What the change has told may be there or not.
        """
        self._sequence += 1  # what a write that failed has left is another frame
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
        """Whether `append` of a payload writes everything instead."""
        size = HEADER_BYTES + padded(len(payload))
        return not self._even or self.nbytes + size > max(_LEAST, _GROWTH * self._live)

    def _write(self, frame: bytes) -> None:
        for name in JOURNAL_NAMES:
            with contextlib.closing(self._filesystem.open(self._directory / name, "write")) as file:
                write_all(file, frame, self.nbytes)
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
            put_file(self._filesystem, self._directory / name, frame)
            sync_names(self._filesystem, self._directory)

    def _sealed(self, payload: bytes, previous: int, flags: int) -> tuple[bytes, int]:
        header, fields = seal(
            len(payload), crc32(payload), previous, 0, self._sequence, 0, flags, 0, 0, self._log_id, 0, 0, 0
        )
        return header + payload.ljust(padded(len(payload)), b"\0"), fields.crc

    def _read(self, name: str) -> bytes | None:
        try:
            return read_file(self._filesystem, self._directory / name)
        except FileNotFoundError:
            return None

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
    evidence, at = sequence, end
    while (at := data.find(log_id, at)) >= 0:
        later = _frame(data, at - _PRODUCER_AT, log_id)
        evidence = max(evidence, 0 if later is None else later.version)
        at += 1
    return _Scan(payloads, sequence, crc, end, evidence)


def _frame(data: bytes, at: int, log_id: bytes) -> FrameHeader | None:
    """The header of a whole frame of this log at a place; None if there is none."""
    if at < 0 or len(data) - at < HEADER_BYTES:
        return None
    header = FrameHeader.unpack(data, at)
    payload = data[at + HEADER_BYTES : at + HEADER_BYTES + header.length]
    whole = header.length > 0 and header.extent <= len(data) - at and header.verify(payload)
    return header if whole and header.producer == log_id and header.flags & CONTROL else None

"""HEAD: two slots, written in turn, that record what was acknowledged.

A slot is 88 bytes at offset 0 or 4096, so that a single torn sector never damages both. The valid slot with the highest
counter is in force; the next write is counter + 1 into slot ``counter % 2``, also after a reopening.

Since format 2 an addition of 20 bytes follows a slot, marked by a flag in the slot: u16 format, u16 bytes of the addition,
u32 0, u64 random bits of the epoch, and a crc32 of its own, which continues that of the slot. The slot is valid only if
the addition is intact and belongs to it.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID
from zlib import crc32

from publishers.errors import FormatTooNew
from publishers.wal.disk.filesystem import (
    FencedError,
    File,
    FileSystem,
    SyncError,
    put_file,
    sync_file,
    sync_names,
    write_all,
)
from publishers.wal.disk.reserve import Reserve
from publishers.wal.files.segment import FORMAT

__all__ = [
    "CLEAN",
    "CUT",
    "DEFERRED",
    "HEAD_BYTES",
    "HEAD_NAME",
    "KEEP",
    "SLOTS",
    "SLOT_BYTES",
    "Head",
    "HeadState",
    "read_head",
    "unpack_slots",
]

CLEAN: Final = 1
CUT: Final = 2
DEFERRED: Final = 4
KEEP: Final = -1
"""As the visible version: leave it unchanged."""
HEAD_NAME: Final = "HEAD"
HEAD_BYTES: Final = 8192
SLOT_BYTES: Final = 88 + 20
"""Bytes of a slot with its addition."""

_MAGIC: Final = b"PENSHEAD"
_SLOT: Final = Struct("<8s16sQQQQQQIQ")
_CRC: Final = Struct("<I")
_MORE: Final = 8  # the flag of a slot with an addition
_ADDITION: Final = Struct("<HHIQ")
_PREFIX: Final = Struct("<HH")
_ADDITION_MOST: Final = 512 - 88  # so that no version of it ever leaves the sector
SLOTS: Final = (0, 4096)
"""Offsets of the slots."""


class HeadState(NamedTuple):
    """The content of a slot of HEAD.

    Attributes:
        log_id: Id of the log.
        counter: Number of writes of HEAD.
        epoch: Epoch of the last opening for writing.
        durable: Newest version known to be synced; with CUT the newest version to keep.
        segment: Segment in which the synced data end; with CUT the one to truncate.
        offset: Offset there.
        oldest: Oldest segment that is kept.
        flags: CLEAN, CUT, DEFERRED.
        visible: Newest version that may be published, synced or not; used with DEFERRED only.
        random: Random bits of the epoch; 0 for an epoch of format 1, whose slots have no addition.
    """

    log_id: UUID
    counter: int
    epoch: int
    durable: int
    segment: int
    offset: int
    oldest: int
    flags: int = 0
    visible: int = 0
    random: int = 0

    def pack(self) -> bytes:
        """Returns the bytes of a slot, with its addition."""
        *fields, flags, visible, random = self[1:]
        more = _MORE if random else 0
        body = _SLOT.pack(_MAGIC, self.log_id.bytes, *fields, flags | more, visible)
        crc = crc32(body)
        slot = body + _CRC.pack(crc)
        if not more:
            return slot
        addition = _ADDITION.pack(FORMAT, _ADDITION.size + _CRC.size, 0, random)
        return slot + addition + _CRC.pack(crc32(addition, crc))

    @classmethod
    def unpack(cls, data: bytes) -> "HeadState | None":
        """Unpacks a slot; None if it is not valid.

        Raises:
            FormatTooNew: If its addition is intact, and of a later format.
        """
        if len(data) < _SLOT.size + _CRC.size or data[:8] != _MAGIC:
            return None
        (crc,) = _CRC.unpack_from(data, _SLOT.size)
        if crc32(data[: _SLOT.size]) != crc:
            return None
        _, log_id, *fields = _SLOT.unpack_from(data)
        state = cls(UUID(bytes=log_id), *fields)
        if not state.flags & _MORE:
            return state
        random = _random_in(data[_SLOT.size + _CRC.size :][:_ADDITION_MOST], crc)
        return None if random is None else state._replace(flags=state.flags & ~_MORE, random=random)

    @property
    def newest_visible(self) -> int:
        """The newest version that may be delivered."""
        return min(self.visible, self.durable) if self.flags & DEFERRED else self.durable


def _random_in(data: bytes, slot_crc: int) -> int | None:
    """Returns the random bits in an addition; None if it is not intact, or belongs to another slot."""
    if len(data) < _PREFIX.size:
        return None
    form, size = _PREFIX.unpack_from(data)
    end = size - _CRC.size
    if (
        end < _PREFIX.size
        or size > len(data)
        or crc32(data[:end], slot_crc) != _CRC.unpack_from(data, end)[0]
    ):
        return None
    if form > FORMAT:
        raise FormatTooNew(form, FORMAT)
    return int(_ADDITION.unpack_from(data)[3]) if (form, end) == (FORMAT, _ADDITION.size) else None


def unpack_slots(data: bytes) -> tuple[list[HeadState | None], HeadState | None]:
    """Unpacks both slots of HEAD, None for one that is not valid; also returns the valid slot with the highest counter.

    Raises:
        FormatTooNew: If a later version of penstock wrote one.
    """
    slots = [HeadState.unpack(data[at : at + 4096]) for at in SLOTS]
    return slots, max((slot for slot in slots if slot), key=lambda slot: slot.counter, default=None)


def read_head(file: File) -> HeadState | None:
    """Reads the valid slot with the highest counter, or None.

    Raises:
        FormatTooNew: If a later version of penstock wrote it.
        OSError: If the file cannot be read.
    """
    return unpack_slots(file.pread(HEAD_BYTES, 0))[1]


def _hides(state: HeadState) -> tuple[int, int]:
    return state.flags & (DEFERRED | CUT), state.visible if state.flags & DEFERRED else 0


class Head:
    """The writer's HEAD. Thread-safe; writes never move it back, except to truncate the log.

    Attributes:
        state: The slot in force.
        even: Whether the other slot records the same withheld and truncated versions, so that either slot may be damaged.
    """

    def __init__(self, file: File, state: HeadState, reserve: Reserve | None = None) -> None:
        self._file = file
        self._lock = Lock()
        self._reserve = reserve
        self.state: HeadState = state
        self.even: bool = True

    @classmethod
    def create(
        cls, filesystem: FileSystem, directory: Path, state: HeadState, reserve: Reserve | None = None
    ) -> "Head":
        """Makes HEAD durable in a directory that has none, before any other file is created.

        Raises:
            OSError: From the file system.
        """
        path = directory / HEAD_NAME
        put_file(filesystem, path, (bytes(SLOTS[state.counter % 2]) + state.pack()).ljust(HEAD_BYTES, b"\0"))
        sync_names(filesystem, directory)
        return cls(filesystem.open(path, "write"), state, reserve)

    def write(
        self,
        epoch: int,
        durable: int,
        segment: int,
        offset: int,
        *,
        oldest: int | None = None,
        flags: int = 0,
        visible: int | None = KEEP,
        random: int | None = None,
    ) -> None:
        """Writes and syncs the next slot. The data up to ``segment`` and ``offset`` must have been synced before.

        Args:
            epoch: Epoch of the writer.
            durable: Newest synced version; with CUT the newest version to keep.
            segment: Segment in which the synced data end; with CUT the one to truncate.
            offset: Offset there.
            oldest: Oldest segment that is kept; None leaves it unchanged.
            flags: CLEAN, CUT, or 0.
            visible: Sets DEFERRED with this version; None clears it, ``KEEP`` leaves it unchanged.
            random: Random bits of an epoch that begins; None leaves them unchanged.

        Raises:
            FencedError: If a later owner has written HEAD.
            OSError: From the file. The previous slot stays in force.
        """
        with self._lock:
            before = self.state
            found = read_head(self._file)
            if found is not None and found.epoch > max(before.epoch, epoch):
                raise FencedError
            cutting = (flags | before.flags) & CUT
            back = (segment, offset, durable) < (before.segment, before.offset, before.durable)
            if back and not cutting:
                durable, segment, offset = before.durable, before.segment, before.offset
            deferred = before.flags & DEFERRED
            if visible != KEEP:
                deferred = 0 if visible is None else DEFERRED
            state = HeadState(
                before.log_id,
                before.counter + 1,
                epoch,
                durable,
                segment,
                offset,
                before.oldest if oldest is None else max(oldest, before.oldest),
                deferred | flags,
                before.visible if visible is None or visible == KEEP else visible,
                before.random if random is None else random,
            )
            self._holding(partial(self._put, state))
            self.state = state
            self.even = _hides(before) == _hides(state)

    def write_again(self) -> None:
        """Makes the slot that was found durable, before the other slot is written.

        Its writer may have died before the sync, or the sync may have failed. Then the slot exists in the page cache only, and
        a power failure during the next write could leave no valid slot.

        Raises:
            OSError: From the file. The slot stays in force.
        """
        with self._lock:
            at = SLOTS[self.state.counter % 2]
            # In place; but some file systems copy on write, and may lack the room for that.
            self._holding(partial(write_all, self._file, self.state.pack(), at))
            sync_file(self._file)

    def _holding(self, write: Callable[[], None]) -> None:
        if self._reserve is None:
            write()
        else:
            self._reserve.holding(write)

    def _put(self, state: HeadState) -> None:
        at = SLOTS[state.counter % 2]
        try:
            write_all(self._file, state.pack(), at)
        except OSError:
            left = HeadState.unpack(self._file.pread(SLOT_BYTES, at))
            if (
                left is None or left.counter == state.counter
            ):  # else nothing was written, perhaps since nothing can be
                self._invalidate(at)
            raise
        sync_file(self._file)

    def _invalidate(self, at: int) -> None:
        """Invalidates a slot whose write has failed, whatever part of it was written.

        Raises:
            SyncError: If that fails too; it must not be mistaken for a mere lack of room.
        """
        try:
            write_all(self._file, bytes(8), at)
        except OSError as error:
            raise SyncError(error.errno, f"a slot of HEAD: {error.strerror}") from error
        sync_file(self._file)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

"""HEAD: two slots, written in turn, that tell what was acknowledged.

A slot is 88 bytes at 0 or 4096, so that one torn sector never takes both. The valid slot with the highest counter
counts; the next write is counter + 1 into slot ``counter % 2``, also after a reopening.

Since format 2 an addition of 20 bytes follows a slot, of which a flag tells: u16 format, u16 bytes of the addition, u32 0,
u64 random bits of the epoch, and its own crc32, which goes on from that of the slot. The slot counts only if the addition
is whole, and its own.
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
"""In the place of a visible version: as it was."""
HEAD_NAME: Final = "HEAD"
HEAD_BYTES: Final = 8192
SLOT_BYTES: Final = 88 + 20
"""A slot with its addition."""

_MAGIC: Final = b"PENSHEAD"
_SLOT: Final = Struct("<8s16sQQQQQQIQ")
_CRC: Final = Struct("<I")
_MORE: Final = 8  # the flag of a slot that an addition follows
_ADDITION: Final = Struct("<HHIQ")
_PREFIX: Final = Struct("<HH")
_ADDITION_MOST: Final = 512 - 88  # so that no version of it ever leaves the sector
SLOTS: Final = (0, 4096)
"""Where the slots are."""


class HeadState(NamedTuple):
    """What HEAD tells.

    Attributes:
        log_id: Of the log.
        counter: Of the writes of HEAD.
        epoch: Of the last opening for writing.
        durable: Newest version known to be synced; with CUT the newest one to keep.
        segment: Where the synced data end, or the place of the cut.
        offset: Likewise.
        oldest: Oldest segment that is kept.
        flags: CLEAN, CUT, DEFERRED.
        visible: Newest version that may be shown, synced or not; meaningful with DEFERRED.
        random: Random bits of the epoch; 0 for one of format 1, whose slots have no addition.
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
        """The bytes of a slot, with its addition."""
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
        """Reads a slot; None if it is not a valid one.

        Raises:
            FormatTooNew: If its addition is whole, and of a later format.
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
        """The newest version that may be shown to anybody."""
        return min(self.visible, self.durable) if self.flags & DEFERRED else self.durable


def _random_in(data: bytes, slot_crc: int) -> int | None:
    """The random bits in an addition; None if it is not whole, or belongs to another slot."""
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
    """Both slots of HEAD, None for one that is not valid; and the one that counts, which has the highest counter.

    Raises:
        FormatTooNew: If a later version of penstock wrote one.
    """
    slots = [HeadState.unpack(data[at : at + 4096]) for at in SLOTS]
    return slots, max((slot for slot in slots if slot), key=lambda slot: slot.counter, default=None)


def read_head(file: File) -> HeadState | None:
    """The valid slot with the highest counter, or None.

    Raises:
        FormatTooNew: If a later version of penstock wrote it.
        OSError: If the file cannot be read.
    """
    return unpack_slots(file.pread(HEAD_BYTES, 0))[1]


def _hides(state: HeadState) -> tuple[int, int]:
    return state.flags & (DEFERRED | CUT), state.visible if state.flags & DEFERRED else 0


class Head:
    """The writer's HEAD. Thread-safe; writes never move it back, but for a cut.

    Attributes:
        state: What the slot tells that counts.
        even: Whether the other slot tells the same of what is withheld and cut off, so that either of them may be damaged.
    """

    def __init__(self, file: File, state: HeadState, reserve: Reserve | None = None) -> None:
        self._file = file
        self._lock = Lock()
        self._reserve = reserve
        self.state = state
        self.even = True

    @classmethod
    def create(
        cls, filesystem: FileSystem, directory: Path, state: HeadState, reserve: Reserve | None = None
    ) -> "Head":
        """Makes HEAD durable in a directory that has none, before anything else is there.

        Raises:
            OSError: What the file system raises.
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
        """Writes and syncs the next slot. ``durable`` and its place must have been synced before.

        Args:
            epoch: Of the writer.
            durable: Newest synced version; with CUT the newest one to keep.
            segment: Where the synced data end, or the place of the cut.
            offset: Likewise.
            oldest: Oldest segment that is kept; None for the one before.
            flags: CLEAN, CUT, or none of them.
            visible: Sets DEFERRED with this version; None clears it, ``KEEP`` leaves it as it is.
            random: Random bits of an epoch that begins; None for those of the one before.

        Raises:
            FencedError: If a later owner has written HEAD.
            OSError: What the file raises. The slot that counted before still counts.
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
        """Makes the slot that was found durable, before the other one is written.

        Whoever wrote it may have died before the sync, or the sync may have failed: then the slot is in the page cache
        alone, and a power cut while the next one is written could leave none.

        Raises:
            OSError: What the file raises. The slot still counts, as before.
        """
        with self._lock:
            at = SLOTS[self.state.counter % 2]
            # In place, but some file systems write everything to a new one, for which there may be no room.
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
            self._invalidate(at)
            raise
        sync_file(self._file)

    def _invalidate(self, at: int) -> None:
        """Makes sure that a slot whose writing has failed does not count, whatever of it is there.

        Raises:
            SyncError: If that fails too, so that nobody takes it for a mere lack of room.
        """
        try:
            write_all(self._file, bytes(8), at)
        except OSError as error:
            raise SyncError(error.errno, f"a slot of HEAD: {error.strerror}") from error
        sync_file(self._file)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

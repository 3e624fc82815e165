"""Reads a log that another process writes: without a lock, without writing, never beyond its visible versions."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from publishers.errors import InvalidOption, LogUnreadable, NotALog, PenstockError, WalCorrupted
from publishers.model.position import LogIdentity, epoch_text
from publishers.wal.disk.filesystem import (
    File,
    FileSystem,
    RealFileSystem,
    check_exhausted,
    check_openable,
    open_file,
)
from publishers.wal.files.directory import check_names
from publishers.wal.files.head import HEAD_BYTES, HEAD_NAME, HeadState, read_head
from publishers.wal.files.segment import DATA_START
from publishers.wal.files.tail_page import Tail, TailState
from publishers.wal.format.control import ControlTables, Epoch, decode_control
from publishers.wal.format.frame import CONTROL, HEADER_BYTES, FrameHeader
from publishers.wal.keep.hard_links import HeldReader, HeldSegments
from publishers.wal.read.catalog import Catalog, Limit
from publishers.wal.read.presence import Presence, continues, head_of
from publishers.wal.read.reader import BLOCK_BYTES, Reader
from publishers.wal.recover.truncate import place_of

__all__ = ["Follower"]


class Follower:
    """A log opened read-only. `refresh` is for one thread at a time; the reader is for any thread.

    Attributes:
        log_id: The id of the log.
        directory: The directory of the log.
        opening: Number and random bits of the writer's epoch, as of the last `refresh`; the bits are 0 in format 1.
        visible: The newest visible version, as of the last `refresh`.
        reader: Reads up to ``visible``.
    """

    def __init__(
        self,
        directory: Path,
        filesystem: FileSystem,
        head_file: File,
        head: HeadState,
        held: HeldSegments | None = None,
    ) -> None:
        """Internal; use `open`."""
        self.directory = directory
        self.log_id: UUID = head.log_id
        self.opening: tuple[int, int] = (0, 0)
        self.visible: int = 0
        self._filesystem = filesystem
        self._head_file = head_file
        self._head_content = b""
        self._tail: Tail | None = None
        self._shown = 0  # by TAIL
        self._presence = presence = Presence(filesystem, directory, head_file, head)
        self._held = held
        self._catalog = self._originals = Catalog(filesystem, directory, head.log_id, presence)
        if held:
            self._catalog = Catalog(filesystem, held.directory, head.log_id, presence)
        self._limit = Limit(0, 0, 0)
        self._epochs: tuple[tuple[int, int], Limit, tuple[Epoch, ...]] = ((-1, 0), self._limit, ())
        self._anew: tuple[tuple[int, int], tuple[Epoch, ...]] = ((-1, 0), ())
        self._then: tuple[int, tuple[Epoch, ...]] = (0, ())
        self._tried: Limit | None = None
        self._deferred = (0, self._limit)
        self.reader: Reader = (
            HeldReader(held, self._catalog, lambda: self._limit)
            if held
            else Reader(self._catalog, lambda: self._limit, refresh=True)
        )

    @classmethod
    def open(
        cls,
        directory: Path | str,
        *,
        filesystem: FileSystem | None = None,
        consumer: str | None = None,
    ) -> "Follower":
        """Opens a log for reading, whether or not a writer has it open.

        Args:
            directory: The directory of the log.
            filesystem: The file system; the real one if None.
            consumer: Read through the hard links of this consumer, which only `release` removes.

        Raises:
            ConsumerBusy: If another process reads as this consumer.
            InvalidOption: If the consumer has no links.
            NotALog: If the directory holds no log.
            LogUnreadable: If a file of the log, or its directory, cannot be opened.
            WalCorrupted: If HEAD or a segment header is damaged.
        """
        path = Path(directory)
        filesystem = filesystem or RealFileSystem()
        try:
            names = filesystem.listing(path)
        except OSError as error:
            check_openable(error, path)
            raise NotALog(path, _what_is_wrong(error, "there is no such directory")) from None
        check_names(path, names)
        try:
            head_file = open_file(filesystem, path / HEAD_NAME, "read")
        except OSError as error:
            raise NotALog(path, _what_is_wrong(error, "there is no HEAD in it")) from None
        with contextlib.ExitStack() as stack:
            stack.callback(head_file.close)
            state = head_of(head_file)
            if state.offset == 0:
                raise NotALog(path, "its creation was never finished")
            held = None
            if consumer is not None:
                held = HeldSegments(filesystem, path, consumer, state.log_id)
                stack.callback(held.close)
            follower = cls(path, filesystem, head_file, state, held)
            follower.refresh()
            stack.pop_all()
        return follower

    @property
    def epoch(self) -> int:
        """The number of the writer's epoch, as of the last `refresh`."""
        return self.opening[0]

    @property
    def extent(self) -> tuple[int, Limit]:
        """The number of the oldest segment, and the end of the newest visible version, as of the last `refresh`."""
        return self._catalog.entries[0].number, self._limit

    @property
    def shown(self) -> int:
        """The newest visible version now, without a `refresh`; for any thread.

        Raises:
            WalCorrupted: If HEAD is damaged.
        """
        state = self._read_tail()
        newest = head_of(self._head_file).newest_visible if state is None else state.visible
        return max(newest, self.visible)

    def refresh(self) -> int:
        """Reads the owner's position; returns the newest visible version, which never moves back.

        The position comes from TAIL if that was written since this machine was booted, else from HEAD. It is rejected if the
        open files are no longer those of the path, or record another history than before; `Presence` states how reliable one
        check is.

        Raises:
            LogGone, LogReplaced: If the log was removed, or another log is at its path.
            LogUnreadable: If a file cannot be opened at the first call. Later, the reads that need the file raise the error.
            WalCorrupted: If HEAD or the header of a new segment is damaged.
        """
        if not self._presence.holds():
            with self._bearing():
                self._presence.check_name()
        if self._tail is None or not self._tail.holds():
            with self._bearing():
                # The old TAIL is dropped, not closed: another thread may be reading it.
                self._tail = Tail.open(self._filesystem, self.directory)
        first = not self._catalog.entries
        opening, limit = self._checked_look()
        if limit[1:] >= self._limit[1:] and limit.version >= self._limit.version:
            entries = self._catalog.entries
            if not entries or entries[-1].number < limit.segment:
                self._catalog.newest = limit.segment
                with self._bearing():
                    self._refresh_catalog(limit.segment)
            self._limit = limit
            self.visible = limit.version
        if opening != self.opening and opening[0] >= self.opening[0]:
            self.opening = opening
            self._presence.known = LogIdentity(self.log_id, epoch_text(*opening))
        if self._held is None:  # retention does not delete the links of a consumer
            self._forget_deleted()
        if not first:  # keeps an opening cheap
            self._look_up()
        return self.visible

    def check(self) -> None:
        """Checks that the log exists and is the same as before; changes no state. For any thread.

        Raises:
            LogGone, LogReplaced: If it does not exist, or is another log.
            PenstockError: If that cannot be determined.
        """
        self._presence.check_name()
        self._presence.check_head(head_of(self._head_file))
        self._checked_look()

    def _checked_look(self) -> tuple[tuple[int, int], Limit]:
        """The result of `_look`, after checks: neither TAIL nor HEAD moved back, and a new epoch continues the known history.

        While the epoch is the same and has random bits, TAIL belongs to the same history, so HEAD is not read.

        Raises:
            LogReplaced: If TAIL or HEAD moved back, HEAD belongs to another log, or the history is another one.
            WalCorrupted: If HEAD or the last segment is damaged.
        """
        state = self._read_tail()
        if state is None:
            head = head_of(self._head_file)
            self._presence.check_head(head)
            opening, limit = (head.epoch, head.random), self._limit_of(head)
        else:
            opening, limit = (state.epoch, state.random), Limit(state.visible, state.segment, state.end)
            if opening != self.opening or (not state.random and state.visible != self._shown):
                self._presence.check_head(head_of(self._head_file))
            if state.visible < self._shown or opening[0] < self.opening[0]:
                raise self._presence.replaced()
            self._shown = state.visible
        if opening != self.opening:
            self._check_history(opening, limit)
        return opening, limit

    def _read_tail(self) -> TailState | None:
        return self._tail.read() if self._tail is not None else None

    def _check_history(self, opening: tuple[int, int], limit: Limit) -> None:
        """Compares the history of a new epoch with the versions read so far, before the new position is used.

        Raises:
            LogReplaced: If the new history lacks the known versions.
            WalCorrupted: If its last segment is damaged.
        """
        wrote = self._wrote()
        if wrote is None or opening[0] < self.opening[0]:  # a smaller epoch comes from the older slot of HEAD
            return
        epochs = self._read_newest(limit)
        if opening[0] == self.opening[0] or not continues(epochs, wrote, self.visible):
            raise self._presence.replaced()

    def _wrote(self) -> Epoch | None:
        """The epoch of the newest visible version; None if it is not known."""
        epochs = self._epochs[2] if self._is_looked_up else ()
        return next((one for one in reversed(epochs) if one.first_version <= self.visible), None)

    def _look_up(self) -> None:
        """Reads the epochs while they can be read: `_check_history` and late tokens need them when the files may be gone.

        This happens once for each opening of the owner, and once more when the owner has written.
        """
        if not self._is_looked_up and self._tried != self._limit:
            self._tried = self._limit
            with contextlib.suppress(PenstockError):  # a later use of `epochs` raises the error
                _ = self.epochs

    @property
    def _is_looked_up(self) -> bool:
        opening, limit, epochs = self._epochs
        # The frame of the last epoch may lie behind withheld transactions, and become visible later.
        return opening == self.opening and (
            limit == self._limit or bool(epochs and epochs[-1].epoch >= self.epoch)
        )

    @contextlib.contextmanager
    def _bearing(self) -> Iterator[None]:
        """Ignores a file that cannot be opened, except at the first `refresh`; later, reads that need the file raise the error."""
        try:
            yield
        except LogUnreadable:
            if not self._catalog.entries:
                raise

    def _forget_deleted(self) -> None:
        """Drops segments that retention deletes: HEAD names the oldest one before the deletion, so no read misses a file."""
        entries = self._catalog.entries
        if len(entries) < 2:
            return
        try:
            content = self._head_file.pread(HEAD_BYTES, 0)
            if content == self._head_content:  # a comparison costs less than decoding it
                return
            head = read_head(self._head_file)
        except OSError:
            return
        self._head_content = content
        if head is not None:
            self._presence.check_head(head)
        if head is not None and entries and entries[0].number < head.oldest <= entries[-1].number:
            self._catalog.drop(head.oldest)

    def _limit_of(self, head: HeadState) -> Limit:
        """The limit in HEAD; if transactions are withheld, exactly the end of the visible ones, as others may be truncated."""
        limit = Limit(head.newest_visible, head.segment, head.offset)
        if head.newest_visible == head.durable:
            return limit
        if self._deferred[0] != head.counter:
            try:
                with contextlib.closing(Catalog(self._filesystem, self.directory, self.log_id)) as catalog:
                    catalog.refresh()
                    place = place_of(catalog, limit, limit.version + 1)
            except OSError as error:
                check_exhausted(error)
                raise WalCorrupted(limit.segment, 0, f"it cannot be read ({error})") from error
            self._deferred = (head.counter, Limit(limit.version, *place))
        return self._deferred[1]

    def _refresh_catalog(self, segment: int) -> None:
        try:
            self._catalog.refresh()
        except OSError as error:
            check_openable(error, self.directory)
            raise WalCorrupted(segment, 0, f"the directory cannot be read ({error})") from error
        if self._held is not None:
            if not self._catalog.entries:
                raise self._held.missing(0, self._catalog)
            return  # a read of a missing segment raises the error
        if not self._catalog.entries or self._catalog.entries[-1].number < segment:
            raise WalCorrupted(segment, 0, "the segment is missing")

    def release(self, version: int) -> int:
        """Removes this consumer's links to segments that end before a version; returns their number. For any thread.

        Raises:
            InvalidOption: If the follower does not read through the links of a consumer.
            OSError: From the file system.
        """
        if self._held is None:
            raise InvalidOption("consumer", None, "the name of the links through which the log is read")
        return self._held.release(self._catalog, version)

    @property
    def oldest(self) -> int:
        """The oldest kept version; 0 if the log is empty."""
        return self.reader.oldest if self.visible else 0

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The openings for writing, read from the control frames of the last segment; at least one. See `Wal.epochs`.

        Raises:
            FormatTooNew: If a later version of penstock wrote in that segment.
            WalCorrupted: If the segment is damaged.
        """
        opening, limit, epochs = self._epochs
        if not self._is_looked_up:
            opening, limit = self.opening, self._limit
            epochs = self._read_newest(limit)
            self._epochs = (opening, limit, epochs)
        return epochs or (_yet_to_write(opening, limit),)

    def epochs_anew(self) -> tuple[tuple[int, int], tuple[Epoch, ...]]:
        """The writer's present epoch, and all epochs, without a `refresh`; for any thread.

        Segments are read only once for each epoch that the owner begins, however often this is called.

        Raises:
            WalCorrupted: If HEAD or the last segment is damaged.
        """
        opening, limit = self._look()
        if opening == self.opening:
            return opening, self.epochs
        known, epochs = self._anew
        if opening != known:
            epochs = self._read_newest(limit)
            self._anew = (opening, epochs)
        return opening, epochs or (_yet_to_write(opening, limit),)

    def epochs_then(self, version: int) -> tuple[Epoch, ...]:
        """The epochs as recorded when the segment of a version was closed, for a consumer that reads through links.

        Retention does not wait for such a consumer, so `epochs` may begin later than the versions that it reads.

        Raises:
            WalCorrupted: If the segment behind that segment is damaged.
        """
        following = self._catalog.find(version).number + 1
        if self._held is None or following >= self._limit.segment:
            return self.epochs
        number, epochs = self._then
        if number != following:
            # The checkpoint, the first frame of a segment, holds the epochs.
            epochs = self._read_epochs(self._catalog, Limit(0, following, DATA_START + 1))
            self._then = (following, epochs)
        return epochs

    def _look(self) -> tuple[tuple[int, int], Limit]:
        """The writer's present epoch, and the end of the visible versions."""
        state = self._read_tail()
        if state is None:
            head = head_of(self._head_file)
            return (head.epoch, head.random), self._limit_of(head)
        return (state.epoch, state.random), Limit(state.visible, state.segment, state.end)

    def _read_newest(self, limit: Limit) -> tuple[Epoch, ...]:
        """The epochs up to a limit; if retention has deleted that segment, the epochs in the oldest segment's checkpoint."""
        try:
            return self._read_epochs(self._originals, limit)
        except WalCorrupted as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            with contextlib.closing(Catalog(self._filesystem, self.directory, self.log_id)) as catalog:
                with contextlib.suppress(OSError):
                    catalog.refresh()
                number = catalog.entries[0].number if catalog.entries else 0
                if number <= limit.segment:
                    raise
                return self._read_epochs(catalog, Limit(0, number, DATA_START + 1))

    def _read_epochs(self, catalog: Catalog, limit: Limit) -> tuple[Epoch, ...]:
        tables = ControlTables()
        offset = base = DATA_START
        block = b""
        end = max(limit.offset, DATA_START + 1)  # the checkpoint is always readable
        try:
            while offset < end:
                if offset + HEADER_BYTES > base + len(block):
                    block, base = catalog.pread(limit.segment, BLOCK_BYTES, offset), offset
                header = FrameHeader.unpack(block.ljust(HEADER_BYTES, b"\0"), offset - base)
                if not header.length:
                    raise WalCorrupted(limit.segment, offset, "there is no frame where one must be")
                if header.flags & CONTROL:
                    payload = catalog.pread(limit.segment, header.length, offset + HEADER_BYTES)
                    if not header.verify(payload):
                        raise WalCorrupted(limit.segment, offset, "the crc of the frame is wrong")
                    decode_control(payload, tables)
                offset += header.extent
        except (OSError, ValueError) as error:
            if isinstance(error, OSError):
                check_exhausted(error)
            raise WalCorrupted(limit.segment, offset, str(error)) from error
        return tables.epochs

    def close(self) -> None:
        """Closes the files without writing."""
        self._catalog.close()
        self._originals.close()
        self._head_file.close()
        if self._held is not None:
            self._held.close()
        if self._tail is not None:
            self._tail.close()


def _yet_to_write(opening: tuple[int, int], limit: Limit) -> Epoch:
    return Epoch(opening[0], limit.version + 1, opening[1])


def _what_is_wrong(error: OSError, missing: str) -> str:
    if isinstance(error, FileNotFoundError):
        return missing
    if isinstance(error, NotADirectoryError):
        return "it is not a directory"
    return f"it cannot be read ({error.strerror or error})"

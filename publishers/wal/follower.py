"""Reading a log that another process writes: no lock, no write, never beyond what its owner shows."""

import contextlib
from pathlib import Path
from uuid import UUID

from publishers.errors import InvalidOption, NotALog, WalCorrupted
from publishers.options import LogOptions
from publishers.wal.catalog import Catalog, Limit
from publishers.wal.control import Epoch, Tables, decode_control
from publishers.wal.cut import place_of
from publishers.wal.directory import check_names
from publishers.wal.filesystem import File, FileSystem, RealFileSystem
from publishers.wal.frame import CONTROL, HEADER_BYTES, FrameHeader
from publishers.wal.head import HEAD_BYTES, HEAD_NAME, HeadState, read_head
from publishers.wal.links import HeldReader, HeldSegments
from publishers.wal.reader import BLOCK_BYTES, Reader
from publishers.wal.segment import DATA_START
from publishers.wal.tail import Tail

__all__ = ["Follower"]


class Follower:
    """A read-only opening. `refresh` is for one thread at a time; the reader for any.

    Attributes:
        log_id: Of the log.
        directory: Where it lies.
        epoch: Of its writer, as of the last `refresh`.
        visible: Newest version that may be shown, as of the last `refresh`.
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
        """Not to be called; see `open`."""
        self.directory = directory
        self.log_id: UUID = head.log_id
        self.epoch = 0
        self.visible = 0
        self._filesystem = filesystem
        self._head_file = head_file
        self._head_content = b""
        self._tail: Tail | None = None
        self._held = held
        self._catalog = self._originals = Catalog(filesystem, directory, head.log_id)
        if held:
            self._catalog = Catalog(filesystem, held.directory, head.log_id)
        self._limit = Limit(0, 0, 0)
        self._epochs: tuple[int, Limit, tuple[Epoch, ...]] = (-1, self._limit, ())
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
        options: LogOptions | None = None,
        *,
        filesystem: FileSystem | None = None,
        consumer: str | None = None,
    ) -> "Follower":
        """Opens a log to be read, whether or not anybody has it open for writing.

        Args:
            directory: Of the log.
            options: Not needed at present.
            filesystem: The real one by default.
            consumer: Read through the hard links of that name, which are removed by `release` only.

        Raises:
            ConsumerBusy: If another process is that consumer.
            InvalidOption: If there are no links for it.
            NotALog: If the directory holds no log.
            WalCorrupted: If HEAD or a segment header is damaged.
        """
        path = Path(directory)
        filesystem = filesystem or RealFileSystem()
        try:
            names = filesystem.listing(path)
        except OSError as error:
            raise NotALog(path, _what_is_wrong(error, "there is no such directory")) from None
        check_names(path, names)
        try:
            head_file = filesystem.open(path / HEAD_NAME, "read")
        except OSError as error:
            raise NotALog(path, _what_is_wrong(error, "there is no HEAD in it")) from None
        with contextlib.ExitStack() as stack:
            stack.callback(head_file.close)
            state = _read_head(head_file)
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
    def shown(self) -> int:
        """The newest version that the owner shows at this moment, taken up by a `refresh` or not; any thread may ask.

        Raises:
            WalCorrupted: If HEAD is damaged.
        """
        state = self._tail.read() if self._tail is not None else None
        newest = _read_head(self._head_file).newest_visible if state is None else state.visible
        return max(newest, self.visible)

    def refresh(self) -> int:
        """Looks how far the owner has got; returns the newest visible version, which never moves back.

        TAIL is believed if it was written since this machine was started, else HEAD.

        Raises:
            WalCorrupted: If HEAD or the header of a new segment is damaged.
        """
        if self._tail is None:
            self._tail = Tail.open(self._filesystem, self.directory)
        state = self._tail.read() if self._tail is not None else None
        if state is not None:
            epoch, limit = state.epoch, Limit(state.visible, state.segment, state.end)
        else:
            head = _read_head(self._head_file)
            epoch, limit = head.epoch, self._limit_of(head)
        if limit[1:] >= self._limit[1:] and limit.version >= self._limit.version:
            entries = self._catalog.entries
            if not entries or entries[-1].number < limit.segment:
                self._catalog.newest = limit.segment
                self._refresh_catalog(limit.segment)
            self._limit = limit
            self.visible = limit.version
        self.epoch = max(epoch, self.epoch)
        if self._held is None:  # whose links are his own
            self._forget_deleted()
        return self.visible

    def _forget_deleted(self) -> None:
        """Drops the segments that retention takes: HEAD tells it before they go, so nobody has to meet a missing file."""
        entries = self._catalog.entries
        if len(entries) < 2:
            return
        try:
            content = self._head_file.pread(HEAD_BYTES, 0)
            if content == self._head_content:  # to compare it costs less than to take it apart
                return
            head = read_head(self._head_file)
        except OSError:
            return
        self._head_content = content
        if head is not None and entries and entries[0].number < head.oldest <= entries[-1].number:
            self._catalog.drop(head.oldest)

    def _limit_of(self, head: HeadState) -> Limit:
        """What HEAD tells; where something is withheld, exactly up to there, because what is behind may be forgotten."""
        limit = Limit(head.newest_visible, head.segment, head.offset)
        if head.newest_visible == head.durable:
            return limit
        if self._deferred[0] != head.counter:
            catalog = Catalog(self._filesystem, self.directory, self.log_id)
            try:
                catalog.refresh()
                place = place_of(catalog, limit, limit.version + 1)
            except OSError as error:
                raise WalCorrupted(limit.segment, 0, f"it cannot be read ({error})") from error
            finally:
                catalog.close()
            self._deferred = (head.counter, Limit(limit.version, *place))
        return self._deferred[1]

    def _refresh_catalog(self, segment: int) -> None:
        try:
            self._catalog.refresh()
        except OSError as error:
            raise WalCorrupted(segment, 0, f"the directory cannot be read ({error})") from error
        if self._held is not None:
            if not self._catalog.entries:
                raise self._held.missing(0, self._catalog)
            return  # whoever reads so far finds that it is missing
        if not self._catalog.entries or self._catalog.entries[-1].number < segment:
            raise WalCorrupted(segment, 0, "the segment is missing")

    def release(self, version: int) -> int:
        """Removes this consumer's links of segments that end before a version; answers how many. Any thread may.

        Raises:
            InvalidOption: If it reads through no links of its own.
            OSError: What the file system raises.
        """
        if self._held is None:
            raise InvalidOption("consumer", None, "the name of the links through which the log is read")
        return self._held.release(self._catalog, version)

    @property
    def oldest(self) -> int:
        """Oldest version that is kept; 0 if the log is empty."""
        return self.reader.oldest if self.visible else 0

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The openings for writing, read from the control frames of the last segment; see `Wal.epochs`.

        Raises:
            WalCorrupted: If that segment is damaged.
        """
        epoch, limit, epochs = self._epochs
        # The frame that tells of the last epoch may lie behind what is withheld, and come into sight later.
        unseen = limit != self._limit and (not epochs or epochs[-1].epoch < self.epoch)
        if epoch != self.epoch or unseen:
            limit = self._limit
            epochs = self._read_epochs()
            self._epochs = (self.epoch, limit, epochs)
        return epochs

    def _read_epochs(self) -> tuple[Epoch, ...]:
        limit = self._limit
        tables = Tables()
        offset = base = DATA_START
        block = b""
        try:
            while offset < limit.offset:
                if offset + HEADER_BYTES > base + len(block):
                    block, base = self._originals.pread(limit.segment, BLOCK_BYTES, offset), offset
                header = FrameHeader.unpack(block.ljust(HEADER_BYTES, b"\0"), offset - base)
                if not header.length:
                    raise WalCorrupted(limit.segment, offset, "there is no frame where one must be")
                if header.flags & CONTROL:
                    payload = self._originals.pread(limit.segment, header.length, offset + HEADER_BYTES)
                    if not header.verify(payload):
                        raise WalCorrupted(limit.segment, offset, "the crc of the frame is wrong")
                    decode_control(payload, tables)
                offset += header.extent
        except (OSError, ValueError) as error:
            raise WalCorrupted(limit.segment, offset, str(error)) from error
        return tables.epochs

    def close(self) -> None:
        """Closes the files; nothing is written."""
        self._catalog.close()
        self._originals.close()
        self._head_file.close()
        if self._held is not None:
            self._held.close()
        if self._tail is not None:
            self._tail.close()


def _what_is_wrong(error: OSError, missing: str) -> str:
    if isinstance(error, FileNotFoundError):
        return missing
    if isinstance(error, NotADirectoryError):
        return "it is not a directory"
    return f"it cannot be read ({error.strerror or error})"


def _read_head(file: File) -> HeadState:
    try:
        state = read_head(file)
    except OSError as error:
        raise WalCorrupted(0, 0, f"HEAD cannot be read ({error})") from error
    if state is None:
        raise WalCorrupted(0, 0, "HEAD has no valid slot")
    return state

"""Reading a log that another process writes: no lock, no write, never beyond what its owner shows."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from publishers.errors import InvalidOption, LogUnreadable, NotALog, PenstockError, WalCorrupted
from publishers.model.position import LogIdentity, epoch_text
from publishers.options import LogOptions
from publishers.wal.disk.filesystem import File, FileSystem, RealFileSystem, check_openable, open_file
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
    """A read-only opening. `refresh` is for one thread at a time; the reader for any.

    Attributes:
        log_id: Of the log.
        directory: Where it lies.
        opening: Number and random bits of its writer's epoch, as of the last `refresh`; the bits are 0 for one of format 1.
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
        self.opening = (0, 0)
        self.visible = 0
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
        """Number of the writer's epoch, as of the last `refresh`."""
        return self.opening[0]

    @property
    def extent(self) -> tuple[int, Limit]:
        """The number of the oldest segment, and where the newest visible version ends, as of the last `refresh`."""
        return self._catalog.entries[0].number, self._limit

    @property
    def shown(self) -> int:
        """The newest version that the owner shows at this moment, taken up by a `refresh` or not; any thread may ask.

        Raises:
            WalCorrupted: If HEAD is damaged.
        """
        state = self._read_tail()
        newest = head_of(self._head_file).newest_visible if state is None else state.visible
        return max(newest, self.visible)

    def refresh(self) -> int:
        """Looks how far the owner has got; returns the newest visible version, which never moves back.

        TAIL is believed if it was written since this machine was started, else HEAD. Nothing is taken from files that are
        not those of the path, or tell of another history than before; see `Presence` for how sure one look is.

        Raises:
            LogGone, LogReplaced: If the log is not there any more, or something else is.
            LogUnreadable: If a file cannot be opened at the first time. Later on it is for those who read it to find out.
            WalCorrupted: If HEAD or the header of a new segment is damaged.
        """
        if not self._presence.holds():
            with self._bearing():
                self._presence.check_name()
        if self._tail is None or not self._tail.holds():
            with self._bearing():
                # One that was removed is let go of and not closed: another thread may be reading it.
                self._tail = Tail.open(self._filesystem, self.directory)
        first = not self._catalog.entries
        opening, limit = self._check_told()
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
        if self._held is None:  # whose links are his own
            self._forget_deleted()
        if not first:  # an opening costs no more than it must
            self._look_up()
        return self.visible

    def check(self) -> None:
        """Looks whether the log is there, and what it was; takes nothing. Any thread may ask.

        Raises:
            LogGone, LogReplaced: If it is not.
            PenstockError: If that cannot be told.
        """
        self._presence.check_name()
        self._presence.check_head(head_of(self._head_file))
        self._check_told()

    def _check_told(self) -> tuple[tuple[int, int], Limit]:
        """What `_look` answers, if neither TAIL nor HEAD went back, and a new epoch goes on from what has been read.

        While the epoch is the same one and has random bits, TAIL is of the same history, so HEAD is not read.

        Raises:
            LogReplaced: If one of them did, HEAD is of another log, or the history is another one.
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
        """Compares the history of a new epoch with what has been read, before anything of it is taken.

        Raises:
            LogReplaced: If it does not have that.
            WalCorrupted: If its last segment is damaged.
        """
        wrote = self._wrote()
        if wrote is None or opening[0] < self.opening[0]:  # that is an older slot of HEAD
            return
        epochs = self._read_newest(limit)
        if opening[0] == self.opening[0] or not continues(epochs, wrote, self.visible):
            raise self._presence.replaced()

    def _wrote(self) -> Epoch | None:
        """The epoch of the newest visible version, if it is known."""
        epochs = self._epochs[2] if self._is_looked_up else ()
        return next((one for one in reversed(epochs) if one.first_version <= self.visible), None)

    def _look_up(self) -> None:
        """Reads the epochs as long as they can be read: `_check_history` needs them when they cannot, and so do late tokens.

        It is once for each opening of the owner, and once more when the owner has written something.
        """
        if not self._is_looked_up and self._tried != self._limit:
            self._tried = self._limit
            with contextlib.suppress(PenstockError):  # whoever needs them meets the error
                _ = self.epochs

    @property
    def _is_looked_up(self) -> bool:
        opening, limit, epochs = self._epochs
        # The frame that tells of the last epoch may lie behind what is withheld, and come into sight later.
        return opening == self.opening and (
            limit == self._limit or bool(epochs and epochs[-1].epoch >= self.epoch)
        )

    @contextlib.contextmanager
    def _bearing(self) -> Iterator[None]:
        """Lets a log that was open before go on where a file cannot be opened, so that its readers meet that error."""
        try:
            yield
        except LogUnreadable:
            if not self._catalog.entries:
                raise

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
        if head is not None:
            self._presence.check_head(head)
        if head is not None and entries and entries[0].number < head.oldest <= entries[-1].number:
            self._catalog.drop(head.oldest)

    def _limit_of(self, head: HeadState) -> Limit:
        """What HEAD tells; where something is withheld, exactly up to there, because what is behind may be forgotten."""
        limit = Limit(head.newest_visible, head.segment, head.offset)
        if head.newest_visible == head.durable:
            return limit
        if self._deferred[0] != head.counter:
            try:
                with contextlib.closing(Catalog(self._filesystem, self.directory, self.log_id)) as catalog:
                    catalog.refresh()
                    place = place_of(catalog, limit, limit.version + 1)
            except OSError as error:
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
        """The openings for writing, read from the control frames of the last segment; at least one. See `Wal.epochs`.

        Raises:
            FormatTooNew: If a later version of penstock wrote in that segment.
            WalCorrupted: If it is damaged.
        """
        opening, limit, epochs = self._epochs
        if not self._is_looked_up:
            opening, limit = self.opening, self._limit
            epochs = self._read_newest(limit)
            self._epochs = (opening, limit, epochs)
        return epochs or (_yet_to_write(opening, limit),)

    def epochs_anew(self) -> tuple[tuple[int, int], tuple[Epoch, ...]]:
        """The writer's epoch, and all epochs, as they are told at this moment; any thread may ask.

        Segments are read only if the owner has begun an epoch since they were read last, however often somebody asks.

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
        """The epochs as they were told when the segment of a version was closed, for whoever reads through links.

        Retention goes on without such a reader, so `epochs` may begin later than what it reads.

        Raises:
            WalCorrupted: If the segment behind that one is damaged.
        """
        following = self._catalog.find(version).number + 1
        if self._held is None or following >= self._limit.segment:
            return self.epochs
        number, epochs = self._then
        if number != following:
            # Its checkpoint is its first frame.
            epochs = self._read_epochs(self._catalog, Limit(0, following, DATA_START + 1))
            self._then = (following, epochs)
        return epochs

    def _look(self) -> tuple[tuple[int, int], Limit]:
        """The writer's epoch, and up to where the log is shown, at this moment."""
        state = self._read_tail()
        if state is None:
            head = head_of(self._head_file)
            return (head.epoch, head.random), self._limit_of(head)
        return (state.epoch, state.random), Limit(state.visible, state.segment, state.end)

    def _read_newest(self, limit: Limit) -> tuple[Epoch, ...]:
        """The epochs up to a limit; where retention has passed it, those that the oldest segment begins with."""
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
        end = max(limit.offset, DATA_START + 1)  # the checkpoint withholds nothing
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


def _yet_to_write(opening: tuple[int, int], limit: Limit) -> Epoch:
    return Epoch(opening[0], limit.version + 1, opening[1])


def _what_is_wrong(error: OSError, missing: str) -> str:
    if isinstance(error, FileNotFoundError):
        return missing
    if isinstance(error, NotADirectoryError):
        return "it is not a directory"
    return f"it cannot be read ({error.strerror or error})"

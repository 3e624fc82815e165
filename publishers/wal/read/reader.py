"""Reads verified frames one after the other, never beyond a limit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Final
from zlib import crc32

from publishers.errors import HistoryPruned, WalCorrupted
from publishers.model.position import Position
from publishers.wal.disk.filesystem import check_exhausted
from publishers.wal.files.segment import DATA_START, SparseIndex
from publishers.wal.format.columns import Columns
from publishers.wal.format.compression import inflate
from publishers.wal.format.control import kind_of
from publishers.wal.format.frame import COMPRESSED, CONTROL, HEADER_BYTES, FrameHeader
from publishers.wal.format.stored import decode_payload
from publishers.wal.read.catalog import Catalog, Limit, Location

__all__ = ["BLOCK_BYTES", "Frame", "ReadStatistics", "Reader", "unpack_payload"]

BLOCK_BYTES: Final = 256 * 1024
_BLOCKS: Final = 8
_LARGEST_KEPT: Final = 4 * 1024 * 1024
_LINKS: Final = 256
_LAST_INDEX: Final = 2**32


@dataclass(slots=True)
class ReadStatistics:
    """Counts of a reader since it was made; exact when one thread reads, else close to it.

    Attributes:
        frames: Frames read and verified, control frames included.
        bytes: Bytes of those frames.
        preads: Reads that went to the file system.
    """

    frames: int = 0
    bytes: int = 0
    preads: int = 0


def unpack_payload(header: FrameHeader, payload: memoryview) -> tuple[Columns, bytes]:
    """The changes and the annotations of a frame; the buffers share the memory of a payload that is not compressed.

    Raises:
        ValueError: If the payload is malformed although its crc is right.
    """
    if not header.flags & COMPRESSED:
        return decode_payload(payload, header.count)
    return decode_payload(inflate(payload, header.transaction_bytes), header.count)


@dataclass(slots=True, eq=False, repr=False)
class Frame:
    """A verified frame, whose payload is decoded at the first access.

    Attributes:
        header: Its header.
        location: Its location.
        next: The location of the next frame.
        since: Its version, or the first of the skipped versions recorded right before it.
    """

    header: FrameHeader
    _payload: memoryview
    location: Location
    next: Location
    since: int
    _decoded: tuple[Columns, bytes] | None = None

    @property
    def decoded(self) -> tuple[Columns, bytes]:
        """`columns` and `annotations`; raises as they do."""
        decoded = self._decoded
        if decoded is None:
            try:
                decoded = unpack_payload(self.header, self._payload)
            except ValueError as error:
                raise WalCorrupted(*self.location, str(error)) from error
            self._decoded = decoded
        return decoded

    @property
    def columns(self) -> Columns:
        """The changes; their buffers share the memory of the block that was read.

        Raises:
            WalCorrupted: If the payload is malformed although its crc is right.
        """
        return self.decoded[0]

    @property
    def annotations(self) -> bytes:
        """JSON of the transaction, in its first frame; raises as `columns` does."""
        return self.decoded[1]


class _Block:
    __slots__ = ("data", "end", "segment", "start")

    def __init__(self, segment: int, start: int, data: bytes) -> None:
        self.segment = segment
        self.start = start
        self.end = start + len(data)
        self.data = memoryview(data)


class Reader:
    """Reads a log up to a limit. Thread-safe.

    Files are read in blocks of 256 KiB (or one frame, if that is larger), of which the last 8 are cached, so that
    sequential reading costs a fraction of a system call per frame. A frame is checked against its crc, and against the
    previous frame if this reader has read that recently.

    Attributes:
        statistics: Counts of frames, bytes and reads.
    """

    def __init__(self, catalog: Catalog, limit: Callable[[], Limit], *, refresh: bool = False) -> None:
        """Makes a reader of the segments of ``catalog`` up to ``limit()``.

        Args:
            catalog: The segments.
            limit: Returns the limit; called before each frame.
            refresh: Whether another process owns the directory, and so adds and deletes segments.
        """
        self.statistics: ReadStatistics = ReadStatistics()
        self._catalog = catalog
        self._limit = limit
        self._refresh = refresh
        self._lock = Lock()
        self._blocks: list[_Block] = []
        self._recent = _Block(0, 0, b"")
        self._links: dict[tuple[int, int], int] = {}

    @property
    def oldest(self) -> int:
        """The oldest readable version, or the next version if there is none yet."""
        return self._catalog.entries[0].first_version

    @property
    def segments(self) -> int:
        """The number of segments, as of the last `Catalog.refresh` of a follower."""
        return len(self._catalog.entries)

    @property
    def end(self) -> Location:
        """The end of the readable log."""
        _, segment, offset = self._limit()
        return Location(segment, offset)

    def locate(self, version: int, index: int = 0) -> Location:
        """The location of the frame that holds a change; the end of the log if the change is not written yet.

        Raises:
            HistoryPruned: If retention has deleted it.
            WalCorrupted: If a frame on the way is damaged.
        """
        while True:
            if version < self.oldest:
                raise HistoryPruned(Position(self.oldest))
            entry = self._catalog.find(version)
            sparse = self._catalog.index(entry.number)
            location = Location(entry.number, sparse.before(version, index))
            passed = 0
            try:
                while (frame := self.read(location)) is not None:
                    header = frame.header
                    if passed < version < frame.since:
                        raise WalCorrupted(*location, f"version {version} is missing")
                    passed = header.version
                    if header.version > version or (
                        header.version == version and index < header.first_index + header.count
                    ):
                        return frame.location
                    self._note(sparse, entry.number, frame)
                    location = frame.next
            except HistoryPruned:
                if version < self.oldest:
                    raise
                continue
            return location

    def at(self, committed_at: int) -> int:
        """The first version that was committed at or after a time; the version after the last if there is none.

        Commit times rise with the versions, so a bisection over the segments and their indexes finds it: it reads one frame
        of each of a few segments, and then the frames between two entries of an index.

        Args:
            committed_at: Unix microseconds.

        Raises:
            WalCorrupted: If a frame on the way is damaged.
        """
        while True:
            try:
                return self._at(committed_at)
            except HistoryPruned:
                continue  # retention has deleted the segment meanwhile; search the remaining ones

    def _at(self, committed_at: int) -> int:
        entries = self._catalog.entries
        low, high = 0, len(entries) - 1
        while low < high:  # the last segment that begins before the time, or the first of all
            middle = (low + high + 1) // 2
            first = self.read(Location(entries[middle].number, DATA_START))
            if first is not None and first.header.committed_at < committed_at:
                low = middle
            else:
                high = middle - 1
        sparse = self._catalog.index(entries[low].number)
        location = Location(entries[low].number, sparse.earlier(committed_at))
        while (frame := self.read(location)) is not None:
            header = frame.header
            if header.committed_at >= committed_at:
                return header.version
            self._note(sparse, entries[low].number, frame)
            location = frame.next
        return self._limit().version + 1

    def backward(self, version: int, index: int) -> Iterator[Frame]:
        """Frames from the one that holds a change to the oldest kept one, newest first.

        It reads forward from one entry of an index to the next, and yields these frames in reverse. So at most the frames
        between two entries are in memory, or are read in excess.

        Args:
            version: The version of the change; beyond the end, all frames are yielded.
            index: The index of the change; beyond the transaction, its last frame is the first.

        Raises:
            WalCorrupted: If a frame is damaged.
        """
        newest = self._limit().version
        before = (version, max(index, 1)) if version <= newest else (newest, _LAST_INDEX)
        number = self._catalog.find(before[0]).number
        while number >= self._catalog.entries[0].number:
            sparse = self._catalog.index(number)
            start = Location(number, sparse.before(*before))
            try:
                run = self._run(start, before, sparse)
            except HistoryPruned:
                return
            yield from reversed(run)
            if run:
                header = run[0].header
                before = (
                    (header.version, header.first_index - 1)
                    if header.first_index > 1
                    else (header.version - 1, _LAST_INDEX)
                )
            else:
                if before[0] >= self.oldest and self._catalog.find(before[0]).number == number:
                    self._check_skipped(start, before[0])
                number -= 1

    def _run(self, start: Location, last: tuple[int, int], sparse: SparseIndex) -> list[Frame]:
        """The frames of one segment from an entry of its index up to a change; starts over at a frame that becomes an entry."""
        run: list[Frame] = []
        location = start
        while (frame := self.read(location)) is not None:
            header = frame.header
            if frame.location.segment != start.segment or (header.version, header.first_index) > last:
                break
            if self._note(sparse, start.segment, frame):
                run.clear()
            run.append(frame)
            location = frame.next
        return run

    def _check_skipped(self, start: Location, version: int) -> None:
        """Checks that a version without a frame behind a location is a skipped version."""
        frame = self.read(start)
        if frame is None or frame.since > version:
            raise WalCorrupted(*start, f"version {version} is missing")

    def _note(self, sparse: SparseIndex, segment: int, frame: Frame) -> bool:
        """Adds a frame to an incomplete index; returns whether it became an entry."""
        header, location = frame.header, frame.location
        if location.segment != segment or location.offset < sparse.next:
            return False
        sparse.add(header.version, header.first_index, header.committed_at, location.offset)
        return True

    def read(self, location: Location) -> Frame | None:
        """The frame at ``location``, or after the control frames there; None at the end of the readable log.

        Raises:
            FormatTooNew: If it is a control frame of a later version of penstock.
            HistoryPruned: If retention has deleted the segment.
            WalCorrupted: If the frame is damaged or cannot be read.
        """
        segment, offset = location
        limit = self._limit()
        skipped = 0
        while (segment, offset) < (limit.segment, limit.offset):
            try:
                end = limit.offset if segment == limit.segment else self._catalog.size(segment)
                if offset >= end:
                    if offset > end:
                        raise WalCorrupted(segment, end, f"the segment ends here, and not behind {offset}")
                    self._continue(segment, offset)
                    segment, offset = segment + 1, DATA_START
                    continue
                header, payload = self._frame(segment, offset, end)
            except FileNotFoundError:
                raise self._gone(segment) from None
            except OSError as error:
                check_exhausted(error)
                raise WalCorrupted(segment, offset, f"it cannot be read ({error})") from error
            # Inlined, since this runs for every frame.
            following = offset + HEADER_BYTES + ((header.length + 7) & -8)
            if header.flags & CONTROL:
                _check_kind(payload, segment, offset)
                skipped = header.skips
                offset = following
                continue
            if header.version > limit.version:
                return None
            since = skipped or header.version
            at = tuple.__new__(Location, (segment, offset))
            return Frame(header, payload, at, tuple.__new__(Location, (segment, following)), since)
        return None

    def _frame(self, segment: int, offset: int, end: int) -> tuple[FrameHeader, memoryview]:
        block = self._recent
        if block.segment != segment or offset < block.start or offset + HEADER_BYTES > block.end:
            self._recent = block = self._block(segment, offset, HEADER_BYTES, end)
        at = offset - block.start
        header = FrameHeader.unpack(block.data, at)
        length = header.length
        extent = HEADER_BYTES + ((length + 7) & -8)
        if not length:
            raise WalCorrupted(segment, offset, "there is no frame where one must be")
        if offset + extent > block.end:
            self._recent = block = self._block(segment, offset, extent, end)
            at = offset - block.start
        data = block.data
        payload = data[at + HEADER_BYTES : at + HEADER_BYTES + length]
        if crc32(data[at + 8 : at + HEADER_BYTES], crc32(payload)) != header.crc:
            raise WalCorrupted(segment, offset, "the crc of the frame is wrong")
        links = self._links
        if links.get((segment, offset), header.previous) != header.previous:
            raise WalCorrupted(segment, offset, "the frame does not continue the one before it")
        links[segment, offset + extent] = header.crc
        if len(links) > _LINKS:
            self._trim_links()
        statistics = self.statistics
        statistics.frames += 1
        statistics.bytes += extent
        return header, payload

    def _trim_links(self) -> None:
        # Another thread may do the same concurrently: the keys are copied in one step, and may be removed already.
        for earlier in list(self._links)[: _LINKS // 2]:
            self._links.pop(earlier, None)

    def _continue(self, segment: int, offset: int) -> None:
        """Carries the crc of the last frame of a segment over to the first frame of the next segment."""
        crc = self._links.get((segment, offset))
        if crc is not None:
            self._links[segment + 1, DATA_START] = crc

    def _block(self, segment: int, offset: int, needed: int, end: int) -> _Block:
        """A block that holds ``needed`` bytes from ``offset`` on."""
        blocks = self._blocks
        with self._lock:
            for place, block in enumerate(blocks):
                if block.segment == segment and block.start <= offset and offset + needed <= block.end:
                    if place:
                        blocks.insert(0, blocks.pop(place))
                    return block
        size = min(max(needed, BLOCK_BYTES), end - offset)
        if size < needed:
            raise WalCorrupted(
                segment, offset, f"a frame of {needed} bytes ends beyond the readable log at {end}"
            )
        data = self._catalog.pread(segment, size, offset)
        self.statistics.preads += 1
        if len(data) < needed:
            raise WalCorrupted(segment, offset + len(data), "the file ends in the middle of a frame")
        block = _Block(segment, offset, data)
        if size <= _LARGEST_KEPT:
            with self._lock:
                blocks.insert(0, block)
                del blocks[_BLOCKS:]
        return block

    def _gone(self, segment: int) -> HistoryPruned | WalCorrupted:
        if self._refresh:
            try:
                self._catalog.refresh()
            except OSError as error:
                check_exhausted(error)
                return WalCorrupted(segment, 0, f"the directory cannot be read ({error})")
        if segment < self._catalog.entries[0].number:
            return HistoryPruned(Position(self.oldest))
        return WalCorrupted(segment, 0, "the segment is missing")


def _check_kind(payload: memoryview, segment: int, offset: int) -> None:
    try:
        kind_of(payload)
    except ValueError as error:
        raise WalCorrupted(segment, offset, str(error)) from error

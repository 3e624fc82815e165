"""Opening a log for writing: from whatever a crash has left to a state in which everything is known to be durable.

The order of the steps is what makes it safe; a crash between any two of them leads back to the first.

1. Under the lock (see `directory`): delete unfinished files, read HEAD, finish a cut that it tells of.
2. Compare the segments with HEAD, with each other, and closed ones with their indexes.
3. Scan the last segment.
4. Judge what lies behind its last good frame: torn by a crash, or damage to something acknowledged.
5. Write frames that HEAD does not vouch for again: after a failed sync the page cache may pass for clean although the
   disk never got them.
6. Sync; then HEAD with a new epoch; then the EPOCH frame (`Writer.open_epoch`); then the log may be used.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from uuid import UUID, uuid4

from publishers.errors import WalCorrupted
from publishers.options import LogOptions
from publishers.wal.catalog import Catalog, SegmentEntry
from publishers.wal.control import ProducerState, Tables, decode_control
from publishers.wal.directory import tidy
from publishers.wal.filesystem import File, FileSystem, means_full, sync_file, sync_names, write_all
from publishers.wal.frame import CONTROL, HEADER_BYTES, LAST, NO_PRODUCER, Chain, FrameHeader, Scan
from publishers.wal.head import CUT, HEAD_NAME, Head, HeadState, read_head
from publishers.wal.live import FIRST_FILL, LiveSegment, Spare, control_frame, create_segment, write_zeros
from publishers.wal.segment import (
    DATA_START,
    SegmentHeader,
    SparseIndex,
    Trailer,
    index_name,
    segment_name,
    segment_number,
    write_index,
)

__all__ = ["Recovered", "recover"]

_T = TypeVar("_T")
_COPY_BYTES: Final = 1 << 20
_TORN_BYTES: Final = 16 << 20


class Recovered(NamedTuple):
    """What recovery found and made durable.

    Attributes:
        catalog: All segments.
        head: HEAD, with the new epoch.
        epoch: The new epoch.
        live: The last segment, ready to be continued.
        chain: What the next frame continues.
        tables: Producers and epochs.
        torn: Bytes of unsynced writes that were cut off.
    """

    catalog: Catalog
    head: Head
    epoch: int
    live: LiveSegment
    chain: Chain
    tables: Tables
    torn: int


def recover(filesystem: FileSystem, directory: Path, options: LogOptions, now: int) -> Recovered:
    """Opens or creates a log whose lock is held.

    Raises:
        WalCorrupted: If acknowledged data are damaged or missing.
        OSError: If something cannot be written.
    """
    names = tidy(filesystem, directory)
    numbers = sorted(number for name in names if (number := segment_number(name)) is not None)
    head = _open_head(filesystem, directory, names, numbers)
    try:
        if not numbers:
            _create_first(filesystem, directory, head.state.log_id, options, now)
            numbers = [1]
        if head.state.flags & CUT:
            numbers = _finish_cut(filesystem, directory, head, numbers)
            names = filesystem.listing(directory)
        return _Recovery(filesystem, directory, head, names, numbers).run()
    except BaseException:
        head.close()
        raise


def _open_head(filesystem: FileSystem, directory: Path, names: list[str], numbers: list[int]) -> Head:
    state = None
    if HEAD_NAME in names:
        file = filesystem.open(directory / HEAD_NAME, "write")
        try:
            state = read_head(file)
        except OSError as error:
            file.close()
            raise WalCorrupted(numbers[0] if numbers else 0, 0, f"HEAD cannot be read ({error})") from error
        if state is not None:
            begun = not numbers and (state.segment, state.offset, state.durable) == (1, 0, 0)
            if numbers or begun:
                return Head(file, state)
            file.close()
            raise WalCorrupted(state.segment, 0, "HEAD tells of this segment, but there are none at all")
        file.close()
    if numbers:
        raise WalCorrupted(numbers[0], 0, "there are segments, but HEAD has no valid slot")
    return Head.create(filesystem, directory, HeadState(uuid4(), 1, 0, 0, 1, 0, 1))


def _create_first(
    filesystem: FileSystem, directory: Path, log_id: UUID, options: LogOptions, now: int
) -> None:
    frame = control_frame(Tables().encode(), Chain(0, 0), now, 0)
    spare = Spare(filesystem, directory, min(options.fill_step, FIRST_FILL, options.segment_bytes))
    create_segment(filesystem, directory, SegmentHeader(1, 1, log_id, now, 0), frame, spare=spare).close()


def _finish_cut(filesystem: FileSystem, directory: Path, head: Head, numbers: list[int]) -> list[int]:
    """Removes what lies behind the place of the cut, newest first."""
    state = head.state
    for number in reversed(numbers):
        if number > state.segment:
            filesystem.unlink(directory / segment_name(number))
            with contextlib.suppress(FileNotFoundError):
                filesystem.unlink(directory / index_name(number))
    with contextlib.suppress(FileNotFoundError):
        filesystem.unlink(directory / index_name(state.segment))
    try:
        file = filesystem.open(directory / segment_name(state.segment), "write")
    except FileNotFoundError:
        raise WalCorrupted(
            state.segment, 0, "HEAD tells of a cut in this segment, which is missing"
        ) from None
    try:
        if file.size() > state.offset:
            file.truncate(state.offset)
        sync_file(file)
    finally:
        file.close()
    sync_names(filesystem, directory)
    head.write(state.epoch, state.durable, state.segment, state.offset)
    return [number for number in numbers if number <= state.segment]


class _Recovery:
    def __init__(
        self, filesystem: FileSystem, directory: Path, head: Head, names: list[str], numbers: list[int]
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._head = head
        self._names = names
        self._numbers = numbers
        self._catalog = Catalog(filesystem, directory, head.state.log_id)
        self._tables = Tables()
        self._index = SparseIndex()
        self._why: str | None = None
        self._bad = DATA_START

    def run(self) -> Recovered:
        filesystem = self._filesystem
        state = self._head.state
        self._drop_old(state.oldest)
        headers = self._check_segments()
        last = headers[-1]
        path = self._directory / segment_name(last.number)
        file = filesystem.open(path, "write")
        try:
            size = _reading(last.number, 0, file.size)
            chain, end = self._scan_last(file, last, size)
            filled, torn = self._judge(file, last.number, chain, end, size)
            start = state.offset if state.segment == last.number else 0
            _write_again(file, max(start, DATA_START), end, last.number)
            sync_file(file)
            sync_names(filesystem, self._directory)
            epoch = max(state.epoch, self._tables.epochs[-1].epoch if self._tables.epochs else 0) + 1
            self._head.write(epoch, chain.version, last.number, end)
        except BaseException:
            file.close()
            self._catalog.close()
            raise
        live = LiveSegment(filesystem, path, file, last, end, filled)
        live.index = self._index
        self._catalog.add(SegmentEntry(last.number, last.first_version, last.created_at), live.index)
        return Recovered(self._catalog, self._head, epoch, live, chain, self._tables, torn)

    # --- the segments ----------------------------------------------------------------------------------------------

    def _drop_old(self, oldest: int) -> None:
        """Finishes a retention that was interrupted."""
        dropped = False
        for name in self._names:
            number = segment_number(name) or segment_number(name, "idx")
            if number is not None and (number < oldest or (number not in self._numbers)):
                self._filesystem.unlink(self._directory / name)
                dropped = True
        if dropped:
            sync_names(self._filesystem, self._directory)
        self._numbers = [number for number in self._numbers if number >= oldest]

    def _check_segments(self) -> list[SegmentHeader]:
        state = self._head.state
        numbers = self._numbers
        newest = max(state.segment, numbers[-1] if numbers else 0)
        for number in range(state.oldest, newest + 1):
            if number not in numbers:
                raise WalCorrupted(number, 0, "the segment is missing")
        headers = [self._read_header(number) for number in numbers]
        for header, following in pairwise(headers):
            self._check_closed(header, following)
        return headers

    def _read_header(self, number: int) -> SegmentHeader:
        data = _reading(number, 0, partial(self._catalog.pread, number, DATA_START, 0))
        try:
            header = SegmentHeader.unpack(data)
        except ValueError as error:
            raise WalCorrupted(number, 0, str(error)) from None
        log_id = self._head.state.log_id
        if header.number != number or header.log_id != log_id:
            raise WalCorrupted(
                number, 0, f"the header is of segment {header.number} of log {header.log_id}, not {log_id}"
            )
        return header

    def _check_closed(self, header: SegmentHeader, following: SegmentHeader) -> None:
        number = header.number
        size = _reading(number, 0, partial(self._catalog.size, number))
        loaded = self._catalog.load_index(number)
        if loaded is None or not _fits(loaded[1], size, following):
            loaded = self._scan_closed(header, size)
            trailer = loaded[1]
            if not _fits(trailer, size, following):
                raise WalCorrupted(following.number, 0, f"the header does not continue segment {number}")
            # An index only saves time: without room for it, it is made again some other day.
            with contextlib.suppress(OSError):
                data = loaded[0].pack(header.log_id, number, trailer)
                write_index(self._filesystem, self._directory, number, data)
        self._catalog.add(SegmentEntry(number, header.first_version, header.created_at))

    def _scan_closed(self, header: SegmentHeader, size: int) -> tuple[SparseIndex, Trailer]:
        number = header.number
        index = SparseIndex()
        chain = Chain(header.previous, header.first_version - 1)
        file = self._filesystem.open(self._directory / segment_name(number), "read")
        scan = Scan(file, DATA_START, size, chain)
        committed_at = 0
        try:
            for offset, frame, _ in scan:
                if not frame.flags & CONTROL:
                    committed_at = frame.committed_at
                    index.add(frame.version, frame.first_index, committed_at, offset)
        except OSError as error:
            raise WalCorrupted(number, scan.offset, f"it cannot be read ({error})") from error
        finally:
            file.close()
        if scan.end != size:
            raise WalCorrupted(number, scan.offset, scan.why or "the frames end before the segment")
        return index, Trailer(chain.version, chain.crc, size, committed_at)

    # --- the last segment ------------------------------------------------------------------------------------------

    def _scan_last(self, file: File, header: SegmentHeader, size: int) -> tuple[Chain, int]:
        number = header.number
        chain = Chain(header.previous, header.first_version - 1)
        scan = Scan(file, DATA_START, size, chain)
        frames: list[tuple[int, FrameHeader]] = []
        try:
            for offset, frame, payload in scan:
                if frame.flags & CONTROL:
                    if decode_control(payload, self._tables) != (offset == DATA_START):
                        raise WalCorrupted(number, offset, "a checkpoint in the wrong place")
                elif offset == DATA_START:
                    raise WalCorrupted(number, offset, "the segment does not begin with a checkpoint")
                else:
                    frames.append((offset, frame))
                    if frame.flags & LAST:
                        self._take(frames)
                        frames.clear()
        except OSError as error:
            raise WalCorrupted(number, scan.offset, f"it cannot be read ({error})") from error
        except ValueError as error:
            raise WalCorrupted(number, scan.offset, str(error)) from error
        state = self._head.state
        if scan.end == DATA_START:
            # The checkpoint was synced before the segment got its name.
            raise WalCorrupted(number, DATA_START, scan.why or "the checkpoint is missing")
        if state.durable > chain.version or (state.segment, state.offset) > (number, scan.end):
            why = scan.why or "the log ends here"
            raise WalCorrupted(number, scan.offset, f"{why}, but HEAD vouches for version {state.durable}")
        self._why = scan.why
        self._bad = scan.offset
        return Chain(scan.end_crc, chain.version, chain.committed_at), scan.end

    def _take(self, frames: list[tuple[int, FrameHeader]]) -> None:
        """Notes a whole transaction."""
        for offset, frame in frames:
            self._index.add(frame.version, frame.first_index, frame.committed_at, offset)
        frame = frames[0][1]
        if frame.producer != NO_PRODUCER:
            state = ProducerState(frame.producer_sequence, frame.version, frame.committed_at)
            self._tables.committed(frame.producer, state)

    def _judge(self, file: File, number: int, chain: Chain, end: int, size: int) -> tuple[int, int]:
        """Decides about what lies behind ``end``; returns up to where there are zeros, and how much was cut off."""
        torn = 0
        for start in range(end, size, _COPY_BYTES):
            data = _reading(number, start, partial(file.pread, min(_COPY_BYTES, size - start), start))
            if data.count(0) != len(data):
                torn = start - end + len(data.rstrip(b"\0"))
        if not torn:
            return size, 0
        rest = _reading(number, end, partial(file.pread, torn, end))
        vouched = _vouching(rest, chain.version)
        if vouched is not None:
            raise WalCorrupted(
                number,
                self._bad,
                f"{self._why or 'zeros'}, but a frame at {end + vouched} was written when it was durable",
            )
        self._keep_torn(number, rest[:_TORN_BYTES])
        file.truncate(end)
        sync_file(file)
        filled = min(size, end + FIRST_FILL)
        try:
            write_zeros(file, end, filled)
        except OSError as error:
            if not means_full(error):
                raise
            file.truncate(end)
            filled = end
        return filled, torn

    def _keep_torn(self, number: int, data: bytes) -> None:
        """Keeps what is cut off for whoever wants to look at it; not at the price of the opening."""
        with contextlib.suppress(OSError):
            file = self._filesystem.open(self._directory / (segment_name(number) + ".torn"), "create")
            try:
                file.truncate(0)
                write_all(file, data, 0)
            finally:
                file.close()


def _reading(number: int, offset: int, read: Callable[[], _T]) -> _T:
    """Turns an error of a read into what it means: data that were acknowledged are not there any more."""
    try:
        return read()
    except OSError as error:
        raise WalCorrupted(number, offset, f"it cannot be read ({error})") from error


def _fits(trailer: Trailer, size: int, following: SegmentHeader) -> bool:
    return (trailer.end, trailer.last_version + 1, trailer.last_crc) == (
        size,
        following.first_version,
        following.previous,
    )


def _vouching(data: bytes, version: int) -> int | None:
    """Where a whole frame lies that was written when versions above ``version`` were durable already."""
    view = memoryview(data)
    zeros = bytes(512)
    at = 0
    while at + HEADER_BYTES <= len(data):
        if data[at : at + 512] == zeros:
            at += 512
            continue
        header = FrameHeader.unpack(view, at)
        plausible = (
            version < header.durable <= header.version
            and 0 < header.length <= len(data) - at - HEADER_BYTES
            and header.flags < 2 * CONTROL
        )
        if plausible and header.verify(view[at + HEADER_BYTES : at + HEADER_BYTES + header.length]):
            return at
        at += 8
    return None


def _write_again(file: File, start: int, end: int, number: int) -> None:
    while start < end:
        size = min(_COPY_BYTES, end - start)
        data = _reading(number, start, partial(file.pread, size, start))
        write_all(file, data, start)
        start += size

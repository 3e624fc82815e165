"""Opening a log for writing: from whatever a crash has left to a state in which everything is known to be durable.

The order of the steps is what makes it safe; a crash between any two of them leads back to the first.

1. Under the lock (see `directory`): delete unfinished files, read HEAD, finish a cut that it tells of.
2. Compare the segments with HEAD, with each other, and closed ones with their indexes.
3. Scan the last segment.
4. Judge what lies behind its last good frame: torn by a crash, or damage to something acknowledged. What HEAD vouches for
   must be there, and what TAIL tells of, if it was written since this machine was started.
5. Write frames that HEAD does not vouch for again: after a failed sync the page cache may pass for clean although the
   disk never got them.
6. Sync; then HEAD with a new epoch; then the EPOCH frame (`Writer.open_epoch`); then the log may be used.
"""

import contextlib
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from publishers.errors import WalCorrupted
from publishers.model.position import epoch_text
from publishers.options import LogOptions
from publishers.wal.append.active_segment import (
    FIRST_FILL,
    ActiveSegment,
    Spare,
    control_frame,
    create_segment,
)
from publishers.wal.disk.access import open_file
from publishers.wal.disk.filesystem import File, FileSystem, sync_file, sync_names, write_all
from publishers.wal.disk.reserve import Reserve
from publishers.wal.files.directory import tidy
from publishers.wal.files.head import CUT, DEFERRED, HEAD_NAME, Head, HeadState, read_head
from publishers.wal.files.segment import (
    DATA_START,
    SegmentHeader,
    SparseIndex,
    Trailer,
    segment_name,
    segment_number,
    write_index,
)
from publishers.wal.files.tail_page import Tail, TailState
from publishers.wal.format.control import Tables, draw_random
from publishers.wal.format.frame import CONTROL, Chain, Scan
from publishers.wal.read.catalog import Catalog, SegmentEntry
from publishers.wal.recover.replay_segment import Restored, restore
from publishers.wal.recover.torn import COPY_BYTES, judge, reading
from publishers.wal.recover.truncate import finish_truncation

__all__ = ["Recovered", "recover"]

_PARTIAL: Final = "some files are missing, or older than the others"


class Recovered(NamedTuple):
    """What recovery found and made durable.

    Attributes:
        catalog: All segments.
        head: HEAD, with the new epoch.
        epoch: The new epoch.
        active: The last segment, ready to be continued.
        chain: What the next frame continues.
        tables: Producers and epochs.
        torn: Bytes of unsynced writes that were cut off.
    """

    catalog: Catalog
    head: Head
    epoch: int
    active: ActiveSegment
    chain: Chain
    tables: Tables
    torn: int


def recover(
    filesystem: FileSystem, directory: Path, options: LogOptions, now: int, reserve: Reserve, tail: Tail
) -> Recovered:
    """Opens or creates a log whose lock is held.

    Raises:
        FormatTooNew: If a later version of penstock wrote to it; nothing was changed.
        WalCorrupted: If acknowledged data are damaged or missing.
        OSError: If something cannot be written.
    """
    names = filesystem.listing(directory)
    numbers = sorted(number for name in names if (number := segment_number(name)) is not None)
    if not numbers and HEAD_NAME not in names:
        tail.clear()  # of another log, whose files were removed
    head = _open_head(filesystem, directory, names, numbers, reserve)  # before anything is changed
    try:
        tidy(filesystem, directory)
        if HEAD_NAME in names:
            head.write_again()
            if not numbers:
                sync_names(filesystem, directory)  # HEAD is there first, as was meant when it was made
        if not numbers:
            _create_first(filesystem, directory, head.state.log_id, options, now)
            numbers = [1]
        if head.state.flags & CUT:
            numbers = finish_truncation(filesystem, directory, head, numbers, tail)
            names = filesystem.listing(directory)
        return _Recovery(filesystem, directory, head, names, numbers, reserve, tail.read()).run()
    except BaseException:
        head.close()
        raise


def _open_head(
    filesystem: FileSystem, directory: Path, names: list[str], numbers: list[int], reserve: Reserve
) -> Head:
    state = None
    if HEAD_NAME in names:
        file = open_file(filesystem, directory / HEAD_NAME, "write")
        try:
            state = read_head(file)
        except OSError as error:
            file.close()
            raise WalCorrupted(numbers[0] if numbers else 0, 0, f"HEAD cannot be read ({error})") from error
        if state is not None:
            begun = not numbers and (state.segment, state.offset, state.durable) == (1, 0, 0)
            if numbers or begun:
                return Head(file, state, reserve)
            file.close()
            raise WalCorrupted(state.segment, 0, "HEAD tells of this segment, but there are none at all")
        file.close()
    if numbers:
        raise WalCorrupted(numbers[0], 0, "there are segments, but HEAD has no valid slot")
    return Head.create(filesystem, directory, HeadState(_draw_id(filesystem), 1, 0, 0, 1, 0, 1), reserve)


def _draw_id(filesystem: FileSystem) -> UUID:
    return UUID(bytes=filesystem.random_bytes(16), version=4)


def _create_first(
    filesystem: FileSystem, directory: Path, log_id: UUID, options: LogOptions, now: int
) -> None:
    frame = control_frame(Tables().encode(), Chain(0, 0), now, 0)
    spare = Spare(filesystem, directory, min(options.fill_step, FIRST_FILL, options.segment_bytes))
    create_segment(filesystem, directory, SegmentHeader(1, 1, log_id, now, 0), frame, spare=spare).close()


class _Recovery:
    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        head: Head,
        names: list[str],
        numbers: list[int],
        reserve: Reserve,
        shown: TailState | None,
    ) -> None:
        self._shown = shown
        self._filesystem = filesystem
        self._directory = directory
        self._head = head
        self._names = names
        self._numbers = [number for number in numbers if number >= head.state.oldest]
        self._reserve = reserve
        self._catalog = Catalog(filesystem, directory, head.state.log_id)

    def run(self) -> Recovered:
        filesystem = self._filesystem
        state = self._head.state
        headers = self._check_segments()
        last = headers[-1]
        path = self._directory / segment_name(last.number)
        file = open_file(filesystem, path, "write")
        try:
            size = reading(last.number, 0, file.size)
            chain, end, tables, index, bad, why = self._scan_last(file, last, size)
            version = chain.version
            place = (bad, why or "zeros")
            rest = judge(filesystem, self._directory, file, last.number, version, end, size, place)
            self._drop_old()  # not before all that follows is known to be there
            start = state.offset if state.segment == last.number else 0
            again = partial(_write_again, file, max(start, DATA_START), end, last.number)
            self._reserve.holding(again)  # in place, but some file systems write to a new one
            sync_file(file)
            sync_names(filesystem, self._directory)
            epoch = max(state.epoch, tables.epochs[-1].epoch if tables.epochs else 0) + 1
            # What was to be withheld may be among what the crash has taken.
            visible = state.visible if state.flags & DEFERRED and state.visible < version else None
            random = draw_random(filesystem)
            self._head.write(epoch, version, last.number, end, visible=visible, random=random)
        except BaseException:
            file.close()
            self._catalog.close()
            raise
        active = ActiveSegment(filesystem, path, file, last, end, rest.filled)
        active.index = index
        self._catalog.add(SegmentEntry(last.number, last.first_version, last.created_at), active.index)
        return Recovered(self._catalog, self._head, epoch, active, chain, tables, rest.torn)

    # --- the segments ----------------------------------------------------------------------------------------------

    def _drop_old(self) -> None:
        """Finishes a retention that was interrupted."""
        dropped = False
        for name in self._names:
            number = segment_number(name) or segment_number(name, "idx")
            if number is not None and number not in self._numbers:
                self._filesystem.unlink(self._directory / name)
                dropped = True
        if dropped:
            sync_names(self._filesystem, self._directory)

    def _check_segments(self) -> list[SegmentHeader]:
        state = self._head.state
        numbers = self._numbers
        shown = 0 if self._shown is None else self._shown.segment
        newest = max(state.segment, shown, numbers[-1] if numbers else 0)
        for number in range(state.oldest, newest + 1):
            if number not in numbers:
                raise WalCorrupted(number, 0, f"the segment is missing; {_PARTIAL}")
        headers = [self._read_header(number) for number in numbers]
        for header, following in pairwise(headers):
            self._check_closed(header, following)
        return headers

    def _read_header(self, number: int) -> SegmentHeader:
        data = reading(number, 0, partial(self._catalog.pread, number, DATA_START, 0))
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
        size = reading(number, 0, partial(self._catalog.size, number))
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
        file = open_file(self._filesystem, self._directory / segment_name(number), "read")
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

    def _scan_last(self, file: File, header: SegmentHeader, size: int) -> Restored:
        restored = restore(file, header, size)
        state = self._head.state
        reached = (header.number, restored.end)
        if state.durable > restored.chain.version or (state.segment, state.offset) > reached:
            why = restored.why or "the log ends here"
            raise WalCorrupted(
                header.number, restored.bad, f"{why}, but HEAD vouches for version {state.durable}"
            )
        shown = self._shown
        if shown is not None and (
            shown.visible > restored.chain.version or (shown.segment, shown.end) > reached
        ):
            why = f"{restored.why or 'the log ends here'}, but TAIL tells that version {shown.visible} was shown"
            raise WalCorrupted(header.number, restored.bad, f"{why}; {_PARTIAL}")
        for epoch in restored.tables.epochs[-1:]:
            if epoch.epoch == state.epoch and epoch.random != state.random:
                ours, theirs = epoch_text(epoch.epoch, epoch.random), epoch_text(state.epoch, state.random)
                raise WalCorrupted(
                    header.number, DATA_START, f"it is of epoch {ours}, and HEAD of {theirs}; {_PARTIAL}"
                )
        return restored


def _fits(trailer: Trailer, size: int, following: SegmentHeader) -> bool:
    return (trailer.end, trailer.last_version + 1, trailer.last_crc) == (
        size,
        following.first_version,
        following.previous,
    )


def _write_again(file: File, start: int, end: int, number: int) -> None:
    while start < end:
        size = min(COPY_BYTES, end - start)
        data = reading(number, start, partial(file.pread, size, start))
        write_all(file, data, start)
        start += size

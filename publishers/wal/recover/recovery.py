"""Recovery: opens a log for writing after a crash, and makes every remaining transaction durable.

After a crash between two steps, recovery begins again with the first.

1. Under the lock (see `directory`): delete unfinished files, read HEAD, finish a truncation that it records.
2. Compare the segments with HEAD, with each other, and closed ones with their indexes.
3. Scan the last segment.
4. Judge the bytes behind its last good frame: torn by a crash, or damage to acknowledged data. The log must have the data that
   HEAD covers, and the data that TAIL covers if it was written since this machine was booted.
5. Rewrite frames that HEAD does not cover: after a failed sync the page cache may look clean although the disk never
   received them.
6. Sync; then HEAD with a new epoch; then the EPOCH frame (`Writer.open_epoch`); then the log may be used.
"""

import contextlib
from dataclasses import dataclass, field
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
    write_zeros,
)
from publishers.wal.disk.filesystem import (
    File,
    FileSystem,
    check_exhausted,
    means_full,
    open_file,
    read_blocks,
    sync_file,
    sync_names,
    write_all,
)
from publishers.wal.disk.reserve import Reserve
from publishers.wal.files.directory import tidy
from publishers.wal.files.head import CUT, DEFERRED, HEAD_NAME, Head, HeadState, read_head
from publishers.wal.files.segment import (
    DATA_START,
    SegmentHeader,
    check_header,
    read_index,
    segment_name,
    segment_number,
    segment_numbers,
    write_index,
)
from publishers.wal.files.tail_page import Tail, TailState
from publishers.wal.format.control import ControlTables, draw_random
from publishers.wal.format.frame import Chain
from publishers.wal.read.catalog import Catalog, Location, SegmentEntry
from publishers.wal.recover.inspector import (
    PARTIAL,
    Acknowledged,
    Restored,
    find_vouching,
    inspect_segment,
    is_of_two_histories,
    reading,
    restore,
)
from publishers.wal.recover.truncate import finish_truncation

__all__ = ["Recovered", "recover"]

_BLOCK: Final = 1 << 20
_TORN_BYTES: Final = 16 << 20


class Recovered(NamedTuple):
    """The recovered and durable state of a log.

    Attributes:
        catalog: All segments.
        head: HEAD, with the new epoch.
        active: The last segment, ready for appends.
        chain: The state that the next frame continues.
        tables: Producers and epochs.
        torn: Bytes of unsynced writes that were truncated.
    """

    catalog: Catalog
    head: Head
    active: ActiveSegment
    chain: Chain
    tables: ControlTables
    torn: int


def recover(
    filesystem: FileSystem,
    directory: Path,
    options: LogOptions,
    now: int,
    reserve: Reserve,
    tail: Tail,
    files: contextlib.ExitStack,
) -> Recovered:
    """Opens or creates a log whose lock is held.

    Args:
        filesystem: The file system.
        directory: The directory of the log.
        options: The bounds.
        now: The creation time of a new log in Unix microseconds.
        reserve: Disk space for writes on a full disk.
        tail: TAIL, which records the visible versions.
        files: Closes the files that are opened here.

    Raises:
        FormatTooNew: If a later version of penstock wrote to it; nothing was changed.
        WalCorrupted: If acknowledged data are damaged or missing.
        OSError: If something cannot be written.
    """
    names = filesystem.listing(directory)
    numbers = segment_numbers(names)
    if not numbers and HEAD_NAME not in names:
        tail.clear()  # it belongs to another log, whose files were removed
    # Opened before anything is changed.
    head = _open_head(filesystem, directory, numbers, reserve, files) if HEAD_NAME in names else None
    if head is None:
        if numbers:
            raise WalCorrupted(numbers[0], 0, "there are segments, but HEAD has no valid slot")
        state = HeadState(_draw_id(filesystem), 1, 0, 0, 1, 0, 1)
        head = Head.create(filesystem, directory, state, reserve)
        files.callback(head.close)
    tidy(filesystem, directory)
    if HEAD_NAME in names:
        head.write_again()
        if not numbers:
            sync_names(filesystem, directory)  # HEAD must be durable before the first segment
    if not numbers:
        _create_first(filesystem, directory, head.state.log_id, options, now)
        numbers = [1]
    if head.state.flags & CUT:
        numbers = finish_truncation(filesystem, directory, head, numbers, tail)
        names = filesystem.listing(directory)
    return _Recovery(filesystem, directory, head, names, numbers, reserve, tail.read()).run(files)


def _open_head(
    filesystem: FileSystem, directory: Path, numbers: list[int], reserve: Reserve, files: contextlib.ExitStack
) -> Head | None:
    """Opens HEAD; None if no slot is valid."""
    file = open_file(filesystem, directory / HEAD_NAME, "write")
    files.callback(file.close)
    try:
        state = read_head(file)
    except OSError as error:
        check_exhausted(error)
        raise WalCorrupted(numbers[0] if numbers else 0, 0, f"HEAD cannot be read ({error})") from error
    if state is not None and not numbers and (state.segment, state.offset, state.durable) != (1, 0, 0):
        raise WalCorrupted(state.segment, 0, "HEAD names this segment, but there are no segments")
    return None if state is None else Head(file, state, reserve)


def _draw_id(filesystem: FileSystem) -> UUID:
    return UUID(bytes=filesystem.random_bytes(16), version=4)


def _create_first(
    filesystem: FileSystem, directory: Path, log_id: UUID, options: LogOptions, now: int
) -> None:
    frame = control_frame(ControlTables().encode(), Chain(0, 0), now, 0)
    spare = Spare(filesystem, directory, min(options.fill_step, FIRST_FILL, options.segment_bytes))
    create_segment(filesystem, directory, SegmentHeader(1, 1, log_id, now, 0), frame, spare=spare).close()


@dataclass
class _Recovery:
    _filesystem: FileSystem
    _directory: Path
    _head: Head
    _names: list[str]
    _numbers: list[int]
    _reserve: Reserve
    _shown: TailState | None
    _catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        state = self._head.state
        self._numbers = [number for number in self._numbers if number >= state.oldest]
        self._catalog = Catalog(self._filesystem, self._directory, state.log_id)

    def run(self, files: contextlib.ExitStack) -> Recovered:
        files.callback(self._catalog.close)
        filesystem = self._filesystem
        state = self._head.state
        headers = self._check_segments()
        last = headers[-1]
        path = self._directory / segment_name(last.number)
        file = open_file(filesystem, path, "write")
        files.callback(file.close)
        with reading(last.number, 0):
            size = file.size()
        left = self._scan_last(file, last.number, size)
        chain, end, tables, index, *_ = left
        version = chain.version
        torn, filled = self._mend(file, last.number, left)
        self._drop_old()  # only after the later segments were checked
        start = state.offset if state.segment == last.number else 0
        again = partial(_write_again, file, max(start, DATA_START), end, last.number)
        self._reserve.holding(again)  # in place, but copy-on-write file systems allocate blocks
        sync_file(file)
        sync_names(filesystem, self._directory)
        epoch = max(state.epoch, tables.epochs[-1].epoch if tables.epochs else 0) + 1
        # The crash may have lost the withheld transactions.
        visible = state.visible if state.flags & DEFERRED and state.visible < version else None
        random = draw_random(filesystem)
        self._head.write(epoch, version, last.number, end, visible=visible, random=random)
        active = ActiveSegment(filesystem, path, file, last, end, filled)
        active.index = index
        self._catalog.add(SegmentEntry(last.number, last.first_version, last.created_at), active.index)
        return Recovered(self._catalog, self._head, active, chain, tables, torn)

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
        numbers = self._numbers
        newest = max(0, Acknowledged(self._head.state, self._shown).reached.segment, *numbers[-1:])
        for number in range(self._head.state.oldest, newest + 1):
            if number not in numbers:
                raise WalCorrupted(number, 0, f"the segment is missing; {PARTIAL}")
        headers = [self._read_header(number) for number in numbers]
        for header, following in pairwise(headers):
            self._check_closed(header, following)
        return headers

    def _read_header(self, number: int) -> SegmentHeader:
        path = self._directory / segment_name(number)
        with reading(number, 0), contextlib.closing(open_file(self._filesystem, path, "read")) as file:
            return check_header(file, number, self._head.state.log_id)

    def _check_closed(self, header: SegmentHeader, following: SegmentHeader) -> None:
        number = header.number
        with reading(number, 0):
            size = self._catalog.size(number)
        trailer = None
        with contextlib.suppress(OSError, ValueError):
            _, trailer = read_index(self._filesystem, self._directory, header.log_id, number)
        if trailer is None or not trailer.fits(size, following):
            left = inspect_segment(self._filesystem, self._directory, number)
            if left.end != size:
                raise WalCorrupted(number, left.bad, left.why or "the frames end before the segment")
            if not left.trailer.fits(size, following):
                raise WalCorrupted(following.number, 0, f"the header does not continue segment {number}")
            # An index only saves time: if the disk is full, a later opening writes it.
            with contextlib.suppress(OSError):
                data = left.sparse.pack(header.log_id, number, left.trailer)
                write_index(self._filesystem, self._directory, number, data)
        self._catalog.add(SegmentEntry(number, header.first_version, header.created_at))

    # --- the last segment ------------------------------------------------------------------------------------------

    def _scan_last(self, file: File, number: int, size: int) -> Restored:
        left = restore(file, number, size)
        state = self._head.state
        lacking = Acknowledged(state, self._shown).lacking(left.chain.version, Location(number, left.end))
        if lacking is not None:
            raise WalCorrupted(number, left.bad, f"{left.why or 'the log ends here'}, but {lacking}")
        for epoch in left.tables.epochs[-1:]:
            if is_of_two_histories(state, epoch):
                ours, theirs = epoch_text(epoch.epoch, epoch.random), epoch_text(state.epoch, state.random)
                why = f"it is of epoch {ours}, and HEAD of {theirs}; {PARTIAL}"
                raise WalCorrupted(number, DATA_START, why)
        return left

    def _mend(self, file: File, number: int, left: Restored) -> tuple[int, int]:
        """Truncates torn bytes behind the last good frame, and saves them in a ``.torn`` file.

        Returns:
            The number of truncated bytes, and the end of the zeros in the file.

        Raises:
            WalCorrupted: If a frame there proves that missing data before it were durable.
            OSError: If something cannot be written.
        """
        end, size = left.end, left.size
        with reading(number, end):
            torn = _count_used(file, end, size)
            if not torn:
                return 0, size
            vouching = find_vouching(file, end, size, left.chain.version)
            rest = file.pread(min(torn, _TORN_BYTES), end)
        if vouching is not None:
            why = f"{left.why or 'zeros'}, but a frame at {vouching} proves that these data were durable"
            raise WalCorrupted(number, left.bad, why)
        # The file serves later inspection; an error here must not fail the opening.
        kept = self._directory / f"{segment_name(number)}.torn"
        with contextlib.suppress(OSError), contextlib.closing(self._filesystem.open(kept, "create")) as copy:
            copy.truncate(0)
            write_all(copy, rest, 0)
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
        return torn, filled


def _count_used(file: File, start: int, end: int) -> int:
    """Returns the bytes from ``start`` to the last byte before ``end`` that is not zero."""
    used = 0
    for at, data in read_blocks(file, start, end):
        if data.count(0) != len(data):
            used = at - start + len(data.rstrip(b"\0"))
    return used


def _write_again(file: File, start: int, end: int, number: int) -> None:
    for at in range(start, end, _BLOCK):
        with reading(number, at):
            data = file.pread(min(_BLOCK, end - at), at)
        write_all(file, data, at)

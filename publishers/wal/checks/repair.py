"""Repairs a log: truncates it at the first damage, and keeps the removed data aside.

Nothing intact before the first damage is touched, so a repair never makes a log worse, and a second repair finds nothing to
do. The order of the steps makes it safe against a crash at any moment. First come synced copies of the data to remove; then HEAD
with CUT and the place, after which the next opening for writing would finish the truncation by itself; then the truncation.
At last the log is opened and closed as by any writer. This settles what a crash has torn, begins a new epoch, and so
ends with `PositionForked` the subscribers whose position was beyond the place.
"""

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final
from uuid import UUID

from publishers.errors import BackupRefused
from publishers.wal.checks.from_backup import damaged_segments, unfit
from publishers.wal.checks.heads import examine_head
from publishers.wal.checks.plan import Repair, RepairStep, make_plan
from publishers.wal.checks.report import Report, Verdict
from publishers.wal.checks.verify import Progress, examine, verify
from publishers.wal.disk.filesystem import (
    File,
    FileSystem,
    Mode,
    RealFileSystem,
    read_blocks,
    sync_file,
    sync_names,
    write_all,
)
from publishers.wal.files.directory import take_lock
from publishers.wal.files.head import CUT, DEFERRED, HEAD_NAME, KEEP, Head, HeadState
from publishers.wal.files.mirrored_file import TWINS, MirroredFile
from publishers.wal.files.own_options import OwnOptions
from publishers.wal.files.segment import (
    index_name,
    remove_segment,
    segment_name,
    segment_numbers,
    write_index,
)
from publishers.wal.files.tail_page import Tail
from publishers.wal.keep.hard_links import link_again
from publishers.wal.recover.inspector import first_nonzero, inspect_segment
from publishers.wal.recover.truncate import truncate
from publishers.wal.wal import Wal

__all__ = ["repair"]


def repair(
    directory: Path | str,
    *,
    write: bool = False,
    head: bool = False,
    index: bool = False,
    drop_oldest: bool = False,
    source: Path | str | None = None,
    filesystem: FileSystem | None = None,
    progress: Progress | None = None,
) -> Repair:
    """Plans a repair, and with ``write`` executes it.

    Args:
        directory: Directory of the log.
        write: Whether to execute it; otherwise nothing is written.
        head: Whether to repair HEAD only.
        index: Whether to repair indexes only (with ``head``: both), missing ones included.
        drop_oldest: Whether to drop the segments up to the last damaged one, if those behind it are intact, instead of
            truncating the log at its first damage.
        source: A backup of the log: damaged and missing segments that it has intact are put in their places, and nothing else
            is done.
        filesystem: The real one if None.
        progress: Called with the progress of the examination.

    Raises:
        BackupRefused: If ``source`` has none of the damaged segments as the log needs it; nothing was changed.
        LogBusy: With ``write``, if the log is open for writing.
        OSError: If something cannot be written.
        PenstockError: If the log cannot be opened afterwards.
    """
    filesystem = filesystem or RealFileSystem()
    path = Path(directory)
    if drop_oldest and (head or index):
        raise ValueError("drop_oldest repairs the whole log; it cannot be combined with head or index")
    if source is not None:
        if drop_oldest or head or index:
            raise ValueError(
                "source replaces segments; it cannot be combined with drop_oldest, head or index"
            )
        return _repair_from(Path(source), filesystem, path, write=write, progress=progress)

    def plan(report: Report) -> Repair:
        return make_plan(report, filesystem if drop_oldest else None, head=head, index=index)

    planned = plan(verify(path, filesystem=filesystem, progress=progress))
    if not write or planned.refused is not None or (planned.before.live and not planned.steps):
        return planned
    with contextlib.closing(take_lock(filesystem, path)):
        _make_durable(filesystem, path, planned.before)
        if not planned.steps:
            return planned
        planned = plan(examine(filesystem, path, progress=progress))
        _Work(filesystem, path, planned).run()
    if any(step.action in ("cut", "drop", "reopen") for step in planned.steps):
        Wal.open(
            path, OwnOptions(filesystem, path, None, {}, borrowed=True).choose, filesystem=filesystem
        ).close()
    planned.done = True
    planned.after = verify(path, filesystem=filesystem)
    return planned


def _repair_from(
    source: Path, filesystem: FileSystem, path: Path, *, write: bool, progress: Progress | None
) -> Repair:
    """Replaces damaged segments by those of a backup: each by a rename, so that after a crash the rest is still to do."""
    planned = Repair(verify(path, filesystem=filesystem, progress=progress))
    if planned.before.verdict is Verdict.UNREADABLE:
        return make_plan(planned.before, None, head=False, index=False)  # says what cannot be read
    try:
        wanted, files = damaged_segments(filesystem, planned.before, source)
    except OSError as error:
        raise BackupRefused(source, f"it cannot be read ({error.strerror or error})", _DIRECTORY) from None
    if not wanted:
        if planned.before.verdict is Verdict.CORRUPT:
            planned.refused = (
                "no segment is damaged, and nothing else is taken from a backup: repair the log without it"
            )
        return planned
    if not write:
        _plan_taking(planned, source, wanted, unfit(filesystem, planned.before, wanted, files, progress))
        return planned
    with contextlib.closing(take_lock(filesystem, path)):
        _make_durable(filesystem, path, planned.before)
        planned = Repair(examine(filesystem, path, progress=progress))
        # The copies are examined, and not the backup, because they are what the log gets.
        copies = {}
        try:
            for number, file in files.items():
                copies[number] = path / f"{segment_name(number)}.tmp"
                with contextlib.closing(filesystem.open(file, "read")) as opened:
                    _copy(filesystem, opened, copies[number], 0)
            _plan_taking(planned, source, wanted, unfit(filesystem, planned.before, wanted, copies, progress))
            _Work(filesystem, path, planned).run()
        finally:
            for copy in copies.values():
                if copy.name in filesystem.listing(path):
                    filesystem.unlink(copy)
    planned.done = True
    planned.after = verify(path, filesystem=filesystem)
    return planned


_DIRECTORY: Final = "name the directory of a backup of this log"


def _plan_taking(planned: Repair, source: Path, wanted: list[int], untaken: dict[int, str]) -> None:
    planned.untaken = untaken
    for number in wanted:
        if number not in untaken:
            planned.steps.append(
                RepairStep("take", number, 0, f"segment {number} is replaced by that of {source}")
            )
    if not planned.steps:
        why = "; ".join(f"segment {number}: {said}" for number, said in untaken.items())
        choice = "take another backup, or repair the log without one"
        raise BackupRefused(source, f"it has no damaged segment as the log needs it ({why})", choice)


def _make_durable(filesystem: FileSystem, directory: Path, report: Report) -> None:
    """Makes everything that was examined durable, before any step relies on it.

    A writer, or a repair, may have died before a sync, or its sync may have failed. Then its data exist in the page
    cache only, and must be written again. That can concern HEAD, and the segment in which the log ends, its length
    included.
    """
    last = None if report.end is None else segment_name(report.end.segment)
    names = filesystem.listing(directory)
    for name in sorted({HEAD_NAME, *map(segment_name, segment_numbers(names))}.intersection(names)):
        with contextlib.closing(filesystem.open(directory / name, "write")) as file:
            if name in (HEAD_NAME, last):
                for at, data in read_blocks(file, 0, file.size()):
                    write_all(file, data, at)
                file.truncate(file.size())
            sync_file(file)
    sync_names(filesystem, directory)


def _copy(filesystem: FileSystem, source: File, target: Path, start: int) -> None:
    """Copies the content of a file from an offset on, durably."""
    with contextlib.closing(filesystem.open(target, "create")) as copy:
        copy.truncate(0)  # a crash may have left an unfinished copy
        for at, data in read_blocks(source, start, source.size()):
            write_all(copy, data, at - start)
        sync_file(copy)


@dataclass
class _Work:
    """Executes a plan while the lock is held."""

    _filesystem: FileSystem
    _directory: Path
    _planned: Repair

    def __post_init__(self) -> None:
        self._numbers = segment_numbers(self._filesystem.listing(self._directory))

    def run(self) -> None:
        """Executes all steps; each may be repeated."""
        for step in self._planned.steps:
            match step.action:
                case "padding":
                    self._zero(step.segment, step.offset)
                case "head":
                    self._write_head()
                case "cut":
                    self._cut(step.segment, step.offset)
                case "copies":
                    for name in TWINS:
                        mirrored = MirroredFile(self._filesystem, self._directory, name)
                        text = mirrored.read().text
                        if text is not None:  # else there is no such file
                            mirrored.write(text)
                case "drop":
                    self._drop()
                case "take":
                    self._take(step.segment)
                case "index":
                    self._index(step.segment)
                case _:
                    pass  # reopening needs the lock, so the caller does it after releasing it

    def _open(self, name: str, mode: Mode) -> contextlib.closing[File]:
        return contextlib.closing(self._filesystem.open(self._directory / name, mode))

    @contextlib.contextmanager
    def _open_head(self) -> Iterator[Head]:
        """Opens HEAD after keeping a copy of it."""
        state = examine_head(self._filesystem, self._directory).state
        assert state is not None  # ensured by the plan, or by the previous step
        self._keep(HEAD_NAME, 0)
        file = self._filesystem.open(self._directory / HEAD_NAME, "write")
        with contextlib.closing(Head(file, state)) as head:
            yield head

    def _part(self, segment: int) -> None:
        """Replaces a closed segment that is to be written by a copy of its own.

        No other code writes to closed segments, so backups share them by hard links: the repair of one must not change
        the other. Consumers that read this segment through links get links to the new file.
        """
        name = segment_name(segment)
        fresh = self._directory / f"{name}.tmp"
        with self._open(name, "read") as source:
            _copy(self._filesystem, source, fresh, 0)
        self._filesystem.rename(fresh, self._directory / name)
        sync_names(self._filesystem, self._directory)
        link_again(self._filesystem, self._directory, segment)

    def _take(self, segment: int) -> None:
        """Puts the copy of a segment of a backup in its place; the damaged one is kept, and its index is made anew."""
        name = segment_name(segment)
        if segment in self._numbers:
            self._link(name)
            sync_names(self._filesystem, self._directory)
        self._filesystem.rename(self._directory / f"{name}.tmp", self._directory / name)
        sync_names(self._filesystem, self._directory)
        link_again(self._filesystem, self._directory, segment)
        if index_name(segment) in self._filesystem.listing(self._directory):
            self._index(segment)

    def _zero(self, segment: int, offset: int) -> None:
        self._part(segment)
        with self._open(segment_name(segment), "write") as file:
            write_all(file, bytes(-offset & 7), offset)
            sync_file(file)

    def _write_head(self) -> None:
        """Writes both slots, from the valid slot or from the segments."""
        report = self._planned.before
        state = examine_head(self._filesystem, self._directory).state
        if HEAD_NAME in self._filesystem.listing(self._directory):
            self._keep(HEAD_NAME, 0)
        if state is None:
            assert report.end is not None
            assert report.log_id is not None
            log_id = UUID(hex=report.log_id)
            state = HeadState(
                log_id, 1, report.epoch, report.version, *report.end, report.first, random=report.random
            )
        else:
            state = state._replace(counter=state.counter + 1)
        with contextlib.closing(Head.create(self._filesystem, self._directory, state)) as head:
            head.write(state.epoch, state.durable, state.segment, state.offset, flags=state.flags & CUT)

    def _cut(self, segment: int, offset: int) -> None:
        report = self._planned.before
        self._keep(segment_name(segment), offset)
        for number in self._numbers:
            if number > segment:
                self._link(segment_name(number))
        sync_names(self._filesystem, self._directory)
        self._part(segment)
        with self._open_head() as head:
            version, state = report.version, head.state
            visible = None if state.flags & DEFERRED and state.visible >= version else KEEP
            head.write(
                report.epoch, version, segment, offset, flags=CUT, visible=visible, random=report.random
            )
            truncate(self._filesystem, self._directory, segment, offset, self._numbers)
            tail = Tail.create(self._filesystem, self._directory)
            tail.clear()  # its content is given up, and no opening may report it as missing
            tail.close()
            head.write(report.epoch, version, segment, offset)

    def _drop(self) -> None:
        """Makes the log begin behind its damage.

        It does the same as retention, for another reason and with a copy: it links the segments to drop under second names, writes
        the oldest segment to keep into both slots of HEAD, and then removes the segments, the oldest first. After a crash in between
        the next opening removes the rest.
        """
        beginning = self._planned.beginning
        assert beginning is not None
        for number in beginning.numbers:
            self._link(segment_name(number))
        sync_names(self._filesystem, self._directory)
        with self._open_head() as head:
            state = head.state
            # Versions withheld from an earlier version on stay withheld from the new beginning on.
            behind = state.flags & DEFERRED and state.visible < beginning.version - 1
            visible = beginning.version - 1 if behind else KEEP
            place = state.epoch, state.durable, state.segment, state.offset
            for _ in range(2):
                head.write(*place, oldest=beginning.first, flags=state.flags & CUT, visible=visible)
        for number in beginning.numbers:
            remove_segment(self._filesystem, self._directory, number)
        sync_names(self._filesystem, self._directory)

    def _index(self, number: int) -> None:
        left = inspect_segment(self._filesystem, self._directory, number)
        report = self._planned.before
        data = left.sparse.pack(UUID(hex=report.log_id), number, left.trailer)
        write_index(self._filesystem, self._directory, number, data)

    # --- kept files ----------------------------------------------------------------------------------------------------

    def _free_name(self, name: str) -> str:
        names = self._filesystem.listing(self._directory)
        tries = (f"{name}.broken" if number == 1 else f"{name}.{number}.broken" for number in count(1))
        return next(one for one in tries if one not in names)

    def _keep(self, name: str, start: int) -> None:
        """Copies the content of a file from an offset on, durably; does nothing if that is only zeros."""
        with self._open(name, "read") as source:
            if first_nonzero(source, start, source.size()) is None:
                return
            kept = self._free_name(name)
            _copy(self._filesystem, source, self._directory / kept, start)
        self._planned.kept.append(kept)

    def _link(self, name: str) -> None:
        """Links a second name that keeps the file when the first name is removed; copies where links are impossible."""
        kept = self._free_name(name)
        try:
            self._filesystem.link(self._directory / name, self._directory / kept)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            self._keep(name, 0)
            return
        self._planned.kept.append(kept)

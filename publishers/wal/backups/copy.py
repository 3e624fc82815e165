"""The writes of a backup or a restore, in a crash-safe order; see `publishers.wal.backups`."""

import contextlib
import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from publishers.errors import BackupRefused, LogBusy, WalCorrupted
from publishers.wal.backups.source import Overtaken, ShownVersion, look, open_ahead
from publishers.wal.backups.target import CopyComparison, CopyPlan
from publishers.wal.checks.report import Report
from publishers.wal.checks.verify import Progress, examine
from publishers.wal.disk.filesystem import (
    File,
    FileSystem,
    put_file,
    read_blocks,
    read_file,
    sync_file,
    sync_names,
    write_all,
)
from publishers.wal.files.directory import LOCK_NAME, PLACES_NAME, take_lock, tidy
from publishers.wal.files.head import CUT, Head, HeadState
from publishers.wal.files.mirrored_file import TWINS, MirroredFile
from publishers.wal.files.segment import index_name, segment_name, segment_number, write_index
from publishers.wal.recover.inspector import Restored, restore

__all__ = ["Copied", "copy_log"]

_ATTEMPTS: Final = 8
_UNLINKABLE: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
)
"""Errors that mean that a hard link is impossible: another file system, one without links, or too many links."""


class Copied(NamedTuple):
    """The result for one log.

    Attributes:
        source: Directory of the log.
        target: Directory of the copy.
        linked: Segments that this call has linked.
        copied: Segments that this call has copied.
        kept: Segments that the target already had.
        bytes: Bytes that were copied.
        since: The newest version that the target already had; 0 if none.
        report: The report of `verify` on the target.
    """

    source: Path
    target: Path
    linked: int
    copied: int
    kept: int
    bytes: int
    since: int
    report: Report


def copy_log(
    filesystem: FileSystem,
    source: Path,
    target: Path,
    *,
    links: bool,
    progress: Progress | None,
    places: Callable[[UUID], bytes | None],
) -> Copied:
    """Copies the visible part of a log, also while its writer runs.

    Args:
        filesystem: Holds both directories.
        source: Directory of the log.
        target: Directory of the copy, created if it is missing.
        links: Share closed segments by hard links where possible.
        progress: Called with the progress of the copying, and then of the examination.
        places: Returns the content of PLACES for the id of the log; empty for no such file, None to leave it as it is.

    Raises:
        BackupRefused: If the target holds something else, or retention deletes segments faster than they are copied.
        LogBusy: If the target is open for writing, or another backup writes into it.
        NotALog: If there is no log in the source.
        WalCorrupted: If the end of the visible part is damaged.
        OSError: From the file system.
    """
    for _ in range(_ATTEMPTS):
        shown = look(filesystem, source)
        try:
            # Before the lock, so that a target that does not fit stays unchanged.
            CopyComparison(filesystem, source, target, shown, links).plan()
            filesystem.make_directory(target)
            with _locked(filesystem, target):
                plan = CopyComparison(filesystem, source, target, shown, links).plan()
                work = _Copying(filesystem, source, target, plan, links, progress, places(shown.log_id))
                work.run()
                report = examine(filesystem, target, progress=progress)
            since = plan.head.durable if plan.head is not None else 0
            return Copied(source, target, work.linked, work.copied, plan.there, work.bytes, since, report)
        except Overtaken as error:
            if look(filesystem, source).first <= error.number:
                raise WalCorrupted(error.number, 0, "the segment is missing") from None
    raise BackupRefused(
        source,
        f"retention has deleted segments before they could be copied, {_ATTEMPTS} times",
        "raise retain_bytes or retain_age, or copy within one file system, which takes hard links",
    )


@contextlib.contextmanager
def _locked(filesystem: FileSystem, target: Path) -> Iterator[None]:
    """Holds the lock of the target, and removes LOCK at the end."""
    path = target / LOCK_NAME
    with contextlib.closing(take_lock(filesystem, target)) as lock:
        if not lock.is_at(path):  # another backup has just ended, and removed it
            raise LogBusy(target, None)
        try:
            yield
        finally:
            filesystem.unlink(path)


@dataclass
class _Copying:
    """One run under the lock of the target.

    Attributes:
        linked: Segments that were linked.
        copied: Segments that were copied.
        bytes: Bytes that were copied.
    """

    _filesystem: FileSystem
    _source: Path
    _target: Path
    _plan: CopyPlan
    _links: bool
    _progress: Progress | None
    _places: bytes | None
    linked: int = 0
    copied: int = 0
    bytes: int = 0
    _end: Restored | None = None

    def run(self) -> None:
        """Completes what an interrupted run has left, and writes the rest, HEAD last."""
        filesystem, target, plan = self._filesystem, self._target, self._plan
        tidy(filesystem, target)
        head = plan.head
        if head is not None and plan.wanted and plan.wanted[-1] > head.segment and not head.flags & CUT:
            # New segments belong to the backup only with the next HEAD. An opening for writing appends to the last segment,
            # which may be a link; CUT makes it remove the new segments first.
            self._put_head(head._replace(counter=1, flags=head.flags | CUT))
        self._put_segments()
        self._drop_others()  # only now: the last segment, which is never a link, exists
        for number in range(plan.first, plan.shown.segment):
            self._put_index(number)
        for name in TWINS:
            self._put_twin(name)
        self._put_places()
        sync_names(filesystem, target)
        if self._end is not None:
            self._put_head(_head_of(plan, self._end))

    def _drop_others(self) -> None:
        """Removes stale segments, and indexes without a closed segment."""
        first, last = self._plan.first, self._plan.shown.segment
        for name in self._filesystem.listing(self._target):
            number, index = segment_number(name), segment_number(name, "idx")
            if (number and not first <= number <= last) or (index and not first <= index < last):
                self._filesystem.unlink(self._target / name)

    def _put_head(self, state: HeadState) -> None:
        sync_names(self._filesystem, self._target)  # the segments that HEAD covers must be durable first
        Head.create(self._filesystem, self._target, state).close()

    # --- segments ----------------------------------------------------------------------------------------------------

    def _put_segments(self) -> None:
        """Writes the last segment first: an opening for writing in between appends to it, and not to a link."""
        wanted = self._plan.wanted
        order = [*wanted[-1:], *wanted[:-1]]
        with contextlib.closing(open_ahead(self._filesystem, self._source, order)) as ahead:
            for number, file in ahead:
                self._put_segment(number, file)
                if number == order[0]:
                    sync_names(self._filesystem, self._target)

    def _put_segment(self, number: int, file: File) -> None:
        plan, last = self._plan, number == self._plan.shown.segment
        name = segment_name(number)
        fresh = self._target / f"{name}.tmp"
        # CUT truncates the segment in which HEAD ends.
        private = last or (plan.head is not None and number == plan.head.segment)
        if not private and self._links and self._link(name, fresh):
            self.linked += 1
        else:
            size = plan.shown.end if last else file.size()
            self._copy(number, file, fresh, size)
            self.copied += 1
        self._filesystem.rename(fresh, self._target / name)

    def _link(self, name: str, fresh: Path) -> bool:
        try:
            self._filesystem.link(self._source / name, fresh)
        except FileNotFoundError:
            return False  # deleted by retention, but its file is open and can be copied
        except OSError as error:
            if error.errno not in _UNLINKABLE:
                raise
            return False
        return True

    def _copy(self, number: int, file: File, fresh: Path, size: int) -> None:
        end = 0
        with contextlib.closing(self._filesystem.open(fresh, "create")) as copy:
            for at, data in read_blocks(file, 0, size):
                write_all(copy, data, at)
                end += len(data)
                self.bytes += len(data)
                self._report_progress(end, size)
            if end != size:
                raise WalCorrupted(number, end, f"the segment ends before byte {size}")
            if number == self._plan.shown.segment:
                self._end = _judged(copy, number, self._plan.shown)
            sync_file(copy)

    def _report_progress(self, at: int, size: int) -> None:
        """Reports progress also within a segment, since there may be only one."""
        if self._progress is not None:
            done = self.linked + self.copied
            self._progress(done * size + at, len(self._plan.wanted) * size)

    # --- indexes and schemas -----------------------------------------------------------------------------------------

    def _put_index(self, number: int) -> None:
        """Copies an index. The next opening writes an index that is missing or incomplete."""
        target = self._target
        if number not in self._plan.wanted and index_name(number) in self._filesystem.listing(target):
            return
        try:
            data = read_file(self._filesystem, self._source / index_name(number))
        except FileNotFoundError:
            return
        write_index(self._filesystem, target, number, data)

    def _put_places(self) -> None:
        path = self._target / PLACES_NAME
        there = PLACES_NAME in self._filesystem.listing(self._target)
        if self._places:
            if not there or read_file(self._filesystem, path) != self._places:
                put_file(self._filesystem, path, self._places)
        elif there and self._places is not None:
            self._filesystem.unlink(path)

    def _put_twin(self, name: str) -> None:
        """Copies a mirrored file, after the segments: an opening ignores its entries for later versions."""
        content = MirroredFile(self._filesystem, self._source, name).read()
        if not content.exists:
            return
        if content.text is None:
            why = f"{name} and its copy are damaged; {name} of an older backup may be whole"
            raise WalCorrupted(0, 0, why)
        mirrored = MirroredFile(self._filesystem, self._target, name)
        there = mirrored.read()
        if not there.exists or not there.even or there.text != content.text:
            mirrored.write(content.text)


def _judged(copy: File, number: int, shown: ShownVersion) -> Restored:
    """Checks that the copy of the last segment ends exactly with the newest visible version."""
    end = restore(copy, number, shown.end)
    if (end.end, end.chain.version) != (shown.end, shown.version):
        why = end.why or f"version {end.chain.version} ends here"
        why += f", but visible version {shown.version} ends at byte {shown.end}"
        raise WalCorrupted(number, end.bad, why)
    return end


def _head_of(plan: CopyPlan, end: Restored) -> HeadState:
    """Returns a HEAD that covers the copied data, with the epoch that wrote their end."""
    shown, epochs = plan.shown, end.tables.epochs
    epoch, random = (epochs[-1].epoch, epochs[-1].random) if epochs else (0, 0)
    return HeadState(
        shown.log_id, 1, epoch, shown.version, shown.segment, shown.end, plan.first, random=random
    )

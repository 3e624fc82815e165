"""The writes of a backup, and of a restore, in the order in which they are safe; see `publishers.wal.backups`."""

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from publishers.errors import BackupRefused, LogBusy, WalCorrupted
from publishers.wal.backups.source import Overtaken, ShownVersion, look, open_ahead
from publishers.wal.backups.target import CopyComparison, CopyPlan
from publishers.wal.checks.report import Report
from publishers.wal.checks.verify import Progress, examine
from publishers.wal.disk.filesystem import (
    File,
    FileSystem,
    read_blocks,
    read_file,
    sync_file,
    sync_names,
    write_all,
)
from publishers.wal.files.directory import LOCK_NAME, take_lock, tidy
from publishers.wal.files.head import CUT, Head, HeadState
from publishers.wal.files.mirrored_file import TWINS, MirroredFile
from publishers.wal.files.segment import index_name, segment_name, segment_number, write_index
from publishers.wal.recover.inspector import Restored, restore

__all__ = ["Copied", "copy_log"]

_ATTEMPTS: Final = 8
_UNLINKABLE: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
)
"""Errors of a link that mean that there is none to be had: another file system, or one without links, or too many."""


class Copied(NamedTuple):
    """What was done for one log.

    Attributes:
        source: Directory that was copied.
        target: Directory that it is in now.
        linked: Segments that are shared with the source by hard links since this call.
        copied: Segments that were copied by this call.
        kept: Segments that were there before.
        bytes: Bytes that were copied.
        since: The newest version that was there before; 0 if none was.
        report: What `verify` says of the target.
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
    filesystem: FileSystem, source: Path, target: Path, *, links: bool, progress: Progress | None
) -> Copied:
    """Makes a directory hold what a log shows; also beside its writer.

    Args:
        filesystem: Where both are.
        source: Directory of the log.
        target: Directory of the copy, made where it is missing.
        links: Share closed segments by hard links where that is possible.
        progress: Told how far the copying has got, and then how far the examination.

    Raises:
        BackupRefused: If the target holds something else, or retention deletes faster than can be copied.
        LogBusy: If the target is open for writing, or another backup writes into it.
        NotALog: If there is no log in the source.
        WalCorrupted: If the end of what is shown is damaged.
        OSError: From the file system.
    """
    for _ in range(_ATTEMPTS):
        shown = look(filesystem, source)
        try:
            # Before the lock: nothing is changed in a directory that does not fit.
            CopyComparison(filesystem, source, target, shown, links).plan()
            filesystem.make_directory(target)
            with _locked(filesystem, target):
                plan = CopyComparison(filesystem, source, target, shown, links).plan()
                work = _Copying(filesystem, source, target, plan, links, progress)
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
        "keep more (retain_bytes, retain_age), or make the copy on the same file system, where it takes hard links",
    )


@contextlib.contextmanager
def _locked(filesystem: FileSystem, target: Path) -> Iterator[None]:
    """The lock of the target, which is there only while it is being written."""
    path = target / LOCK_NAME
    with contextlib.closing(take_lock(filesystem, target)) as lock:
        if not lock.is_at(path):  # another one has just ended, and has removed it
            raise LogBusy(target, None)
        try:
            yield
        finally:
            filesystem.unlink(path)


@dataclass
class _Copying:
    """One run, with the lock of the target.

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
    linked: int = 0
    copied: int = 0
    bytes: int = 0
    _end: Restored | None = None

    def run(self) -> None:
        """Everything from what a run before has left up to HEAD."""
        filesystem, target, plan = self._filesystem, self._target, self._plan
        tidy(filesystem, target)
        head = plan.head
        if head is not None and plan.wanted and plan.wanted[-1] > head.segment and not head.flags & CUT:
            # What is put behind the end of it is part of the backup only with the next HEAD. An opening for writing would
            # go on in the last segment that it finds, which may be a link; before a cut it removes such a name first.
            self._put_head(head._replace(counter=1, flags=head.flags | CUT))
        self._put_segments()
        self._drop_others()  # not before the last segment is there, which is no link
        for number in range(plan.first, plan.shown.segment):
            self._put_index(number)
        for name in TWINS:
            self._put_twin(name)
        sync_names(filesystem, target)
        if self._end is not None:
            self._put_head(_head_of(plan, self._end))

    def _drop_others(self) -> None:
        """Removes segments that are stale, and indexes without a closed segment."""
        first, last = self._plan.first, self._plan.shown.segment
        for name in self._filesystem.listing(self._target):
            number, index = segment_number(name), segment_number(name, "idx")
            if (number and not first <= number <= last) or (index and not first <= index < last):
                self._filesystem.unlink(self._target / name)

    def _put_head(self, state: HeadState) -> None:
        sync_names(self._filesystem, self._target)  # what it vouches for has its names
        Head.create(self._filesystem, self._target, state).close()

    # --- segments ----------------------------------------------------------------------------------------------------

    def _put_segments(self) -> None:
        """The last one first: whoever opened the target for writing in between would write to that, and to no link."""
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
        # A cut of the target would be made in the segment that HEAD ends in.
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
            return False  # retention was faster; it is open, and can be copied
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
                self._tell(end, size)
            if end != size:
                raise WalCorrupted(number, end, f"the segment ends before byte {size}")
            if number == self._plan.shown.segment:
                self._end = _judged(copy, number, self._plan.shown)
            sync_file(copy)

    def _tell(self, at: int, size: int) -> None:
        """Parts of a segment count as well: there may be only one."""
        if self._progress is not None:
            done = self.linked + self.copied
            self._progress(done * size + at, len(self._plan.wanted) * size)

    # --- what lies beside them ---------------------------------------------------------------------------------------

    def _put_index(self, number: int) -> None:
        """An index is small, and derived: one that is missing, or being written, is made by the next opening."""
        target = self._target
        if number not in self._plan.wanted and index_name(number) in self._filesystem.listing(target):
            return
        try:
            data = read_file(self._filesystem, self._source / index_name(number))
        except FileNotFoundError:
            return
        write_index(self._filesystem, target, number, data)

    def _put_twin(self, name: str) -> None:
        """What it tells of later versions than those that are here, an opening leaves out. So it is read after them."""
        told = MirroredFile(self._filesystem, self._source, name).read()
        if not told.exists:
            return
        if told.text is None:
            why = f"{name} and its copy are damaged; {name} of an older backup may be whole"
            raise WalCorrupted(0, 0, why)
        mirrored = MirroredFile(self._filesystem, self._target, name)
        there = mirrored.read()
        if not there.exists or not there.even or there.text != told.text:
            mirrored.write(told.text)


def _judged(copy: File, number: int, shown: ShownVersion) -> Restored:
    """What the copy of the last segment holds: exactly up to the newest visible version."""
    end = restore(copy, number, shown.end)
    if (end.end, end.chain.version) != (shown.end, shown.version):
        why = end.why or f"version {end.chain.version} ends here"
        why += f", but version {shown.version} is shown up to byte {shown.end}"
        raise WalCorrupted(number, end.bad, why)
    return end


def _head_of(plan: CopyPlan, end: Restored) -> HeadState:
    """Vouches for what was copied, in the epoch that wrote the end of it."""
    shown, epochs = plan.shown, end.tables.epochs
    epoch, random = (epochs[-1].epoch, epochs[-1].random) if epochs else (0, 0)
    return HeadState(
        shown.log_id, 1, epoch, shown.version, shown.segment, shown.end, plan.first, random=random
    )

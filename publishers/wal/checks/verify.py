"""Examines every byte of a log, without a write and without a lock that would make another process wait.

Recovery decides from the last segment and HEAD. This examination uses everything: all segments, the indexes, the
zeros between them, both slots of HEAD, and TAIL, which within one boot records what was visible when the writer died.

If the log has a writer, only the visible part, according to TAIL, is examined. If the writer interferes (retention deletes a
segment, the log is closed or opened), the examination starts again, so that this is not taken for damage.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from publishers.errors import LogUnreadable, NotALog
from publishers.wal.checks.heads import HeadPage, examine_head
from publishers.wal.checks.report import Finding, Report, Verdict
from publishers.wal.checks.segments import Segments
from publishers.wal.disk.filesystem import FileSystem, RealFileSystem
from publishers.wal.files.directory import check_names, writer_of
from publishers.wal.files.mirrored_file import TWINS, MirroredFile
from publishers.wal.files.segment import segment_numbers
from publishers.wal.files.tail_page import TAIL_NAME, Tail, TailState

__all__ = ["Progress", "examine", "verify"]

Progress = Callable[[int, int], None]
"""Called now and then with the number of bytes done, and of bytes in total."""

_TRIES: Final = 5


def verify(
    directory: Path | str, *, filesystem: FileSystem | None = None, progress: Progress | None = None
) -> Report:
    """Examines a log. It writes nothing, and reports damage instead of raising.

    Args:
        directory: Directory of the log.
        filesystem: The real one if None.
        progress: Called with the progress.
    """
    filesystem = filesystem or RealFileSystem()
    path = Path(directory)
    report = Report(path)
    for _ in range(_TRIES):
        before = examine_head(filesystem, path)
        live = is_live(filesystem, path)
        report = examine(filesystem, path, live=live, progress=progress)
        if report.overtaken:
            continue
        if not report.findings or not _moved(filesystem, path, before, live=live):
            break
    return report


def _moved(filesystem: FileSystem, path: Path, before: HeadPage, *, live: bool) -> bool:
    """Whether the log was opened or closed, or began another epoch, during the examination."""
    after = examine_head(filesystem, path)
    if before.state is None or after.state is None:
        return before.state is not after.state
    same = (before.state.epoch, before.state.oldest) == (after.state.epoch, after.state.oldest)
    return not same or is_live(filesystem, path) != live or (not live and before.state != after.state)


def is_live(filesystem: FileSystem, path: Path) -> bool:
    """Whether the log is open for writing, or that is unknown."""
    return writer_of(filesystem, path).alive is not False


def examine(
    filesystem: FileSystem, path: Path, *, live: bool = False, progress: Progress | None = None
) -> Report:
    """Examines a log once.

    Args:
        filesystem: The filesystem of the log.
        path: Directory of the log.
        live: Whether another writer than the caller has it open.
        progress: Called with the progress.
    """
    report = Report(path, live=live)
    # Before the names are listed, because the segments that TAIL and HEAD name must be among them.
    tail = _tail(filesystem, path, report)
    head = examine_head(filesystem, path)
    try:
        names = filesystem.listing(path)
        check_names(path, names)
    except (OSError, NotALog) as error:
        kind = (
            "not-a-log"
            if isinstance(error, (NotALog, FileNotFoundError, NotADirectoryError))
            else "unreadable"
        )
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        report.findings.append(Finding(kind, Verdict.UNREADABLE, 0, 0, path.name or str(path), why))
        return report
    # Versions that a living owner truncates were never visible, and it will finish.
    report.findings += [one for one in head.findings if not (live and one.kind == "cut")]
    if tail is not None:
        report.met(tail.epoch, tail.random)
        report.seen = tail.visible
    if head.state is not None:
        report.log_id = head.state.log_id.hex
        report.met(head.state.epoch, head.state.random)
        report.seen = max(report.seen, head.state.durable)
    if not segment_numbers(names):
        _without_segments(report, head, names)
        return report
    for name in TWINS:
        _examine_twin(filesystem, report, name)
    Segments(filesystem, report, head.state, tail, names, progress or _silent).run()
    return report


def _examine_twin(filesystem: FileSystem, report: Report, name: str) -> None:
    try:
        found = MirroredFile(filesystem, report.path, name).read()
    except OSError as error:
        why = f"it cannot be read ({error.strerror or error})"
        report.findings.append(Finding("unreadable", Verdict.UNREADABLE, 0, 0, name, why))
        return
    for damaged in found.damaged:
        if found.text is not None:
            why = (
                "it is incomplete; the other copy is used, and the next opening for writing rewrites this one"
            )
            report.findings.append(Finding("copies", Verdict.TORN, 0, 0, damaged, why))
        else:
            why = "it is incomplete, and there is no other copy"
            report.findings.append(Finding("copies", Verdict.CORRUPT, 0, 0, damaged, why))


def _without_segments(report: Report, head: HeadPage, names: list[str]) -> None:
    state = head.state
    name = report.path.name or str(report.path)
    if state is not None and (state.segment, state.offset, state.durable) == (1, 0, 0):
        why = "its creation was never finished"
        report.findings.append(Finding("unfinished", Verdict.TORN, 1, 0, name, why))
    elif state is not None:
        report.broken = Verdict.CORRUPT
        why = f"HEAD names segment {state.segment}, but there are no segments"
        report.findings.append(Finding("segment-missing", Verdict.CORRUPT, state.segment, 0, name, why))
    elif "HEAD" not in names:
        report.findings[:] = [
            Finding("not-a-log", Verdict.UNREADABLE, 0, 0, name, "the directory holds no log")
        ]


def _tail(filesystem: FileSystem, path: Path, report: Report) -> TailState | None:
    try:
        tail = Tail.open(filesystem, path)
    except LogUnreadable as error:
        why = f"it cannot be read ({error.why})"
        report.findings.append(Finding("unreadable", Verdict.UNREADABLE, 0, 0, TAIL_NAME, why))
        return None
    if tail is None:
        return None
    with contextlib.closing(tail):
        return tail.read()


def _silent(_done: int, _total: int) -> None:
    """Ignores the progress."""

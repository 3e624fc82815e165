"""Which damaged segments of a log a backup has intact.

A segment of the backup is taken if the log continues with it: it is examined in the place of the damaged one, by the same rules
as any segment. So it is of the same log and history, begins with the same version, continues the chain of the segment before it,
is continued by the segment behind it, and lacks nothing that was acknowledged. No other rule is needed, and none is weaker.
"""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast

from publishers.model.position import epoch_text
from publishers.wal.checks.heads import examine_head
from publishers.wal.checks.report import Finding, Report, Verdict
from publishers.wal.checks.verify import Progress, examine
from publishers.wal.disk.filesystem import File, FileSystem, Mode, read_blocks
from publishers.wal.files.segment import segment_name, segment_number, segment_numbers

__all__ = ["damaged_segments", "unfit"]

_CONSEQUENCES: Final = frozenset({"segment-chain", "chain"})
_ABSENT: Final = "the backup does not have it"


def damaged_segments(
    filesystem: FileSystem, report: Report, backup: Path
) -> tuple[list[int], dict[int, Path]]:
    """Returns the numbers of the segments of a log that are damaged or missing, and the files of those that a backup has.

    A segment behind a damaged one does not continue it, and is no worse for that: one that the backup has in the same way is left out.

    Raises:
        OSError: If a directory or a file cannot be read.
    """
    there = segment_numbers(filesystem.listing(report.path))
    kinds: dict[int, set[str]] = {}
    for one in report.findings:
        if one.verdict is Verdict.CORRUPT and segment_number(one.name) is not None:
            kinds.setdefault(one.segment, set()).add(one.kind)
    missing = [one.segment for one in report.findings if one.kind == "segment-missing"]
    if missing:  # a finding names one of them
        state = examine_head(filesystem, report.path).state
        oldest, newest = (min(missing), 0) if state is None else (state.oldest, state.segment)
        newest = max(newest, *there, *missing)
        kinds |= {number: {"segment-missing"} for number in range(oldest, newest + 1) if number not in there}
    if not kinds:
        return [], {}
    in_backup = set(segment_numbers(filesystem.listing(backup)))
    files = {number: backup / segment_name(number) for number in sorted(kinds) if number in in_backup}
    same = {
        number
        for number, file in files.items()
        if kinds[number] <= _CONSEQUENCES and _begins_with(filesystem, report.path / file.name, file)
    }
    if same == set(kinds):  # the backup, which may share the files, has the same damage
        same.clear()
    return sorted(set(kinds) - same), {number: file for number, file in files.items() if number not in same}


def _begins_with(filesystem: FileSystem, path: Path, beginning: Path) -> bool:
    with closing(filesystem.open(path, "read")) as file, closing(filesystem.open(beginning, "read")) as other:
        return all(file.pread(len(data), at) == data for at, data in read_blocks(other, 0, other.size()))


def unfit(
    filesystem: FileSystem,
    report: Report,
    wanted: list[int],
    files: Mapping[int, Path],
    progress: Progress | None,
) -> dict[int, str]:
    """Returns the wanted segments that cannot be taken, each with the reason in words.

    Args:
        filesystem: The filesystem of the log and the backup.
        report: The report of the log.
        wanted: The damaged segments.
        files: The files that are to replace them.
        progress: Called with the progress of each examination.
    """
    why = {number: _ABSENT for number in wanted if number not in files}
    left = dict(files)
    while left:
        seen_as = _Replaced(filesystem, report.path, left)
        trial = examine(cast(FileSystem, seen_as), report.path, live=report.live, progress=progress)
        wrong = _wrong(trial, left)
        end = None if wrong else _wrong_end(filesystem, report, trial, newest=max(left))
        if end is not None:
            wrong = {max(left): end}
        if not wrong:
            break
        why |= wrong
        left = {number: path for number, path in left.items() if number not in wrong}
    return why


def _wrong(trial: Report, files: Mapping[int, Path]) -> dict[int, str]:
    found: dict[int, str] = {}
    for one in trial.findings:
        if one.verdict >= Verdict.CORRUPT and segment_number(one.name) is not None:
            number = _blamed(one, files)
            if number is not None:
                found.setdefault(
                    number, one.why if number == one.segment else f"segment {one.segment}: {one.why}"
                )
    return found


def _wrong_end(filesystem: FileSystem, report: Report, trial: Report, newest: int) -> str | None:
    """Returns why the newest segment that is replaced cannot be the end of the log; None if it can be, or another segment is.

    No header behind it tells what it ended with. HEAD does, with the epoch, in which two histories of a log differ.
    """
    if newest < max(segment_numbers(filesystem.listing(report.path)), default=0):
        return None
    state = examine_head(filesystem, report.path).state
    if state is None:
        return "it is the last one, and HEAD is damaged too, which tells where the log ended"
    if trial.seen < report.seen:
        return f"the backup ends with version {trial.seen}, and the log had {report.seen}"
    if (trial.epoch, trial.random) != (state.epoch, state.random):
        theirs, ours = epoch_text(trial.epoch, trial.random), epoch_text(state.epoch, state.random)
        return f"the backup is of epoch {theirs}, and the log of {ours}: these are two histories of the log"
    return None


def _blamed(finding: Finding, files: Mapping[int, Path]) -> int | None:
    """Returns which replaced segment a finding is about: of two that do not fit, the later one if it is replaced too."""
    if finding.segment in files:
        return finding.segment
    before = finding.segment - 1
    return before if finding.kind == "segment-chain" and before in files else None


class _Replaced:
    """The filesystem of a log, with other files in the place of some segments."""

    def __init__(self, filesystem: FileSystem, directory: Path, files: Mapping[int, Path]) -> None:
        self._filesystem, self._directory = filesystem, directory
        self._files = {segment_name(number): path for number, path in files.items()}

    def open(self, path: Path, mode: Mode) -> File:
        replaced = self._files.get(path.name) if path.parent == self._directory else None
        return self._filesystem.open(replaced or path, mode)

    def listing(self, path: Path) -> list[str]:
        names = self._filesystem.listing(path)
        return sorted({*names, *self._files}) if path == self._directory else names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

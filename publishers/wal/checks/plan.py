"""The plan of a repair, or why it refuses: made from a report, without writing."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from publishers.wal.checks.heads import examine_head
from publishers.wal.checks.report import Report, Verdict
from publishers.wal.disk.filesystem import FileSystem
from publishers.wal.files.head import CUT, HEAD_NAME, HeadState
from publishers.wal.files.segment import read_header, segment_number, segment_numbers
from publishers.wal.read.catalog import Location

__all__ = ["Repair", "RepairStep", "make_plan"]

_HEAD_KINDS: Final = frozenset({"head", "head-missing", "head-slot"})
_MISSING: Final = frozenset({"segment-missing", "lost-end"})
_ELSEWHERE: Final = frozenset({"padding", "leftover"})
_JOINT: Final = "segment-chain"
_REOPENED: Final = frozenset({"cut", "leftover", "unfinished", "head-slot"})


class Beginning(NamedTuple):
    """The segments to drop at the beginning so that an intact log is left.

    Attributes:
        numbers: The existing segments to drop.
        first: Number of the oldest segment that stays.
        version: Its first version.
    """

    numbers: tuple[int, ...]
    first: int
    version: int


class RepairStep(NamedTuple):
    """One step of a repair.

    Attributes:
        action: ``copies``, ``cut``, ``drop``, ``head``, ``index``, ``padding``, ``reopen`` or ``take``.
        segment: The segment, 0 if none is concerned.
        offset: The offset.
        what: The step in words.
    """

    action: str
    segment: int
    offset: int
    what: str


@dataclass(slots=True)
class Repair:
    """A repair, planned or done.

    Attributes:
        before: The report before the repair.
        steps: The steps.
        refused: Why nothing can be done; None if something can, or nothing has to be.
        done: Whether it was done.
        kept: Files that hold the removed data.
        after: The report after the repair; None if nothing was done.
        beginning: The beginning to drop, if that was requested and is needed.
        choices: The alternatives in words, with the loss of each; if files are missing, or belong to two histories.
        untaken: The damaged segments that the backup does not have as the log needs them, each with the reason.
    """

    before: Report
    steps: list[RepairStep] = field(default_factory=list)
    refused: str | None = None
    done: bool = False
    kept: list[str] = field(default_factory=list)
    after: Report | None = None
    beginning: Beginning | None = None
    choices: list[str] = field(default_factory=list)
    untaken: dict[int, str] = field(default_factory=dict)

    @property
    def lost(self) -> tuple[int, int] | None:
        """First and last version that are lost by truncating the log or dropping its beginning."""
        if self.beginning is not None:
            return self.before.oldest or 1, self.beginning.version - 1
        return self.before.lost if any(step.action in ("cut", "reopen") for step in self.steps) else None

    def as_json(self) -> dict[str, Any]:
        """The repair in the form that the command prints."""
        return {
            "path": str(self.before.path),
            "steps": [step._asdict() for step in self.steps],
            "lost": list(self.lost) if self.lost else None,
            "refused": self.refused,
            "choices": self.choices,
            "untaken": {str(number): why for number, why in self.untaken.items()},
            "done": self.done,
            "kept": self.kept,
            "before": self.before.as_json(),
            "after": self.after.as_json() if self.after else None,
        }


def make_plan(report: Report, dropping: FileSystem | None, *, head: bool, index: bool) -> Repair:
    """Plans the repair of a log.

    Args:
        report: The report.
        dropping: The filesystem of the log, if its damaged beginning may be dropped; else None.
        head: Whether to repair HEAD only.
        index: Whether to repair indexes only.
    """
    planned = Repair(report)
    if report.verdict is Verdict.UNREADABLE:
        first = next(one for one in report.findings if one.verdict is Verdict.UNREADABLE)
        planned.refused = f"{first.name}: {first.why}"
        return planned
    if dropping is not None and report.broken is Verdict.CORRUPT:
        return _plan_drop(planned, dropping)
    if any(one.kind == "history" for one in report.findings):
        return _plan_history(planned)
    everything = not (head or index)
    if everything or head:
        _plan_head(planned)
    if planned.refused is None and everything:
        _plan_log(planned)
    if planned.refused is None and (everything or index):
        _plan_indexes(planned, missing=index)
    if planned.refused is not None:
        planned.steps.clear()
    elif any(one.kind in _MISSING and one.verdict is Verdict.CORRUPT for one in report.findings):
        _name_choices(planned)
    return planned


def _plan_history(planned: Repair) -> Repair:
    planned.refused = "HEAD and the segments belong to two histories of the log; you have to choose one"
    planned.choices = [
        "restore HEAD and every segment from the same copy: what the other history wrote since they diverged is lost",
        "remove HEAD and repair again: HEAD is rebuilt from the segments, which lose nothing; withheld versions become visible",
    ]
    return planned


def _name_choices(planned: Repair) -> None:
    report = planned.before
    lost = (
        "no version is known to be lost"
        if report.lost is None
        else "versions {} to {} are lost".format(*report.lost)
    )
    planned.choices = [
        "restore HEAD and the missing and later segments from the copy that the others came from, or --from BACKUP: nothing is lost",
        f"with --write, continue after version {report.version}: {lost}, and subscribers beyond it end with PositionForked",
    ]


def _plan_drop(planned: Repair, filesystem: FileSystem) -> Repair:
    report = planned.before
    state = examine_head(filesystem, report.path).state
    if state is None:
        planned.refused = "HEAD is damaged too, so the acknowledged end of the remaining log is unknown"
        return planned
    found = _find_beginning(filesystem, report, state)
    if isinstance(found, str):
        planned.refused = found
        return planned
    planned.beginning = found
    for one in report.findings:
        if one.kind == "padding" and one.segment >= found.first:
            planned.steps.append(RepairStep("padding", one.segment, one.offset, "zeros after a payload"))
    what = (
        f"the log begins with version {found.version}, in segment {found.first}; earlier segments are deleted"
    )
    planned.steps.append(RepairStep("drop", found.first, 0, what))
    return planned


def _find_beginning(filesystem: FileSystem, report: Report, state: HeadState) -> Beginning | str:
    """Returns the segments to drop, or why that is not possible.

    Args:
        filesystem: The filesystem of the log.
        report: The report.
        state: State of HEAD. With CUT the log ends in the segment to truncate: later segments are going to be
            removed, so they do not count as left.

    Raises:
        OSError: If the directory or a header cannot be read.
    """
    numbers = [
        number for number in segment_numbers(filesystem.listing(report.path)) if number >= report.first
    ]
    if state.flags & CUT:
        numbers = [number for number in numbers if number <= state.segment]
    first = report.first
    for one in report.findings:
        if segment_number(one.name) is None or one.kind in _ELSEWHERE or one.verdict < Verdict.CORRUPT:
            continue
        # A header that does not continue the previous segment is a fault only if that segment stays.
        first = max(first, one.segment + (one.kind != _JOINT))
    last = max(numbers, default=0)
    while first <= last and first not in numbers:
        first += 1
    if first > last:
        return "the last segment is damaged too, so nothing would be left; without --drop-oldest the log is truncated there"
    version = read_header(filesystem, report.path, first).first_version
    return Beginning(tuple(number for number in numbers if number < first), first, version)


def _plan_head(planned: Repair) -> None:
    report = planned.before
    bad = [
        one
        for one in report.findings
        if one.name == HEAD_NAME and one.verdict is Verdict.CORRUPT and one.kind in (*_HEAD_KINDS, "padding")
    ]
    if not bad:
        return
    if report.end is None:
        planned.refused = "no frame before the damage is intact, so HEAD cannot be rebuilt"
        return
    what = f"HEAD is rewritten for version {report.version}, at {report.end.offset} in segment {report.end.segment}"
    planned.steps.append(RepairStep("head", 0, bad[0].offset, what))


def _plan_log(planned: Repair) -> None:
    report = planned.before
    # Data that is truncated is kept aside unchanged.
    goes = report.end if report.broken is Verdict.CORRUPT else None
    for one in report.findings:
        if one.kind == "copies" and one.verdict is Verdict.TORN:
            planned.steps.append(
                RepairStep("copies", 0, one.offset, f"{one.name} is rewritten from its copy")
            )
        if one.kind == "padding" and one.segment and (goes is None or (one.segment, one.offset) < goes):
            planned.steps.append(RepairStep("padding", one.segment, one.offset, "zeros after a payload"))
    if report.broken is Verdict.CORRUPT:
        if report.end is None:
            planned.refused = (
                "no frame before the damage is intact: 'penstock dump --salvage' prints what can be read; "
                "restore the log from a copy, or create a new log"
            )
            return
        segment, offset = report.end
        what = f"everything from byte {offset} of segment {segment} on is truncated"
        planned.steps.append(RepairStep("cut", segment, offset, what))
    elif report.broken or any(one.kind in _REOPENED and one.verdict for one in report.findings):
        where = report.end or Location(0, 0)
        what = "the log is opened and closed, which cleans up after a crash"
        planned.steps.append(RepairStep("reopen", *where, what))


def _plan_indexes(planned: Repair, *, missing: bool) -> None:
    report = planned.before
    end = report.end.segment if report.end else 0
    for one in report.findings:
        wanted = one.kind == "index" or (missing and one.kind == "index-missing")
        if wanted and one.segment < end:
            planned.steps.append(RepairStep("index", one.segment, 0, f"{one.name} is rebuilt"))

"""``penstock backup``: copies logs while their writers run."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from publishers.backups import BackupReport, backup
from publishers.wal.backups import Copied
from transports.cli.arguments import ArgumentParser
from transports.cli.output import show
from transports.cli.progress import progress_bar
from transports.cli.source import check_directory
from transports.cli.verify import verdict_of

__all__ = ["CODES", "add_arguments", "report", "run"]

CODES: Final = (
    "Exit codes: 0 done, and sound; 1 refused or failed, the line on standard error says why; 2 what was copied is damaged, "
    "or wrong arguments; 3 unreadable."
)


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Copies what a log, or each log of a store, shows, also while it is being written, and verifies the copy. Run again, it "
        "adds what is new. Closed segments are shared by hard links where that is possible, which are no second copy of the bits."
    )
    parser.epilog = CODES
    parser.directory()
    parser.value("target", "TARGET", "empty or missing directory, or one with an earlier backup of the same")
    parser.flag("--copy", "copies only, no hard links")
    parser.json()


def run(chosen: argparse.Namespace) -> int:
    """Makes the backup and prints a summary."""
    check_directory(chosen.directory)
    check_directory(chosen.target)
    with progress_bar(f"backup {Path(chosen.directory).name}") as progress:
        done = backup(chosen.directory, chosen.target, copy=chosen.copy, progress=progress)
    return report(chosen, done)


def report(chosen: argparse.Namespace, done: BackupReport) -> int:
    """Prints the summary, and returns the verdict as the exit code."""
    show(chosen, done.as_json(), _lines(done))
    return int(done.verdict)


def _lines(done: BackupReport) -> Iterator[str]:
    if done.replaced is not None:
        yield f"{done.target} held something, which is in {done.replaced} now"
    lines = [_line(one) for one in done.logs]
    if len(lines) == 1:
        lines = [f"{lines[0]}; {done.seconds:.1f} s"]
    for line, one in zip(lines, done.logs, strict=True):
        yield line
        if one.report.verdict:
            yield from (f"  {finding}" for finding in one.report.findings)
    if len(lines) > 1:
        verdict = done.verdict.name.lower()
        yield f"{done.target}: {verdict}: {len(lines) - 1} logs and the system log; {done.seconds:.1f} s"


def _line(one: Copied) -> str:
    before = f", {one.since} before" if one.since else ""
    return (
        f"{one.target}: {verdict_of(one.report)}{before}; "
        f"{one.linked} segments linked, {one.copied} copied ({one.bytes} bytes), {one.kept} kept"
    )

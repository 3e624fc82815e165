"""``penstock backup`` and ``penstock restore``: copies of logs, made beside their writers, and back."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from publishers.backups import BackupReport, backup, restore
from publishers.wal.backups import Copied
from transports.cli.checks import progress_bar
from transports.cli.places import check_directory

__all__ = ["add_backup", "add_restore"]

_CODES: Final = (
    "Exit codes: 0 done, and sound; 1 refused or failed, the line on standard error says why; 2 what was copied is damaged, "
    "or wrong arguments; 3 unreadable."
)


def add_backup(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Copies what a log, or each log of a store, shows, also while it is being written, and verifies the copy. Run again, it "
        "adds what is new. Closed segments are shared by hard links where that is possible, which are no second copy of the bits."
    )
    parser.epilog = _CODES
    parser.add_argument("directory", metavar="DIR", help="directory of a log, or of a store of logs")
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="empty or missing directory, or one with an earlier backup of the same",
    )
    parser.add_argument("--copy", action="store_true", help="copies only, no hard links")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=_backup)


def add_restore(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Verifies a backup, copies it to where it can be opened for writing, and verifies the copy. Positions that clients have "
        "kept of what the backup does not hold are refused by name from the next opening for writing on."
    )
    parser.epilog = _CODES
    parser.add_argument("backup", metavar="BACKUP", help="directory of a backup")
    parser.add_argument("directory", metavar="DIR", help="empty or missing directory")
    parser.add_argument(
        "--replace",
        action="store_true",
        help="rename DIR if it is not empty; its new name is printed, and nothing in it is lost",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=_restore)


def _backup(chosen: argparse.Namespace) -> int:
    check_directory(chosen.directory)
    check_directory(chosen.target)
    with progress_bar(f"backup {Path(chosen.directory).name}") as progress:
        done = backup(chosen.directory, chosen.target, copy=chosen.copy, progress=progress)
    return _told(chosen, done)


def _restore(chosen: argparse.Namespace) -> int:
    check_directory(chosen.backup)
    check_directory(chosen.directory)
    with progress_bar(f"restore {Path(chosen.directory).name}") as progress:
        done = restore(chosen.backup, chosen.directory, replace=chosen.replace, progress=progress)
    return _told(chosen, done)


def _told(chosen: argparse.Namespace, done: BackupReport) -> int:
    if chosen.json:
        print(msgspec.json.encode(done.as_json()).decode())
    else:
        print("\n".join(_lines(done)))
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
    report = one.report
    versions = (
        f"versions {report.oldest} to {report.version}"
        if report.version >= report.oldest > 0
        else "no versions"
    )
    before = f", {one.since} before" if one.since else ""
    return (
        f"{one.target}: {report.verdict.name.lower()}: {versions}{before}; "
        f"{one.linked} segments linked, {one.copied} copied ({one.bytes} bytes), {one.kept} kept"
    )

"""``penstock verify``: verifies a log, or each log of a store."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from publishers.groups.inspection import examine_journals
from publishers.wal import RealFileSystem
from publishers.wal.checks import Progress, Report, Verdict, verify
from transports.cli.arguments import ArgumentParser
from transports.cli.output import show
from transports.cli.progress import each_log

__all__ = ["add_arguments", "run", "said", "verdict_of", "verified"]


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = "Checks every byte of a log and writes nothing; beside a running writer up to the newest visible version."
    parser.epilog = "Exit codes: 0 sound, 1 torn by a crash (unsynced writes only), 2 corrupt, 3 unreadable."
    parser.directory()
    parser.json("one JSON document for each log, one per line")


def run(chosen: argparse.Namespace) -> int:
    """Verifies each log, and returns the worst verdict."""
    worst = Verdict.SOUND
    for report in verified(chosen.directory):
        worst = max(worst, report.verdict)
        show(chosen, report.as_json(), said(report))
    return int(worst)


def verified(directory: str) -> Iterator[Report]:
    """Yields the reports of the logs of a directory; each log is verified on demand."""
    return each_log(directory, "verify", _verify)


def _verify(path: Path, *, progress: Progress | None) -> Report:
    """Verifies a log with the journals of its slots and groups."""
    report = verify(path, progress=progress)
    if report.log_id is not None:
        report.findings += examine_journals(RealFileSystem(), path, UUID(hex=report.log_id))
    return report


def verdict_of(report: Report) -> str:
    """Returns the verdict and the range of versions."""
    there = report.version >= report.oldest > 0
    versions = f"versions {report.oldest} to {report.version}" if there else "no versions"
    return f"{report.verdict.name.lower()}: {versions}"


def said(report: Report) -> Iterator[str]:
    """Yields the lines of a report."""
    beside = ", beside its writer" if report.live else ""
    what = f"{report.segments} segment{'s' * (report.segments != 1)}, {report.frames} frames, {report.bytes} bytes{beside}"
    yield f"{report.path}: {verdict_of(report)}; {what}"
    for finding in report.findings:
        yield f"  {finding}"
    if report.lost:
        first, last = report.lost
        yield f"  beyond the damage: versions {first} to {last}"

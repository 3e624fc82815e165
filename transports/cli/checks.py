"""``penstock verify``: what a log, or each log of a store, is worth."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from publishers.store.directory import kind_of
from publishers.wal import RealFileSystem
from publishers.wal.checks import Progress, Report, Verdict, verify
from transports.cli.places import check_directory

__all__ = ["add_verify", "logs_in", "progress_bar", "said"]

_WIDTH: Final = 30


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Looks at every byte of a log and writes nothing; beside a running writer up to what it shows."
    )
    parser.epilog = "Exit codes: 0 sound, 1 torn by a crash (unsynced writes only), 2 corrupt, 3 unreadable."
    parser.add_argument("directory", metavar="DIR", help="directory of a log, or of a store of logs")
    parser.add_argument("--json", action="store_true", help="one JSON document for each log, one per line")
    parser.set_defaults(command=_verify)


def logs_in(directory: str) -> list[Path]:
    """The directories of the logs that are meant: the one given, or each of a store; hidden ones but for its own log left out."""
    check_directory(directory)
    path = Path(directory)
    filesystem = RealFileSystem()
    try:
        if kind_of(filesystem, path) != "store":
            return [path]
        names = filesystem.listing(path)
        return [path / name for name in names if _is_log(filesystem, path / name)]
    except OSError:
        return [path]


def _is_log(filesystem: RealFileSystem, path: Path) -> bool:
    try:
        return path.name == ".system" or kind_of(filesystem, path) == "log"
    except OSError:
        return path.is_dir()  # which will be told to be unreadable


def _verify(chosen: argparse.Namespace) -> int:
    worst = Verdict.SOUND
    for path in logs_in(chosen.directory):
        with progress_bar(f"verify {path.name}") as progress:
            report = verify(path, progress=progress)
        worst = max(worst, report.verdict)
        if chosen.json:
            print(msgspec.json.encode(report.as_json()).decode())
        else:
            print("\n".join(said(report)))
    return int(worst)


def said(report: Report) -> Iterator[str]:
    """A report in lines for people."""
    beside = ", beside its writer" if report.live else ""
    what = f"{report.segments} segments, {report.frames} frames, {report.bytes} bytes{beside}"
    versions = (
        f"versions {report.oldest} to {report.version}"
        if report.version >= report.oldest > 0
        else "no versions"
    )
    yield f"{report.path}: {report.verdict.name.lower()}: {versions}; {what}"
    for finding in report.findings:
        yield f"  {finding}"
    if report.lost:
        first, last = report.lost
        yield f"  beyond the damage: versions {first} to {last}"


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Progress | None]:
    """A bar on standard error, if that is a terminal; drawn by ``rich`` where it is installed."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console  # noqa: PLC0415 - it is optional
        from rich.progress import Progress as Rich  # noqa: PLC0415 - likewise
    except ImportError:
        yield _plain(title)
        print("\r" + " " * (len(title) + _WIDTH + 10) + "\r", end="", file=sys.stderr, flush=True)
        return
    bar: Any = Rich(console=Console(stderr=True), transient=True)
    with bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _plain(title: str) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        part = done / total if total else 1.0
        drawn = "#" * round(part * _WIDTH)
        print(f"\r{title} [{drawn:<{_WIDTH}}] {part:4.0%}", end="", file=sys.stderr, flush=True)

    return tell

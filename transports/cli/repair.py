"""``penstock repair``: prints a repair plan, and carries it out with ``--write``."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from publishers.errors import InvalidOption
from publishers.wal.checks import Progress, Repair, Verdict, repair
from transports.cli.arguments import ArgumentParser
from transports.cli.output import show
from transports.cli.progress import each_log
from transports.cli.verify import said

__all__ = ["add_arguments", "run"]

_REPAIRED: Final = 0
_PLANNED: Final = 1
_REFUSED: Final = 2
_UNREADABLE: Final = 3


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Prints the steps that repair a damaged log up to the damage; performs them with --write only. "
        "What is cut off is kept in files that end in .broken."
    )
    parser.epilog = (
        "Exit codes: 0 nothing to do, or done; 1 there is a plan; 2 nothing can be done; 3 unreadable."
    )
    parser.directory()
    parser.flag("--write", "carry the plan out")
    parser.flag("--head", "only rewrite a damaged HEAD")
    parser.flag("--index", "only rebuild damaged or missing indexes")
    parser.flag("--drop-oldest", "drop everything up to the last damage, and keep the intact part after it")
    parser.value(
        "--from",
        "BACKUP",
        "only put damaged and missing segments in place that this backup has intact; nothing is cut off",
        dest="source",
    )
    parser.json("one JSON document for each log, one per line")


def run(chosen: argparse.Namespace) -> int:
    """Prints a plan for each log, or carries it out; returns the worst code."""
    if chosen.drop_oldest and (chosen.head or chosen.index):
        raise InvalidOption("--drop-oldest", True, "given alone: --head and --index repair no segments")
    if chosen.source is not None and (chosen.drop_oldest or chosen.head or chosen.index):
        raise InvalidOption(
            "--from",
            chosen.source,
            "given without --head, --index and --drop-oldest, which are other repairs",
        )
    options = {name: getattr(chosen, name) for name in ("write", "head", "index", "drop_oldest")}

    def work(path: Path, progress: Progress | None) -> Repair:
        source = None if chosen.source is None else Path(chosen.source) / path.relative_to(chosen.directory)
        return repair(path, **options, source=source, progress=progress)

    worst = _REPAIRED
    for done in each_log(chosen.directory, "repair", work):
        worst = max(worst, _code(done))
        show(chosen, done.as_json(), _lines(done))
    return worst


def _code(done: Repair) -> int:
    if done.refused is not None:
        return _UNREADABLE if done.before.verdict is Verdict.UNREADABLE else _REFUSED
    taken = any(step.action == "take" for step in done.steps)
    left = taken and done.after is not None and done.after.verdict is Verdict.CORRUPT
    return _PLANNED if left or (done.steps and not done.done) else _REPAIRED


def _lines(done: Repair) -> Iterator[str]:
    yield from said(done.before)
    if done.refused is not None:
        yield f"  nothing can be done: {done.refused}"
        yield from _choices(done)
        return
    if not done.steps:
        yield "  there is nothing to do"
        return
    for step in done.steps:
        yield f"  {'done' if done.done else 'to do'}: {step.action}: {step.what}"
    for number, why in done.untaken.items():
        yield f"  segment {number} is not in the backup as the log needs it: {why}"
    if done.lost:
        first, last = done.lost
        yield f"  versions {first} to {last} {'are' if done.done else 'would be'} lost to the log"
        if not done.done:
            yield "  with a backup that has these segments, --from BACKUP loses nothing"
    for name in done.kept:
        yield f"  kept: {name}"
    if done.after is None:
        yield from _choices(done)
        yield "  nothing was written; --write does it"
    else:
        yield from said(done.after)


def _choices(done: Repair) -> Iterator[str]:
    for number, choice in enumerate(done.choices, 1):
        yield f"  choice {number}: {choice}"

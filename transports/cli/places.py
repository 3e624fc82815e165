"""What the commands about slots and groups share: places, how old they are, and logs that are there already."""

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from publishers.errors import NotALog, PenstockError
from publishers.log.changelog import ChangeLog
from publishers.store.directory import kind_of
from publishers.wal import RealFileSystem
from transports.cli.source import is_store, owned

__all__ = ["PLACES", "age_of", "existing", "seconds_text", "table"]

PLACES: Final = (
    "earliest, latest, a version, a time, the id of a transaction, or a cursor such as events carry"
)


@contextlib.contextmanager
def existing(chosen: argparse.Namespace) -> Iterator[ChangeLog]:
    """A log that is there already, to be written: what it keeps for consumers is its owner's."""
    path = Path(chosen.directory)
    if not is_store(chosen.directory) and kind_of(RealFileSystem(), path) != "log":
        raise NotALog(path, "there is none; 'penstock append' makes one")
    with owned(chosen.directory, chosen.log) as log:
        yield log


def age_of(log: ChangeLog, version: int) -> float | None:
    """Seconds since a version was committed; 0 if it is yet to come."""
    if version >= log.head.version:
        return 0.0
    with contextlib.suppress(PenstockError):  # retention has taken it meanwhile
        return max((datetime.now(UTC) - log.time_of(version)).total_seconds(), 0.0)
    return None


def seconds_text(seconds: float | None) -> str:
    """A time as people read it."""
    return "?" if seconds is None else f"{seconds:.0f} s"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines with columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

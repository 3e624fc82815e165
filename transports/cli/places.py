"""Shared by the commands on slots and groups: start positions, the age of a position, and opening an existing log."""

import argparse
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from publishers.errors import NotALog, PenstockError
from publishers.log.changelog import ChangeLog
from publishers.store.directory import kind_of
from publishers.wal import RealFileSystem
from transports.cli.source import is_store, owned

__all__ = ["PLACES", "age_of", "existing", "lag_text", "seconds_text", "table"]

PLACES: Final = (
    "earliest, latest, a version, a time, the id of a transaction, or a cursor such as events carry"
)


@contextlib.contextmanager
def existing(chosen: argparse.Namespace) -> Iterator[ChangeLog]:
    """Opens an existing log for writing, because only the owner may change the positions of consumers."""
    path = Path(chosen.directory)
    if not is_store(chosen.directory) and kind_of(RealFileSystem(), path) != "log":
        raise NotALog(path, "there is none; 'penstock append' makes one")
    with owned(chosen.directory, chosen.log) as log:
        yield log


def age_of(log: ChangeLog, version: int) -> float | None:
    """Returns the seconds since a version was committed; 0 if it is still to come, None if it is no longer kept."""
    if version >= log.head.version:
        return 0.0
    with contextlib.suppress(PenstockError):  # retention has deleted it meanwhile
        return max((datetime.now(UTC) - log.time_of(version)).total_seconds(), 0.0)
    return None


def lag_text(lag: Mapping[str, Any]) -> str:
    """Formats a lag for people, with the measures that are known."""
    counts = [f"{lag[unit]} {unit}" for unit in ("versions", "changes", "bytes") if lag.get(unit) is not None]
    return ", ".join([*counts, seconds_text(lag["seconds"])])


def seconds_text(seconds: float | None) -> str:
    """Formats seconds for people; ``?`` for None."""
    return "?" if seconds is None else f"{seconds:.0f} s"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

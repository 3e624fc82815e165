"""Shared by the commands on slots and groups: start positions, lags as text, and opening an existing log."""

import argparse
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from publishers.errors import NotALog
from publishers.log.changelog import ChangeLog
from publishers.store.directory import kind_of
from publishers.wal import RealFileSystem
from transports.cli.source import is_store, owned

__all__ = ["PLACES", "existing", "lag_text", "table"]

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


def lag_text(lag: Mapping[str, Any], *units: str) -> str:
    """Formats a lag for people, with the measures that are known; ``-`` if none is.

    Args:
        lag: The measures by unit.
        units: The counts to show before the seconds; all by default.
    """
    known = [
        (lag[unit], unit) for unit in units or ("versions", "changes", "bytes") if lag.get(unit) is not None
    ]
    counts = [f"{count} {unit.removesuffix('s') if count == 1 else unit}" for count, unit in known]
    seconds = [] if lag["seconds"] is None else [f"{lag['seconds']:.0f} s"]
    return ", ".join([*counts, *seconds]) or "-"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

"""Output of commands: a JSON document, or lines of text."""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

__all__ = ["clean", "fields", "lag_text", "print_json", "show", "table"]

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def clean(text: str) -> str:
    """Replaces control characters, which a terminal would obey, in a text that may be of foreign origin."""
    return _CONTROL.sub("?", text)


def print_json(document: object) -> None:
    """Prints a document in one line."""
    print(msgspec.json.encode(document).decode())


def show(chosen: argparse.Namespace, document: object, lines: Iterable[str]) -> None:
    """Prints the document if ``--json`` is given, otherwise the lines."""
    if chosen.json:
        print_json(document)
    else:
        print("\n".join(map(clean, lines)))


def fields(document: Mapping[str, object]) -> Iterator[str]:
    """Yields a line for people for each field of a document: its name as words, and its value."""
    for name, value in document.items():
        words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
        yield f"{words}: {_text(value)}"


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


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | dict():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)

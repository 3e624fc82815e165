"""Output of commands: a JSON document, or lines of text."""

import argparse
from collections.abc import Iterable

import msgspec

__all__ = ["print_json", "show"]


def print_json(document: object) -> None:
    """Prints a document in one line."""
    print(msgspec.json.encode(document).decode())


def show(chosen: argparse.Namespace, document: object, lines: Iterable[str]) -> None:
    """Prints the document if ``--json`` is given, otherwise the lines."""
    if chosen.json:
        print_json(document)
    else:
        print("\n".join(lines))

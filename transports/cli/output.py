"""Output of commands: a JSON document, or lines of text."""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

__all__ = ["clean", "fields", "print_json", "show"]

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

r"""Paths into JSON, and JSON as text: the basis of projections and masks.

A path is names separated by dots, such as ``customer.name``. A backslash takes the next character literally, so
``a\.b`` is one name. Paths ignore arrays: ``items.price`` is the price of each item.

Values are never converted to Python numbers and back: an object becomes a mapping from names to the text of the values,
so everything that is not touched keeps its written form.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from publishers.errors import InvalidOption
from publishers.lossless import encodable

__all__ = [
    "PATHS_MAX",
    "Fields",
    "Path",
    "collected",
    "exact_value",
    "fields_of",
    "items_of",
    "parse_path",
    "path_text",
    "split_path",
    "write",
]

Path = tuple[str, ...]
Fields = Mapping[str, bytes | msgspec.Raw]
"""An object: its names, and the text of its values."""

PATHS_MAX: Final = 1_000
_NAMES_MAX: Final = 32
_CHARACTERS_MAX: Final = 1_024
_RIGHT: Final = f"at most {_NAMES_MAX} names separated by dots, such as customer.name"

_objects: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_arrays: Final = msgspec.json.Decoder(list[msgspec.Raw])
_encoder: Final = msgspec.json.Encoder()


def parse_path(parameter: str, text: object) -> tuple[str, Path]:
    """Returns the root of a path (``$key``, ``$meta``, or empty for the images of the entity), and its names.

    Raises:
        InvalidOption: If the text is not a path.
    """
    if not isinstance(text, str) or not 0 < len(text) <= _CHARACTERS_MAX:
        raise InvalidOption(parameter, text if isinstance(text, str) else type(text).__name__, _RIGHT)
    names = split_path(text)
    if "" in names or len(names) > _NAMES_MAX or not encodable(text):
        raise InvalidOption(parameter, text, _RIGHT)
    return (names[0], tuple(names[1:])) if text[0] == "$" else ("", tuple(names))


def split_path(text: str) -> list[str]:
    """Splits a path into its names; an empty name shows that the path is malformed."""
    names, escaped = [""], False
    for char in text:
        if escaped or char not in ".\\":
            names[-1] += char
            escaped = False
        elif char == ".":
            names.append("")
        else:
            escaped = True
    return [*names, ""] if escaped else names


def path_text(path: Path, root: str = "") -> str:
    """Returns the canonical text of a path."""
    names = [name.replace("\\", "\\\\").replace(".", "\\.") for name in path]
    if root:
        return ".".join((root, *names))
    return "\\" * names[0].startswith("$") + ".".join(names)


def collected(parameter: str, paths: object) -> Iterable[Any]:
    """Checks an argument that holds several paths, and returns it.

    Raises:
        InvalidOption: If it is a single text, empty, or has more than ``PATHS_MAX``.
    """
    if (
        isinstance(paths, (str, bytes))
        or not isinstance(paths, Collection)
        or not 0 < len(paths) <= PATHS_MAX
    ):
        given = paths if isinstance(paths, str) else type(paths).__name__
        raise InvalidOption(parameter, given, f"1 to {PATHS_MAX} paths, or None")
    return paths


def fields_of(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw] | None:
    """Splits an object into its fields; of a repeated name the last counts. None if the text is another JSON value.

    Raises:
        ValueError: If it is not JSON, or a name in it cannot be read.
    """
    return _objects.decode(text) if _opening(text) == b"{" else None


def items_of(text: bytes | msgspec.Raw) -> list[msgspec.Raw] | None:
    """Splits an array into its items; None if the text is another JSON value.

    Raises:
        ValueError: If it is not JSON.
    """
    return _arrays.decode(text) if _opening(text) == b"[" else None


def write(value: Fields | Iterable[bytes | msgspec.Raw]) -> bytes:
    """Joins fields to the text of an object, or items to that of an array."""
    if isinstance(value, Mapping):
        return _encoder.encode({name: msgspec.Raw(text) for name, text in value.items()})
    return _encoder.encode([msgspec.Raw(text) for text in value])


def exact_value(text: bytes) -> Any:
    """Parses JSON so that numbers compare by value; each is tagged as a number, because in Python True equals 1.

    Raises:
        ValueError, RecursionError, ArithmeticError: If it is not JSON that can be compared.
    """
    return json.loads(text, parse_int=_number, parse_float=_number)


def _number(text: str) -> tuple[str, Decimal]:
    return "number", Decimal(text)


def _opening(text: bytes | msgspec.Raw) -> bytes:
    return bytes(text).lstrip(b" \t\r\n")[:1]

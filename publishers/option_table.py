"""The options of a class as a table: what its constructor checks, files and commands read, and documentation shows.

A class declares each option once: its name, type, default and bounds as a field, and what it means in its docstring, under ``Attributes``.
"""

import re
from collections.abc import Hashable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from inspect import cleandoc
from math import inf, ulp
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from publishers.errors import InvalidOption

__all__ = ["POSITIVE", "Option", "check_options", "options_of"]

POSITIVE: Final = ulp(0.0)
"""The lower bound of a number that is above 0."""

_WHOLE: Final = (1, 2**62)  # the bounds of a whole number that names none
_UNITS: Final = {
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "s": 1, "m": 60, "h": 3600, "d": 86400
}  # fmt: skip
_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", re.ASCII)
_ENTRY: Final = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: Its name; that of a size ends with ``bytes``.
        kind: ``bool``, ``int``, ``float`` or ``str``; None for an object that the class itself checks.
        default: Its default.
        low: The least value, or the least length of a text.
        high: The greatest value, or the greatest length of a text.
        choices: The only values; empty if there are others.
        optional: Whether it may be None.
        says: What it means.
    """

    name: str
    kind: type | None
    default: Any
    low: float
    high: float
    choices: tuple[str, ...]
    optional: bool
    says: str

    @property
    def unit(self) -> str:
        """``bytes`` or ``s``; empty for a number without a unit, and for what is no number."""
        if self.kind is int and self.name.endswith("bytes"):
            return "bytes"
        return "s" if self.kind is float and not self.name.endswith("share") else ""

    @property
    def right(self) -> str:
        """Describes its values, for errors."""
        if self.choices:
            *others, last = map(repr, self.choices)
            said = f"{', '.join(others)} or {last}"
        elif self.kind is bool:
            said = "True or False"
        elif self.kind is str:
            said = f"a text of {self.low} to {self.high} characters"
        else:
            said = "a whole number" if self.kind is int else "seconds" if self.unit else "a number"
            plain = (self.low, self.high) in (_WHOLE, (POSITIVE, inf))
            said += " above 0" if plain else f" from {_shown(self.low)} to {_shown(self.high)}"
        return f"{said}, or None" if self.optional else said

    def check(self, value: object) -> None:
        """Checks a value; an object that the class checks is not looked at.

        Raises:
            InvalidOption: If it is of another type, or out of its bounds.
        """
        if self.kind is None or (value is None and self.optional):
            return
        if not self._allows(value):
            raise InvalidOption(self.name, value, self.right)

    def _allows(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.kind is bool or isinstance(value, bool):
            return self.kind is bool and isinstance(value, bool)
        if self.kind is str:
            whole = isinstance(value, str) and value.encode("utf-8", "replace").decode() == value
            return whole and self.low <= len(value) <= self.high
        return isinstance(value, int if self.kind is int else (int, float)) and self.low <= value <= self.high

    def read(self, text: str) -> Any:
        """Reads a value as people write it: a number may have a unit, and ``none``, ``true`` and ``false`` are what they say.

        The value is not checked, since a text that is none is refused by `check`, with what would be right.

        Raises:
            InvalidOption: If a number has an unknown unit.
        """
        number = _NUMBER.fullmatch(text) if self.kind in (int, float) else None
        if number is None:
            return {"none": None, "true": True, "false": False}.get(text.lower(), text)
        if number[2] and number[2] not in _UNITS:
            raise InvalidOption(self.name, text, "a number, alone or with " + ", ".join(_UNITS))
        found = float(number[1]) if "." in number[1] else int(number[1])
        return found * _UNITS.get(number[2], 1)


@cache
def options_of(cls: Hashable) -> tuple[Option, ...]:
    """The options of a dataclass or a struct, in the order of their fields."""
    said = {name: " ".join(text.split()) for name, text in _ENTRY.findall(cleandoc(cls.__doc__ or ""))}
    hints = get_type_hints(cls, include_extras=True)
    return tuple(_option(name, hints[name], default, said.get(name, "")) for name, default in _defaults(cls))


def check_options(given: Any) -> None:
    """Checks every option of an object by the table of its class.

    Raises:
        InvalidOption: If one is of another type, or out of its bounds.
    """
    for option in options_of(given.__class__):
        option.check(getattr(given, option.name))


def _shown(value: float) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _defaults(cls: Any) -> list[tuple[str, Any]]:
    if is_dataclass(cls):
        return [
            (one.name, one.default if one.default_factory is MISSING else one.default_factory())
            for one in fields(cls)
        ]
    return list(zip(cls.__struct_fields__, cls.__struct_defaults__, strict=True))


def _option(name: str, hint: Any, default: Any, says: str) -> Option:
    bounds: list[Any] = []
    if get_origin(hint) is Annotated:
        hint, *bounds = get_args(hint)
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    optional = type(None) in parts
    parts = tuple(part for part in parts if part is not type(None))
    part = parts[0] if len(parts) == 1 else None
    choices = get_args(part) if get_origin(part) is Literal else ()
    kind = str if choices else part if part in (bool, int, float, str) else None
    low, high = bounds or (_WHOLE if kind is int else (POSITIVE, inf))
    return Option(name, kind, default, low, high, choices, optional, says)

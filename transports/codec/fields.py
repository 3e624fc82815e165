"""Validation of what clients send: a Struct says which fields there are and which values are right; the sentences are made here."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec

from publishers.errors import InvalidOption
from transports.errors import InvalidDemand, InvalidRequest
from transports.limits import CREDITS_MAX

__all__ = [
    "Count",
    "Credits",
    "Generation",
    "LogName",
    "Name",
    "Text",
    "checked_credits",
    "convert",
    "whole",
]

_T = TypeVar("_T")
_AT: Final = re.compile(r" - at `\$\.?([^`\[]*)[^`]*`$")
_MISSING: Final = re.compile(r"Object missing required field `([^`]*)`")

_GENERATION_MAX: Final = 2**53 - 1

Generation = Annotated[int, msgspec.Meta(ge=1, le=_GENERATION_MAX)]
"""The number of an opening or a joining, which every JSON parser represents exactly."""

Count = Annotated[int, msgspec.Meta(ge=0, le=_GENERATION_MAX)]
"""A number of things that every JSON parser represents exactly."""

Credits = Annotated[int, msgspec.Meta(description=f"a whole number from 0 to {CREDITS_MAX}")]
"""Credits; `checked_credits` checks their bounds, which are those of a demand."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
"""A text of a client, such as the name of a consumer."""

LogName = Annotated[str | None, msgspec.Meta(description="text")]
"""The name of a log; None for the only one."""

Name = Annotated[
    str,
    # "$" would match before a newline at the end
    msgspec.Meta(
        pattern=r"^[a-z0-9_-]{1,64}(?![\s\S])", description="1 to 64 small letters, digits, '_' and '-'"
    ),
]
"""The name of a slot or a group."""


def convert(kind: type[_T], payload: Mapping[str, Any], *, local: bool = False) -> _T:
    """Reads a payload as a Struct. A field that is None counts as omitted, and unknown fields are ignored.

    Args:
        kind: The Struct.
        payload: The payload.
        local: Whether it is not a client's, but what a caller in this process has given.

    Raises:
        InvalidRequest: If a field is missing or its value is wrong, with the path of the field; ``InvalidOption`` if ``local``.
    """
    given = {name: value for name, value in payload.items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        path, value, right = _refused(kind, given, str(error))
        raise (InvalidOption if local else InvalidRequest)(path, value, right) from None


def _refused(kind: type, payload: Mapping[str, Any], text: str) -> tuple[str, object, str]:
    """Returns path, value and what would be right of what ``msgspec`` refuses with a text."""
    found, missing = _AT.search(text), _MISSING.match(text)
    names = [found[1]] if found is not None else []
    path = ".".join(names + ([missing[1]] if missing is not None else []))
    value: Any = payload
    wanted: Any = msgspec.inspect.type_info(kind)
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
        wanted = next(field.type for field in _plain(wanted).fields if field.encode_name == name)
    return path, value, _right(wanted)


def _plain(wanted: Any) -> Any:
    """Returns a type without what may be said of it, and without None."""
    if isinstance(wanted, msgspec.inspect.Metadata):
        return _plain(wanted.type)
    if isinstance(wanted, msgspec.inspect.UnionType):
        return next(_plain(one) for one in wanted.types if not isinstance(one, msgspec.inspect.NoneType))
    return wanted


def _right(wanted: Any) -> str:
    """Says which values a type has."""
    if isinstance(wanted, msgspec.inspect.Metadata):
        return str((wanted.extra_json_schema or {})["description"])
    match _plain(wanted):
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.IntType(ge=low, le=high):
            return f"a whole number from {low} to {high}"
        case msgspec.inspect.StrType(min_length=None):
            return "text"
        case msgspec.inspect.StrType(min_length=low, max_length=high):
            return f"a text of {low} to {high} characters"
        case msgspec.inspect.LiteralType(values=words):
            return "one of: " + ", ".join(map(str, words))
        case msgspec.inspect.EnumType(cls=words):
            return "one of: " + ", ".join(str(one.value) for one in words)
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            return "a list"
        case _:
            return "an object"


def whole(path: str, value: object, low: int, high: int, default: int | None = None) -> int:
    """Checks a whole number within bounds.

    Raises:
        InvalidRequest: If the value is not a whole number within the bounds.
    """
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(path, value, f"a whole number from {low} to {high}")
    return value


def checked_credits(path: str, value: object) -> int:
    """Checks credits.

    Raises:
        InvalidRequest: If the value is not a whole number.
        InvalidDemand: If the value is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(path, value, f"a whole number from 0 to {CREDITS_MAX}")
    if not 0 <= value <= CREDITS_MAX:
        raise InvalidDemand(path, value, 0, CREDITS_MAX)
    return value

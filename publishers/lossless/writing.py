"""Writes values as JSON, and the texts of keys.

=======================  ==========================================================================================
value                    written as
=======================  ==========================================================================================
whole number             its digits, however many; as text beyond 2^53 with ``text_integers``
float                    the shortest digits that read back as the same number; NaN and infinities are refused
``Decimal``              text with every digit it has: ``"10.00"``; NaN and infinities are refused
bytes                    text in base64
aware ``datetime``       RFC 3339 with its offset, and with microseconds unless they are 0
naive ``datetime``       the same without an offset
``date``, ``time``       ``"2024-02-29"``, ``"10:11:12.123456"``
``timedelta``            an ISO 8601 duration in days and seconds: ``"P1DT2.5S"``
``UUID``, ``Enum``       its text; the value of the member
None                     ``null``; an absent name stays absent
names of a mapping       their text; a mapping in which two names have one text, such as 1 and ``"1"``, is refused
=======================  ==========================================================================================
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final
from uuid import UUID

import msgspec

from publishers.model.flaws import flaw_of

__all__ = ["NUMBER", "NotFinite", "encodable", "encode", "flaw_of", "is_long", "key_text", "text_integers"]

NUMBER: Final = r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?"
"""A number of JSON, as a regular expression."""

_encoder: Final = msgspec.json.Encoder(decimal_format="string")
_OFFSET: Final = re.compile(rb'\d[+-]\d\d:\d\d"')
_EXACT: Final = b"9007199254740992"  # 2^53: up to it a double represents every whole number
_LONG: Final = re.compile(rb"\d{%d}" % len(_EXACT))
# Possessive: backtracking is never needed, and would take memory of some sixty times the text.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?\d[\d.eE+-]*', re.DOTALL)


class NotFinite(ValueError):
    """A number is NaN or an infinity, which JSON cannot represent; ``path`` is its place in the value."""

    def __init__(self, path: str) -> None:
        super().__init__(f"NaN or an infinity at {path or 'the top'}: JSON has no such number")
        self.path = path


def encodable(text: str) -> bool:
    """Whether a text can be encoded in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode(value: object) -> bytes:
    """Encodes a value as JSON by the rules of this module.

    Raises:
        NotFinite: If it contains NaN or an infinity.
        TypeError, ValueError, RecursionError: If it contains anything else that JSON cannot represent, such as two names with one text.
    """
    data = _encoder.encode(value)
    if (
        type(value) is dict
        and b"null" not in data
        and _FLAT(map(type, value.values()))
        and _TEXT(map(type, value))
    ):
        return data  # most bodies: what follows looks for nothing that can be in them
    if (b"null" in data or b'NaN"' in data or b'Infinity"' in data) and (
        path := _not_finite(value)
    ) is not None:
        raise NotFinite(path)
    if data.count(b"{") > 1 or not _has_text_names(value):
        _refuse_twins(value)
    # Historical time zones may have an offset with seconds, which RFC 3339 cannot express.
    if b"T" in data and _OFFSET.search(data):
        data = _encoder.encode(_in_minutes(value))
    return data


def text_integers(data: bytes) -> bytes:
    """Returns JSON in which whole numbers beyond 2^53 are text, for readers that keep numbers in doubles.

    Everything else is kept byte for byte: numbers with a fraction or an exponent, names, spaces, order.
    ``data`` must be valid JSON.
    """
    if not _LONG.search(data):
        return data
    result, done = bytearray(), 0
    # Not sub: it would keep an object for every number until the end.
    for found in _TOKEN.finditer(data):
        if is_long(found[0]):
            result += b'%b"%b"' % (data[done : found.start()], found[0])
            done = found.end()
    result += data[done:]
    return bytes(result)


def is_long(token: bytes) -> bool:
    """Whether a text or a number is a whole number beyond 2^53."""
    digits = token.lstrip(b"-")
    if len(digits) < len(_EXACT) or not digits.isdigit():
        return False
    return len(digits) > len(_EXACT) or digits > _EXACT


def key_text(value: object) -> str:
    """Returns the text of a value as a key: the same from every writer and every source, whatever their time zone.

    Times have microseconds, those with an offset are of UTC; decimals are in plain notation. Anything else is ``str`` of it.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return format(value, "f")
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case datetime():
            return value.isoformat(timespec="microseconds")
        case _:
            return str(value)


_PLAIN: Final = frozenset({str, int, bool, type(None), bytes, datetime, date, UUID})
_FLAT: Final = frozenset({str, int, float, bool, bytes, UUID}).issuperset
_TEXT: Final = frozenset({str}).issuperset


def _parts(value: object) -> Iterable[tuple[Any, Any]]:
    """Returns the parts of a value with their names or places."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, (list, tuple, set, frozenset)):
        return enumerate(value)
    if isinstance(value, Mapping):  # in this order: asking an abstract class is slow
        return value.items()
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    return ()


def _has_text_names(value: object) -> bool:
    """Whether the names of a mapping are text, so that no two of them are the same."""
    try:
        "".join(value)  # type: ignore[arg-type] # tells in C
    except TypeError:
        return False
    return isinstance(value, dict)


def _finite(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return value.is_finite() if isinstance(value, Decimal) else True


def _not_finite(value: object) -> str | None:
    """Returns the path of a number that JSON cannot represent; the encoder would write null, or text, for it."""
    if not _finite(value):
        return ""
    for name, item in _parts(value):
        kind = type(item)
        if kind in _PLAIN or (kind is float and isfinite(item)):
            continue
        if (path := _not_finite(item)) is not None:
            return f"[{name!r}]{path}"
    return None


def _refuse_twins(value: object) -> None:
    """Refuses a mapping in which two names have the same text: readers of JSON keep only one of them."""
    if isinstance(value, dict) and not _has_text_names(value):
        _refuse_odd(value)
    for _, item in _parts(value):
        if type(item) not in _PLAIN:
            _refuse_twins(item)


def _refuse_odd(mapping: dict[Any, Any]) -> None:
    if odd := [name for name in mapping if not _finite(name)]:
        raise NotFinite(f"[{odd[0]!r}]")
    names = msgspec.json.decode(_encoder.encode(dict.fromkeys(mapping)))
    if len(names) < len(mapping):
        raise ValueError(f"two of the names {', '.join(map(repr, mapping))[:200]} have the same text")


def _in_minutes(value: Any) -> Any:
    """Converts times whose offset has seconds to UTC; the encoder would drop the seconds."""
    if isinstance(value, datetime):
        offset = value.utcoffset()
        return value.astimezone(UTC) if offset is not None and offset % timedelta(minutes=1) else value
    if isinstance(value, Mapping):
        return {name: _in_minutes(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_in_minutes(item) for item in value]
    return value

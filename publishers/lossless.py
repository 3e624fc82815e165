"""Lossless JSON: how values are written, and how a schema restores their types.

=======================  ==========================================================================================
value                    written as
=======================  ==========================================================================================
whole number             its digits, however many; as text beyond 2^53 with ``text_integers``
float                    the shortest digits that read back as the same number; NaN and infinities are refused
``Decimal``              text with every digit it has: ``"10.00"``
bytes                    text in base64
aware ``datetime``       RFC 3339 with its offset, and with microseconds unless they are 0
naive ``datetime``       the same without an offset
``date``, ``time``       ``"2024-02-29"``, ``"10:11:12.123456"``
``timedelta``            an ISO 8601 duration in days and seconds: ``"P1DT2.5S"``
``UUID``, ``Enum``       its text; the value of the member
None                     ``null``; an absent name stays absent
=======================  ==========================================================================================

The text alone does not distinguish a decimal ``"10.00"`` from a string, so values can only be read back with a schema: `reader` makes
a function from one. Schemas are in the JSON form of Spark: a *type* is a name (see ``_READERS``) or an object
``{"type": "struct", "fields": [{"name", "type", "nullable"}, ...]}``, ``{"type": "array", "elementType"}`` or
``{"type": "map", "keyType", "valueType"}``.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final
from uuid import UUID

import msgspec

__all__ = ["NotFinite", "Reader", "encodable", "encode", "flaw_of", "reader", "text_integers"]

Reader = Callable[[Any], Any]
"""Turns a parsed value into the Python value of its type."""

_encoder: Final = msgspec.json.Encoder(decimal_format="string")
_raw: Final = msgspec.json.Decoder(msgspec.Raw)
_OFFSET: Final = re.compile(rb'\d[+-]\d\d:\d\d"')
_EXACT: Final = b"9007199254740992"  # 2^53: up to it a double represents every whole number
_LONG: Final = re.compile(rb"\d{%d}" % len(_EXACT))
# Possessive: backtracking is never needed, and would take memory of some sixty times the text.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?\d[\d.eE+-]*', re.DOTALL)
_DETAILS: Final = re.compile(r"[( ].*")  # of "decimal(10,2)", "interval day to second"


class NotFinite(ValueError):
    """A float is NaN or an infinity, which JSON cannot represent; ``path`` is its place in the value."""

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
        TypeError, ValueError, RecursionError: If it contains anything else that JSON cannot represent.
    """
    data = _encoder.encode(value)
    if b"null" in data and (path := _not_finite(value)) is not None:
        raise NotFinite(path)
    # Historical time zones may have an offset with seconds, which RFC 3339 cannot express.
    if b"T" in data and _OFFSET.search(data):
        data = _encoder.encode(_in_minutes(value))
    return data


def flaw_of(data: bytes) -> str | None:
    """Returns why bytes are not JSON in UTF-8; None if they are."""
    try:
        _raw.decode(data)
        if not data.isascii():
            data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return None


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
        if _beyond(found[0]):
            result += b'%b"%b"' % (data[done : found.start()], found[0])
            done = found.end()
    result += data[done:]
    return bytes(result)


def _beyond(token: bytes) -> bool:
    """Whether a text or a number is a whole number beyond 2^53."""
    digits = token.lstrip(b"-")
    if len(digits) < len(_EXACT) or not digits.isdigit():
        return False
    return len(digits) > len(_EXACT) or digits > _EXACT


def reader(schema: str | Mapping[str, Any]) -> Reader:
    """Makes a function that turns parsed JSON of a type into Python values; the inverse of `encode`.

    Parse with ``msgspec.json.decode`` or ``json.loads``; both keep whole numbers of any length. Null becomes None under
    every type. Absent names stay absent. Names that the schema does not know, and times that Python's types cannot
    represent, pass unchanged.

    Raises:
        ValueError: If the schema is invalid.
    """
    if isinstance(schema, str):
        found = _READERS.get(_DETAILS.sub("", schema))
        if found is None:
            raise ValueError(f"type is {schema!r}, but must be one of {', '.join(_READERS)}, or an object")
        return _nullable(found)
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    try:
        if kind == "struct":
            return _nullable(_struct(schema["fields"]))
        if kind == "array":
            item = reader(schema["elementType"])
            return _nullable(lambda values: [item(value) for value in values])
        if kind == "map":
            key, value = reader(_key_type(schema["keyType"])), reader(schema["valueType"])
            return _nullable(lambda members: {key(name): value(member) for name, member in members.items()})
    except (KeyError, TypeError) as error:
        raise ValueError(f"type {kind} lacks {error}") from None
    raise ValueError(f"type is {kind!r}, but must be struct, array or map in an object")


def _struct(fields: Sequence[Mapping[str, Any]]) -> Reader:
    readers = {field["name"]: reader(field["type"]) for field in fields}

    def read(members: Mapping[str, Any]) -> dict[str, Any]:
        return {name: readers.get(name, _same)(member) for name, member in members.items()}

    return read


def _key_type(schema: Any) -> Any:
    return f"{schema}_key" if schema in ("boolean", "float", "double") else schema


def _nullable(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _same(value: Any) -> Any:
    return value


def _moment(text: str) -> datetime | str:
    """Parses a moment as UTC; outside the years 1 to 9999 it stays text."""
    with suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo is not None else found
    return text


def _by(read: Callable[[str], Any]) -> Reader:
    def found(text: str) -> Any:
        with suppress(ValueError):
            return read(text)
        return text

    return found


def _float(value: Any) -> float:
    return float(value)  # text: NaN and infinities in Spark's form, and keys of maps


def _duration(text: str) -> timedelta | str:
    try:
        return msgspec.convert(text, timedelta)
    except msgspec.ValidationError:
        return text


_READERS: Final[Mapping[str, Reader]] = {
    "string": _same,
    "boolean": _same,
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "float": _float,
    "double": _float,
    "decimal": Decimal,
    "binary": b64decode,
    "date": _by(date.fromisoformat),
    "time": _by(time.fromisoformat),
    "timestamp": _moment,
    "timestamp_ntz": _by(datetime.fromisoformat),
    "duration": _duration,
    "uuid": UUID,
    "char": _same,
    "varchar": _same,
    "variant": _same,
    "void": _same,
    "interval": _same,
    "boolean_key": "true".__eq__,
    "float_key": _float,
    "double_key": _float,
}


def _not_finite(value: object) -> str | None:
    """Returns the path of a float that JSON cannot represent; the encoder would write null for it."""
    if isinstance(value, float):
        return None if isfinite(value) else ""
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple, set, frozenset)):
        items = enumerate(value)
    for name, item in items:
        if (path := _not_finite(item)) is not None:
            return f"[{name!r}]{path}"
    return None


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

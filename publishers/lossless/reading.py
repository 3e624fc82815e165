"""Reads JSON by a schema, which restores the types of its values.

The text alone does not distinguish a decimal ``"10.00"`` from a string, so values can only be read back with a schema: `reader` makes
a function from one. Schemas are in the JSON form of Spark: a *type* is a name (see ``_LEAVES``) or an object
``{"type": "struct", "fields": [{"name", "type", "nullable"}, ...]}``, ``{"type": "array", "elementType"}`` or
``{"type": "map", "keyType", "valueType"}``.

Reading never changes a value. A value that its type cannot represent exactly is refused:

=========================  ========================================================================================
type                       values that are read
=========================  ========================================================================================
``byte`` ... ``long``      numbers without a fraction, within the bounds of the type; text only as of ``text_integers``
``float``, ``double``      numbers that the type represents: no whole number that it would round; ``"NaN"`` and ``"Infinity"``
``decimal(p,s)``           numbers, and text that is one, with at most ``s`` digits of a fraction and ``p`` in all
``boolean``, ``string``    true and false; text
``timestamp``              a time with an offset, of at most microseconds
``timestamp_ntz``          a time without an offset, or a day, which begins at midnight
``date``                   a day, or its midnight without an offset
``binary``, ``uuid``, ...  their text as it is written
=========================  ========================================================================================
"""

import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation
from math import isfinite
from typing import Any, Final, Never
from uuid import UUID

import msgspec

from publishers.lossless.writing import NUMBER, is_long
from publishers.model.errors import ValueRefused

__all__ = ["Reader", "kind_of", "mistakable", "reader"]

Reader = Callable[[Any], Any]
"""Turns a parsed value into the Python value of its type."""

_DETAILS: Final = re.compile(r"[( ].*")  # of "decimal(10,2)", "interval day to second"


def reader(
    schema: str | Mapping[str, Any],
    leaves: Mapping[str, Reader] | None = None,
    written: str | Mapping[str, Any] | None = None,
    *,
    key: bool = False,
) -> Reader:
    """Makes a function that turns parsed JSON of a type into Python values; the inverse of `encode`.

    Parse with ``msgspec.json.decode`` or ``json.loads``; both keep whole numbers of any length. Null becomes None under
    every type. Absent names stay absent. Names that the schema does not know pass unchanged, and so do times outside the years 1 to
    9999, which Python's types cannot represent. The function raises `ValueRefused` for a value that the type cannot represent.

    Args:
        schema: The type.
        leaves: What turns values of a type into others than those of this module, by the name of the type; it is given what
            this module has read.
        written: The type that the values had when they were written, if it is known. The JSON of some types is the same: with
            it, a decimal is not taken for text, nor text for a decimal, and a decimal can be read as another number.
        key: Whether values are the texts of keys, or the names of a map, rather than JSON: ``"7"`` is then a number.

    Raises:
        ValueError: If a schema is invalid.
    """
    return _reader(schema, leaves or {}, written, key=key)


def _reader(schema: Any, leaves: Mapping[str, Reader], written: Any, *, key: bool = False) -> Reader:
    if isinstance(schema, str):
        return _leaf(schema, leaves, written, key=key)
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if written is not None and (not isinstance(written, Mapping) or written.get("type") != kind):
        written = (
            None if written in _UNTOLD else "void"
        )  # another kind of type: no value of it is one of this
    told: Mapping[str, Any] = written if isinstance(written, Mapping) else {}
    try:
        if kind == "struct":
            known = {field["name"]: field["type"] for field in told.get("fields", ())}
            found = _struct(
                {
                    one["name"]: _reader(one["type"], leaves, known.get(one["name"]))
                    for one in schema["fields"]
                }
            )
        elif kind == "array":
            found = _array(_reader(schema["elementType"], leaves, told.get("elementType")))
        elif kind == "map":
            found = _map(
                _reader(schema["keyType"], leaves, told.get("keyType"), key=True),
                _reader(schema["valueType"], leaves, told.get("valueType")),
            )
        else:
            raise ValueError(f"type is {kind!r}, but must be struct, array or map in an object")
    except (KeyError, TypeError) as error:
        raise ValueError(f"type {kind} lacks {error}") from None
    return _checked(_refuse, str(kind)) if written == "void" else found


def _struct(readers: Mapping[str, Reader]) -> Reader:
    def read(members: Any) -> dict[str, Any] | None:
        if members is None:
            return None
        if not isinstance(members, Mapping):
            raise ValueRefused("", members, "struct")
        found = {}
        for name, member in members.items():
            try:
                found[name] = readers[name](member) if name in readers else member
            except ValueRefused as error:
                raise error.within(name) from None
        return found

    return read


def _array(item: Reader) -> Reader:
    def read(values: Any) -> list[Any] | None:
        if values is None:
            return None
        if not isinstance(values, (list, tuple)):
            raise ValueRefused("", values, "array")
        found: list[Any] = []
        for value in values:
            try:
                found.append(item(value))
            except ValueRefused as error:
                raise error.within(f"[{len(found)}]") from None
        return found

    return read


def _map(key: Reader, value: Reader) -> Reader:
    def read(members: Any) -> dict[Any, Any] | None:
        if members is None:
            return None
        if not isinstance(members, Mapping):
            raise ValueRefused("", members, "map")
        found = {}
        for name, member in members.items():
            try:
                found[key(name)] = value(member)
            except ValueRefused as error:
                raise error.within(f"[{name!r}]") from None
        if len(found) < len(members):
            raise ValueRefused("", members, "map, as two of its keys are equal,")
        return found

    return read


def _leaf(schema: str, leaves: Mapping[str, Reader], written: Any, *, key: bool) -> Reader:
    name = kind_of(schema)
    made = _KEYS.get(name, _LEAVES.get(name)) if key else _LEAVES.get(name)
    if made is None:
        raise ValueError(f"type is {schema!r}, but must be one of {', '.join(_LEAVES)}, or an object")
    strict: Reader = made(schema) if made is _decimal else made
    if written is not None and mistakable(schema, written):
        strict = _of_written(schema, strict, written)
    return _checked(strict, schema, leaves.get(name))


def _checked(strict: Reader, kind: str, more: Reader | None = None) -> Reader:
    def read(value: Any) -> Any:
        if value is None:
            return None
        try:
            found = strict(value)
            return found if more is None else more(found)
        except (ValueError, TypeError, LookupError, ArithmeticError, struct.error):
            raise ValueRefused("", value, kind) from None

    return read


def kind_of(schema: str) -> str:
    """Returns the name of a type without its details, such as the digits of a decimal."""
    return _DETAILS.sub("", schema)


def mistakable(schema: Any, written: Any) -> bool:
    """Whether the JSON of values of the type ``written`` may look like that of other values of the type ``schema``."""
    if schema == written or written in _UNTOLD:
        return False
    if isinstance(schema, str) and isinstance(written, str):
        ours, theirs = kind_of(schema), kind_of(written)
        if theirs in _BITS or theirs in ("boolean", ours):
            return False
        if _GROUPS.get(ours) != _GROUPS.get(theirs):
            return ours not in _TEXTS or theirs in _GROUPS  # text may be that of a time
        return theirs in ("decimal", "float") or (theirs, ours) == ("double", "float")
    if not (isinstance(schema, Mapping) and isinstance(written, Mapping)):
        return True
    if schema.get("type") != written.get("type"):
        return True
    known = {field["name"]: field["type"] for field in written.get("fields", ())}
    parts = [(field["type"], known.get(field["name"], "void")) for field in schema.get("fields", ())]
    parts += [(schema[part], written[part]) for part in _INNER if part in schema and part in written]
    return any(mistakable(*pair) for pair in parts)


def _of_written(schema: str, read: Reader, written: Any) -> Reader:
    """Returns what reads values whose JSON could be mistaken, by the type that they were written as."""
    name = kind_of(schema)
    theirs = kind_of(written) if isinstance(written, str) else ""
    if theirs in _TEXTS and name in _CLOCKS:
        return lambda value: _same_text(read(value), value)
    if _GROUPS.get(name) != _GROUPS.get(theirs) or not theirs:
        return _refuse
    if theirs == "decimal":
        return _of_decimal(name, read, _unit_of(written))
    if theirs == "double":
        return _single
    # A float stands for the number of single precision that its digits are nearest to.
    return (
        _of_float(read, _unit_of(schema))
        if name == "decimal"
        else lambda value: read(_nearest(_double(value)))
    )


def _of_decimal(name: str, read: Reader, unit: Decimal | None) -> Reader:
    """Returns what reads a decimal as another number; ``unit`` is that of the decimal's last digit."""

    def other(value: Any) -> Any:
        number = Decimal(_number(value)) if isinstance(value, str) else Decimal(value)
        if name in _BITS:
            return read(
                int(number) if number.adjusted() < _DIGITS and number == int(number) else _refuse(value)
            )
        found = read(number)
        if name in ("float", "double"):
            back = Decimal(repr(_nearest(found) if name == "float" else found))
            if number != (back if unit is None else back.quantize(unit, ROUND_HALF_UP, _WIDE)):
                raise ValueError(value)
        return found

    return other


def _of_float(read: Reader, unit: Decimal | None) -> Reader:
    """Returns what reads a float as a decimal with a last digit of ``unit``."""

    def other(value: Any) -> Any:
        number = _nearest(_double(value))
        found = Decimal(repr(number))
        if unit is not None:
            found = found.quantize(unit, ROUND_HALF_UP, _WIDE)
        return read(found) if _nearest(float(found)) == number else _refuse(value)

    return other


def _same_text(found: Any, text: str) -> Any:
    """Returns a time that was read from a text, if its own text is the same one."""
    own = str(found)
    return found if (own.rstrip("0") if "." in own else own) == text else _refuse(text)


def _refuse(value: object) -> Never:
    raise ValueError(value)


def _any(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _refuse(value)


def _boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else _refuse(value)


def _whole(bits: int) -> Reader:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(value: Any) -> int:
        if isinstance(value, str) and is_long(value.encode()):
            value = int(value)
        elif isinstance(value, Decimal):
            value = _as_double(value)
        if isinstance(value, (str, bool)) or not least <= value <= most:
            raise ValueError(value)
        found = int(value)
        return found if found == value else _refuse(value)

    return read


def _as_double(number: Decimal) -> float:
    """Returns the double that a number with a fraction or an exponent stands for; with an exponent, it may be exact to 17 digits only."""
    found = float(number)
    return found if int(number.as_tuple().exponent) >= 0 or number == Decimal(found) else _refuse(number)


def _whole_key(bits: int) -> Reader:
    whole = _whole(bits)

    def read(text: str) -> int:
        found: int = whole(int(text))
        return found if str(found) == text else _refuse(text)

    return read


def _double(value: Any) -> float:
    if isinstance(value, str):
        return float(value) if value in _UNREAL else _refuse(value)
    if isinstance(value, bool) or (isinstance(value, int) and float(value) != value):
        raise ValueError(value)
    found = float(value)
    return found if isfinite(found) or isinstance(value, float) else _refuse(value)


def _nearest(value: float) -> float:
    """Returns the number of single precision that is nearest to one that is no infinity."""
    found: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    return found


def _single(value: Any) -> float:
    found = _double(value)
    return found if not isfinite(found) or found == _nearest(found) else _refuse(value)


def _float(value: Any) -> float:
    if type(value) is float and value == _nearest(value):  # most of them
        return value
    found = _double(value)
    if not isfinite(found) or isinstance(value, int):
        return _single(value)
    # A float is written in the digits that it needs, which as a double are another number.
    nearest = _nearest(found)
    written = (float(f"{nearest:.{digits}g}") for digits in range(1, 10))
    return found if found == nearest or found in written else _refuse(value)


def _real_key(read: Reader) -> Reader:
    return lambda text: read(text if text in _UNREAL else Decimal(_number(text)))


def _number(text: str) -> str:
    return text if _NUMBER.fullmatch(text) else _refuse(text)


def _decimal(schema: str) -> Reader:
    size, unit = _SIZE.fullmatch(schema), _unit_of(schema)
    context = Context(prec=int(size[1]) if size else 28, traps=[InvalidOperation, Inexact])

    def read(value: Any) -> Decimal:
        if isinstance(value, bool):
            raise TypeError(value)
        found = Decimal(
            repr(value) if isinstance(value, float) else _number(value) if isinstance(value, str) else value
        )
        if not found.is_finite():
            raise ValueError(value)
        if unit is not None:
            found.quantize(unit, context=context)
        return found

    return read


def _unit_of(schema: str) -> Decimal | None:
    size = _SIZE.fullmatch(schema)
    return None if size is None else Decimal(1).scaleb(-int(size[2]))


def _binary(text: str) -> bytes:
    found = b64decode(text, validate=True)
    return found if b64encode(found).decode() == text else _refuse(text)


def _uuid(text: str) -> UUID:
    found = UUID(text)
    return found if str(found) == text.lower() else _refuse(text)


def _time_of(pattern: re.Pattern[str], read: Callable[[str], Any]) -> Reader:
    """Returns what reads a time; one that ``pattern`` matches but Python cannot represent stays text."""

    def found(text: str) -> Any:
        match = pattern.fullmatch(text)
        if match is None:
            raise ValueError(text)
        if match["far"]:
            return text
        try:
            return read(text)
        except OverflowError:  # the last hours of the year 9999, elsewhere
            return text

    return found


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _day(text: str) -> date:
    return date.fromisoformat(text[:10])


def _duration(text: str) -> timedelta:
    if _FINER.search(text):
        raise ValueError(text)
    return msgspec.convert(text, timedelta)


_FAR: Final = r"(?:(?P<far>[+-]\d{4,6}|0000)|\d{4})-\d\d-\d\d"
_CLOCK: Final = r"\d\d(?::\d\d(?::\d\d(?:\.\d{1,6}0*)?)?)?"
_ZONE: Final = r"(?:Z|[+-]\d\d(?::?\d\d(?::\d\d)?)?)"
_FINER: Final = re.compile(r"\.\d{6}\d*[1-9]")  # than a microsecond
_NUMBER: Final = re.compile(NUMBER, re.ASCII)
_SIZE: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")
_SINGLE: Final = struct.Struct("f")
_UNREAL: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_UNTOLD: Final = ("void", "variant", None)  # types that say nothing about a value
_TEXTS: Final = ("string", "char", "varchar")
_CLOCKS: Final = ("date", "time", "timestamp_ntz")  # times that have one text, whatever the time zone
_INNER: Final = ("elementType", "keyType", "valueType")
_DIGITS: Final = 38  # of a decimal of Spark
_WIDE: Final = Context(prec=100)
# Text, numbers, booleans and bytes never turn into each other. Types of no group have a text of their own.
_GROUPS: Final = {
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys((*_BITS, "float", "double", "decimal"), "number"),
    "boolean": "boolean",
    "binary": "binary",
    "variant": "variant",
}

_LEAVES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "string": _text,
    "boolean": _boolean,
    **{name: _whole(bits) for name, bits in _BITS.items()},
    "float": _float,
    "double": _double,
    "decimal": _decimal,
    "binary": _binary,
    "date": _time_of(re.compile(rf"{_FAR}(?:[T ]00(?::00(?::00(?:\.0+)?)?)?)?", re.ASCII), _day),
    "time": _time_of(re.compile(rf"(?P<far>(?!)){_CLOCK}|{_CLOCK}", re.ASCII), time.fromisoformat),
    "timestamp": _time_of(re.compile(rf"{_FAR}[T ]{_CLOCK}{_ZONE}", re.ASCII), _moment),
    "timestamp_ntz": _time_of(re.compile(rf"{_FAR}(?:[T ]{_CLOCK})?", re.ASCII), datetime.fromisoformat),
    "duration": _duration,
    "uuid": _uuid,
    "char": _text,
    "varchar": _text,
    "variant": _any,
    "void": _refuse,
    "interval": _text,
}
_KEYS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "boolean": lambda text: {"true": True, "false": False}[text],
    **{name: _whole_key(bits) for name, bits in _BITS.items()},
    "float": _real_key(_float),
    "double": _real_key(_double),
}
"""The names of a map are text, whatever its keys are."""

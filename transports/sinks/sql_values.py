"""Values of bodies and keys for the columns of a table: what a column's type would change is refused."""

from collections.abc import Callable
from decimal import Decimal
from math import isnan
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from publishers.lossless import reader
from transports.sinks.sink import Unfit

__all__ = ["converter"]

_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_SHOWN: Final = 200  # characters
_SINGLE: Final = 24  # bits of precision up to which a FLOAT of PostgreSQL is a REAL

Convert = Callable[[Any], Any]


def converter(column: sa.Column[Any], *, postgres: bool, key: bool = False) -> Convert:
    """Returns what makes of a value of JSON the one that the driver expects for a column.

    Args:
        column: The column.
        postgres: Whether the database is PostgreSQL. SQLite has one size of whole numbers, and no decimals of its own.
        key: Whether values are texts of keys.

    The function raises `Unfit` for a value that the column would change. A column of text takes any value: what is no text, as JSON.
    A column of times without a time zone takes both kinds; moments as times of UTC.
    """
    read = _reading(column.type, postgres=postgres, key=key)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        try:
            return read(value)
        except (ValueError, TypeError):
            raise Unfit(f"{_shown(value)} does not fit column {column.name}, {column.type}") from None

    return convert


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else _as_json(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _reading(kind: Any, *, postgres: bool, key: bool) -> Convert:
    if isinstance(kind, sa.JSON):
        return _as_json
    if isinstance(kind, sa.DateTime):
        return _moment(reader("timestamp"), None if kind.timezone else reader("timestamp_ntz"))
    name = _type_of(kind, postgres=postgres)
    if name is None:
        return _as_text if _is_text(kind) else lambda value: value
    read = reader(name, key=key)
    if postgres:
        return lambda value: _known(read(value))
    return lambda value: _as_in_sqlite(_known(read(value)))


def _type_of(kind: Any, *, postgres: bool) -> str | None:
    """Returns the type of `publishers.lossless` for a column; None for text and for types of other databases."""
    match kind:
        case sa.Boolean():
            return "boolean"
        case sa.SmallInteger() if postgres:
            return "short"
        case sa.Integer():
            return "integer" if postgres and not isinstance(kind, sa.BigInteger) else "long"
        case sa.Float():
            single = isinstance(kind, sa.REAL) or (kind.precision or _SINGLE + 1) <= _SINGLE
            return "float" if postgres and single else "double"
        case sa.Numeric():
            return "decimal" if kind.precision is None else f"decimal({kind.precision},{kind.scale or 0})"
        case sa.Date():
            return "date"
        case sa.Time():
            return "time"
        case sa.LargeBinary():
            return "binary"
        case sa.Uuid():
            return "uuid"
        case _:
            return None


def _is_text(kind: Any) -> bool:
    try:
        return bool(kind.python_type is str)
    except NotImplementedError:
        return True


def _moment(aware: Convert, naive: Convert | None) -> Convert:
    def read(value: Any) -> Any:
        if naive is None:
            return _known(aware(value))
        try:
            return _known(naive(value))
        except ValueError:
            return _known(aware(value)).replace(tzinfo=None)

    return read


def _known(found: Any) -> Any:
    """Refuses a time that is left as text, as Python has no such year."""
    if isinstance(found, str):
        raise ValueError(found)
    return found


def _as_in_sqlite(found: Any) -> Any:
    """Refuses what SQLite would change: it stores decimals as floats, and NaN as null."""
    if isinstance(found, Decimal) and Decimal(repr(float(found))) != found:
        raise ValueError(found)
    if isinstance(found, float) and isnan(found):
        raise ValueError(found)
    return found


def _as_json(value: Any) -> str:
    return _ENCODER.encode(value).decode()


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else _as_json(value)

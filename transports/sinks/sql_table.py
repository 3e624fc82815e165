"""Tables that hold the entities of a type: their columns, the values that fit these, and the statements that change them."""

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import isnan
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from publishers.errors import InvalidOption
from publishers.lossless import reader
from publishers.model.change import Change
from transports.sinks.errors import TargetRefused
from transports.sinks.sink import EntityEffect, Unfit

__all__ = ["IDENTIFIERS", "EntityTable", "NameTaken", "SqlTable", "check_identifier", "converter"]


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


_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
IDENTIFIERS: Final = "1 to 63 letters, digits and '_', the first no digit"
"""What a name of a table or a column is."""
_DECODER: Final = msgspec.json.Decoder(float_hook=Decimal)


def check_identifier(parameter: str, name: object) -> str:
    """Checks the name of a table or a column, which is quoted in statements.

    Raises:
        InvalidOption: If the name is invalid.
    """
    if not isinstance(name, str) or _IDENTIFIER.fullmatch(name) is None:
        raise InvalidOption(parameter, name, IDENTIFIERS)
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTable:
    """The table of the entities of a type.

    Attributes:
        name: The name of the table.
        schema: The schema of the table; None for the search path of the connection.
        key: The column of the key, which must be unique.
        body: The column of the whole body, as JSON; None without one.
        columns: Additional columns, with the field of the body that each holds.
        version: The column of the position's version.
        index: The column of the position's index.
        deleted: The column of the time at which an entity was removed, in microseconds since 1970; only with ``tombstone_ttl``.

    Raises:
        InvalidOption: If a name is invalid.
    """

    name: str
    schema: str | None = None
    key: str = "key"
    body: str | None = "body"
    columns: Mapping[str, str] = field(default_factory=dict)
    version: str = "penstock_version"
    index: str = "penstock_index"
    deleted: str = "penstock_deleted"

    def __post_init__(self) -> None:
        for parameter in ("name", "key", "version", "index", "deleted"):
            check_identifier(parameter, getattr(self, parameter))
        for parameter in ("schema", "body"):
            if getattr(self, parameter) is not None:
                check_identifier(parameter, getattr(self, parameter))
        if not isinstance(self.columns, Mapping):
            raise InvalidOption("columns", self.columns, "names of columns, with the field of each")
        for column in self.columns:
            check_identifier("columns", column)


class NameTaken(TargetRefused):
    """No table can have a name: the database has something else of that name."""


class EntityTable:
    """A table of a database, with the statements that change it.

    Args:
        spec: The declaration of the table.
        connection: A connection to the database.
        create: Whether to create a missing table.
        tombstones: Whether the row of a removed entity stays.

    Raises:
        NameTaken: If the table cannot be created.
        TargetRefused: If the table is missing, or lacks a column.
    """

    def __init__(self, spec: SqlTable, connection: sa.Connection, *, create: bool, tombstones: bool) -> None:
        self._spec, self._tombstones = spec, tombstones
        self._postgres = connection.dialect.name == "postgresql"
        plan = self._plan(postgresql.JSONB() if self._postgres else sa.Text())
        if create:
            try:
                connection.execute(sa.schema.CreateTable(plan, if_not_exists=True))
            except sa.exc.OperationalError as error:
                if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
                    raise NameTaken(f"no table can be called {spec.name}: {error.orig}") from None
                raise
        try:
            self.table: sa.Table = sa.Table(
                sa.quoted_name(spec.name, quote=True),
                sa.MetaData(),
                schema=spec.schema,
                autoload_with=connection,
                resolve_fks=False,
            )
        except sa.exc.NoSuchTableError:
            made = " ".join(str(sa.schema.CreateTable(plan).compile(connection)).split())
            kind, also = (NameTaken, "; something else has its name") if create else (TargetRefused, "")
            raise kind(f"there is no table {spec.name}: {made}{also}") from None
        lacks = [column.name for column in plan.c if column.name not in self.table.c]
        if lacks:
            raise TargetRefused(f"table {spec.name} has no column {', '.join(lacks)}")
        columns = self.table.c
        self._key, self._version, self._index = (columns[one] for one in (spec.key, spec.version, spec.index))
        self._convert_key = converter(self._key, postgres=self._postgres, key=True)
        self._convert = {name: converter(columns[name], postgres=self._postgres) for name in spec.columns}
        self._made: dict[EntityEffect, Any] = {
            EntityEffect.PUT: self._put(),
            EntityEffect.DELETE: self._delete(),
            EntityEffect.CLEAR: self._clear(),
        }

    def statement(self, effect: EntityEffect) -> Any:
        """Returns the statement of an effect, to be executed with `parameters`."""
        return self._made[effect]

    def parameters(self, change: Change, effect: EntityEffect, now_us: int) -> dict[str, Any]:
        """Returns the parameters of the statement for a change.

        Raises:
            Unfit: If a value does not fit its column.
        """
        values: dict[str, Any] = {"v": change.version, "i": change.index}
        if effect is not EntityEffect.CLEAR:
            values["k"] = self._convert_key(_text(change.key))
        if effect is EntityEffect.PUT:
            self._fill(values, change)
        elif self._tombstones:
            values["d"] = now_us
        return values

    def written(self, connection: sa.Connection) -> bool:
        """Returns whether a row has a position, so that a sink has written it."""
        one = sa.select(sa.literal(1)).select_from(self.table).where(self._version.is_not(None)).limit(1)
        return connection.execute(one).first() is not None

    def purge(self, connection: sa.Connection, before_us: int) -> None:
        """Deletes the rows of entities that were removed before a time."""
        if self._tombstones:
            connection.execute(sa.delete(self.table).where(self.table.c[self._spec.deleted] < before_us))

    # Statements.

    def _plan(self, body: Any) -> sa.Table:
        """The definition of the table to create."""
        spec = self._spec
        columns: list[sa.Column[Any]] = [sa.Column(spec.key, sa.Text(), primary_key=True, quote=True)]
        if spec.body is not None:
            columns.append(sa.Column(spec.body, body, quote=True))
        columns += [sa.Column(name, sa.Text(), quote=True) for name in spec.columns]
        columns += [sa.Column(name, sa.BigInteger(), quote=True) for name in (spec.version, spec.index)]
        if self._tombstones:
            columns.append(sa.Column(spec.deleted, sa.BigInteger(), quote=True))
        return sa.Table(sa.quoted_name(spec.name, quote=True), sa.MetaData(), *columns, schema=spec.schema)

    def _older(self, version: Any, index: Any) -> Any:
        """The condition that a row is of a lower position."""
        here = sa.tuple_(self._version, self._index)
        return sa.or_(self._version.is_(None), sa.tuple_(version, index) > here)

    def _position(self) -> tuple[Any, Any]:
        return sa.bindparam("v", type_=sa.BigInteger()), sa.bindparam("i", type_=sa.BigInteger())

    def _put(self) -> Any:
        spec, columns = self._spec, self.table.c
        values: dict[str, Any] = {spec.key: sa.bindparam("k", type_=self._key.type)}
        values[spec.version], values[spec.index] = self._position()
        if spec.body is not None:
            values[spec.body] = self._bound(columns[spec.body], "b")
        for number, name in enumerate(spec.columns):
            values[name] = self._bound(columns[name], f"c{number}")
        if self._tombstones:
            values[spec.deleted] = sa.null()
        return self._upsert(values)

    def _delete(self) -> Any:
        spec = self._spec
        key = sa.bindparam("k", type_=self._key.type)
        if not self._tombstones:
            return sa.delete(self.table).where(self._key == key, self._older(*self._position()))
        values: dict[str, Any] = {spec.key: key}
        values[spec.version], values[spec.index] = self._position()
        values[spec.deleted] = sa.bindparam("d", type_=sa.BigInteger())
        values |= dict.fromkeys(self._content(), sa.null())
        return self._upsert(values)

    def _clear(self) -> Any:
        spec, older = self._spec, self._older(*self._position())
        if not self._tombstones:
            return sa.delete(self.table).where(older)
        version, index = self._position()
        values: dict[str, Any] = {spec.version: version, spec.index: index}
        values[spec.deleted] = sa.bindparam("d", type_=sa.BigInteger())
        values |= dict.fromkeys(self._content(), sa.null())
        return sa.update(self.table).where(older).values(values)

    def _content(self) -> tuple[str, ...]:
        return (*(() if self._spec.body is None else (self._spec.body,)), *self._spec.columns)

    def _upsert(self, values: dict[str, Any]) -> Any:
        make = postgresql.insert if self._postgres else sqlite.insert
        made = make(self.table).values(values)
        spec, new = self._spec, made.excluded
        return made.on_conflict_do_update(
            index_elements=[self._key],
            set_={name: new[name] for name in values if name != spec.key},
            where=self._older(new[spec.version], new[spec.index]),
        )

    def _bound(self, column: sa.Column[Any], name: str) -> Any:
        """The bind parameter of a column; JSON is bound as its text."""
        if isinstance(column.type, sa.JSON):
            text = sa.bindparam(name, type_=sa.Text())
            return sa.cast(text, column.type) if self._postgres else text
        return sa.bindparam(name, type_=column.type)

    # Values.

    def _fill(self, values: dict[str, Any], change: Change) -> None:
        if change.body_bytes is None:
            raise Unfit("the log does not hold the whole entity")
        if self._spec.body is not None:
            values["b"] = change.body_bytes.decode("utf-8")
        if self._spec.columns:
            body = _fields_of(change.body_bytes)
            if not isinstance(body, dict):
                raise Unfit("the body is no object, so it has no fields")
            for number, (name, source) in enumerate(self._spec.columns.items()):
                values[f"c{number}"] = self._convert[name](body.get(source))


def _fields_of(body: bytes) -> Any:
    try:
        try:
            return _DECODER.decode(body)
        except msgspec.ValidationError:  # a whole number with more digits than msgspec takes
            return json.loads(body, parse_int=Decimal, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError, msgspec.MsgspecError) as error:
        raise Unfit(f"the body cannot be split into fields: {type(error).__name__}: {error}") from None


def _text(key: str | None) -> str:
    if key is None:
        raise Unfit("it has no key")
    try:
        key.encode("utf-8")
    except UnicodeEncodeError:
        raise Unfit(f"its key is not UTF-8: {key!r}") from None
    return key

"""Rows of a table or a query, by SQLAlchemy Core (the extra ``sql``)."""

import datetime as dt
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from flow.misuse import names_arguments
from publishers.commits import Commit
from publishers.errors import InvalidOption, SourceFailed, SourceRowRefused
from publishers.lossless import encodable, key_text
from publishers.model.position import Position
from publishers.options import MIB
from publishers.snapshots.source import PageRequest, SourceRow, check_source, distinct_rows

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Engine, FromClause, Select

__all__ = ["SqlSource", "check_engine"]

_READERS: Final[Mapping[type, Callable[[str], Any]]] = {
    str: str,
    int: int,
    bool: {"true": True, "false": False}.__getitem__,
    float: float,
    bytes: partial(b64decode, validate=True),
    Decimal: Decimal,
    UUID: UUID,
    dt.date: dt.date.fromisoformat,
    dt.time: dt.time.fromisoformat,
    dt.datetime: dt.datetime.fromisoformat,
}
"""By the Python type of a key column: what reads the text of a key."""

_NO_KEY: Final = (ValueError, InvalidOperation, KeyError)
_INTEGERS: Final = (-(2**63), 2**63 - 1)
_KEYS_MAX: Final = 1_000
"""Most keys that a query names; of more, all rows are read."""
_GLOBS: Final = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})


class SqlSource:
    """Rows of a table or a query, read by pages of keys: ``WHERE key > :last ORDER BY key LIMIT :n``. No transaction outlives a page.

    The text of a key is that of a `ChangeSink`, whatever the time zone of the connection: times with microseconds, those with a time
    zone as of UTC (``2026-01-02T03:04:05.000000Z``), decimals in plain notation. Several columns are joined by ``/``, which only the
    last one may contain, so that the text can be taken apart. Bytes are base64, and only the last column. The text has to be what
    writers give to ``upsert``.

    Keys, and beginnings of keys, that a subscriber asks for go into the query: up to 1,000, and beginnings as far as columns are text.

    Args:
        engine: A ``sqlalchemy.Engine``. Its connections are used by threads of the log; in SQLite that needs a file.
        rows: A ``Table`` or a ``select(...)``. A callable is given a version of the log, and answers a query as of that version.
        entity_type: The entity type of the rows.
        key: Name or names of the key's columns, unique and never null; an index on them makes pages cheap. A column that may be null by
            its definition costs a further query a page, for rows without a key.
        body: Makes the body of a row, which is given as a mapping; None for all columns.
        marker: See `SnapshotSource.mark`.
        page_rows: Most rows of a page, from 1 to 1,000,000.
        page_bytes: Bytes after which a page ends.

    Raises:
        ImportError: If SQLAlchemy is not installed.
        InvalidChange: If the entity type is invalid.
        InvalidOption: If another argument is invalid.
    """

    @names_arguments()
    def __init__(
        self,
        engine: "Engine",
        rows: "FromClause | Select[Any] | Callable[[int], FromClause | Select[Any]]",
        *,
        entity_type: str,
        key: str | Sequence[str],
        body: Callable[[Mapping[str, Any]], Mapping[str, Any] | bytes] = dict,
        marker: Callable[[], Commit | Position | int] | None = None,
        page_rows: int = 1_000,
        page_bytes: int = MIB,
    ) -> None:
        try:
            import sqlalchemy  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ImportError("SqlSource needs SQLAlchemy: pip install penstock-cdc[sql]") from error
        self._sql = sqlalchemy
        self.entity_type = entity_type
        self.page_rows = page_rows
        self.page_bytes = page_bytes
        self._key = (key,) if isinstance(key, str) else tuple(key)
        self._body = body
        self._marker = marker
        self._rows = rows
        self._engine = engine
        self.as_of: bool = not isinstance(rows, (sqlalchemy.FromClause, sqlalchemy.Select))
        check_source(self)
        check_engine(engine)
        if not callable(body):
            raise InvalidOption("body", body, "a callable that takes a mapping")
        if marker is not None and not callable(marker):
            raise InvalidOption("marker", marker, "a callable without arguments, or None")
        if self.as_of and not callable(rows):
            raise InvalidOption(
                "rows", rows, "a Table, a select(...), or a callable that makes one of a version"
            )
        if not self._key or not all(isinstance(name, str) for name in self._key):
            raise InvalidOption("key", key, "the name of a column, or several")
        if not self.as_of:
            self._columns(self._select(None))

    def read(self, request: PageRequest, /) -> Iterator[SourceRow]:
        """See `SnapshotSource.read`.

        Raises:
            SourceRowRefused: If a key is null, or there twice.
            SourceFailed: If a key has a ``/`` in a column before the last one, or a value is not of the type of its column.
        """
        query = self._select(request.version)
        columns = self._columns(query)
        # One more, so as to see whether the last one has a twin.
        statement = self._sql.select(query).order_by(*columns).limit(request.limit + 1)
        if request.after is not None:
            statement = statement.where(self._beyond(columns, self._values(columns, request.after)))
        if (narrow := self._narrow(columns, request)) is not None:
            statement = statement.where(narrow)
        if request.until is not None:
            last = self._values(columns, request.until)
            statement = statement.where(self._sql.not_(self._beyond(columns, last)))
        with self._engine.connect() as connection:
            self._refuse_nulls(connection, query, columns)
            rows = map(self._row, self._found(connection, statement))
            yield from islice(distinct_rows(self.entity_type, rows), request.limit)

    def _found(self, connection: "Connection", statement: "Select[Any]") -> Iterator[Any]:
        try:
            yield from connection.execute(statement).mappings()
        except (TypeError, ValueError, ArithmeticError) as error:
            why = (
                f"has a value that SQLAlchemy cannot read as the type of its column ({type(error).__name__}: {error}); leave the "
                "column out in a select(...), cast it to text, or give its type"
            )
            raise SourceFailed(self.entity_type, why, retryable=False) from error

    def _row(self, row: Any) -> SourceRow:
        values = [row[name] for name in self._key]
        parts = [key_text(bytes(one) if isinstance(one, memoryview) else one) for one in values]
        for name, part in zip(self._key[:-1], parts, strict=False):
            if "/" in part:
                why = f"has a row with a '/' in its column {name!r}, which another column of the key follows: {'/'.join(parts)!r:.120}"
                raise SourceFailed(self.entity_type, why, retryable=False)
        return "/".join(parts), self._body(cast("Mapping[str, Any]", row))

    def _refuse_nulls(
        self, connection: "Connection", query: "FromClause", columns: "list[ColumnElement[Any]]"
    ) -> None:
        """A row without a key is behind no other one, and would be in no page, or in the first one only."""
        nullable = [column for column in columns if getattr(column, "nullable", True)]
        if not nullable:
            return
        null = self._sql.or_(*(column.is_(None) for column in nullable))
        one = self._sql.select(self._sql.literal(1)).select_from(query).where(null).limit(1)
        if connection.execute(one).first() is not None:
            raise SourceRowRefused(self.entity_type, None)

    def mark(self) -> Commit | Position | int | None:
        """See `SnapshotSource.mark`."""
        return None if self._marker is None else self._marker()

    def _select(self, version: int | None) -> "FromClause":
        rows: Any = self._rows(version) if version is not None else self._rows  # type: ignore[operator]  # of a version
        return rows.subquery() if isinstance(rows, self._sql.Select) else rows

    def _columns(self, query: "FromClause") -> "list[ColumnElement[Any]]":
        for name in self._key:
            if name not in query.c:
                raise InvalidOption("key", name, f"one of the columns {', '.join(query.c.keys())}")
            kind = _python_type(query.c[name])
            if kind not in _READERS:
                what = "" if kind is None else f", and not of {kind.__name__}"
                known = ", ".join(sorted(one.__name__ for one in _READERS))
                right = f"a column whose values are one of {known}{what}; or cast it to text in a select(...)"
                raise InvalidOption("key", f"{name}, of {query.c[name].type!r}", right)
            if kind is bytes and name != self._key[-1]:
                right = "the last column of the key, as the text of bytes may contain the '/' that separates columns"
                raise InvalidOption("key", name, right)
            if kind is float and self._inexact(query.c[name]):
                right = "of double precision, as a shorter one is another number in Python; or cast in a select(...)"
                raise InvalidOption("key", name, right)
        return [query.c[name] for name in self._key]

    def _inexact(self, column: "ColumnElement[Any]") -> bool:
        """Whether numbers of a column may be compared unequal to what Python has read of them."""
        kind, name = column.type, self._engine.dialect.name
        double = isinstance(kind, self._sql.Double) or (getattr(kind, "precision", None) or 0) > 24
        return not double and name != "sqlite"

    def _values(self, columns: "Sequence[ColumnElement[Any]]", key: str) -> list[Any]:
        try:
            return self._taken_apart(columns, key.split("/", len(columns) - 1))
        except _NO_KEY:
            raise InvalidOption("key", key, f"a key of the columns {', '.join(self._key)}") from None

    def _taken_apart(self, columns: "Sequence[ColumnElement[Any]]", parts: Sequence[str]) -> list[Any]:
        """The values of columns, as typed parameters: some types have no literals that can be compared."""
        sql = self._sql
        return [
            sql.bindparam(None, _READERS[column.type.python_type](part), type_=column.type, unique=True)
            for column, part in zip(columns, parts, strict=True)
        ]

    def _narrow(
        self, columns: "Sequence[ColumnElement[Any]]", request: PageRequest
    ) -> "ColumnElement[bool] | None":
        """The condition that rows have one of the wanted keys; None for any. It may hold for more rows."""
        keys, heads = request.keys, request.heads
        if keys is None or heads is None or len(keys) + len(heads) > _KEYS_MAX:
            return None
        if not all(map(_sendable, (*keys, *heads))):
            return None
        sql = self._sql
        found: list[ColumnElement[bool]] = [sql.false()]
        found += [self._equal(columns, key.split("/", len(columns) - 1)) for key in keys]
        for head in heads:
            *whole, begun = head.split("/", len(columns) - 1)
            at = columns[len(whole)]
            begins = self._begins(at, begun) if at.type.python_type is str and begun else sql.true()
            found.append(sql.and_(self._equal(columns[: len(whole)], whole), begins))
        either: ColumnElement[bool] = sql.or_(*found)
        return either

    def _equal(self, columns: "Sequence[ColumnElement[Any]]", parts: Sequence[str]) -> "ColumnElement[bool]":
        try:
            values = self._taken_apart(columns, parts)
        except _NO_KEY:
            return self._sql.false()  # no row has such a key
        if any(
            isinstance(one.value, int) and not _INTEGERS[0] <= one.value <= _INTEGERS[1] for one in values
        ):
            return self._sql.true()  # for the columns to compare that hold such numbers
        return self._sql.and_(
            self._sql.true(), *(one == value for one, value in zip(columns, values, strict=True))
        )

    def _begins(self, column: "ColumnElement[Any]", text: str) -> "ColumnElement[bool]":
        if self._engine.dialect.name == "sqlite":  # where GLOB uses an index, and LIKE none
            return column.op("GLOB", is_comparison=True)(text.translate(_GLOBS) + "*")
        return column.startswith(text, autoescape=True)

    def _beyond(self, columns: "Sequence[ColumnElement[Any]]", values: list[Any]) -> "ColumnElement[bool]":
        """Whether a row comes behind a key; in plain comparisons, which every dialect knows."""
        first: ColumnElement[Any] = columns[0]
        value = values[0]
        beyond: ColumnElement[bool] = first > value
        if len(columns) == 1:
            return beyond
        further = self._sql.and_(first == value, self._beyond(columns[1:], values[1:]))
        return self._sql.or_(beyond, further)


def _sendable(text: str) -> bool:
    """Whether every database takes a text."""
    return "\0" not in text and encodable(text)


def _python_type(column: "ColumnElement[Any]") -> type | None:
    """The Python type of the values; None if SQLAlchemy does not know it, as of GEOMETRY."""
    try:
        return column.type.python_type
    except NotImplementedError:
        return None


def check_engine(engine: Any) -> None:
    """Refuses an object that is no engine of SQLAlchemy for threads.

    Raises:
        InvalidOption: If it is not; for an ``AsyncEngine`` it tells how to make one.
    """
    import sqlalchemy  # noqa: PLC0415 - the extra, which the caller has found

    if isinstance(engine, sqlalchemy.Engine):
        return
    right = "a sqlalchemy.Engine"
    if isinstance(getattr(engine, "sync_engine", None), sqlalchemy.Engine):
        name = engine.dialect.name
        right += f", for threads; write, beside the AsyncEngine: sqlalchemy.create_engine('{name}://...')"
    raise InvalidOption("engine", engine, right)

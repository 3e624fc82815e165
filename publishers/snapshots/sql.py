"""Rows of a table or a query, by SQLAlchemy Core (the extra ``sql``)."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from publishers.commits import Commit
from publishers.errors import InvalidOption, SourceRowRefused
from publishers.lossless import key_text
from publishers.model.position import Position
from publishers.options import MIB
from publishers.snapshots.source import PageRequest, SourceRow, check_source, distinct_rows

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Engine, FromClause, Select

__all__ = ["SqlSource"]

_READERS: Final[Mapping[type, Callable[[str], Any]]] = {
    str: str,
    int: int,
    Decimal: Decimal,
    UUID: UUID,
    dt.date: dt.date.fromisoformat,
    dt.datetime: dt.datetime.fromisoformat,
}
"""By the Python type of a key column: what reads the text of a key."""

_NO_KEY: Final = (ValueError, InvalidOperation)


class SqlSource:
    """Rows of a table or a query, read by pages of keys: ``WHERE key > :last ORDER BY key LIMIT :n``. No transaction outlives a page.

    The text of a key is that of a `ChangeSink`, whatever the time zone of the connection: times with microseconds, those with a time
    zone as of UTC (``2026-01-02T03:04:05.000000Z``), decimals in plain notation. Several columns are joined by ``/``. Only whole numbers and UUIDs may be among
    several columns before the last one, so that the text can be taken apart. It has to be what writers give to ``upsert``.

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
        self.as_of = not isinstance(rows, (sqlalchemy.FromClause, sqlalchemy.Select))
        check_source(self)
        if not isinstance(engine, sqlalchemy.Engine):
            raise InvalidOption("engine", engine, "a sqlalchemy.Engine")
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
        """
        query = self._select(request.version)
        columns = self._columns(query)
        # One more, so as to see whether the last one has a twin.
        statement = self._sql.select(query).order_by(*columns).limit(request.limit + 1)
        if request.after is not None:
            statement = statement.where(self._beyond(columns, self._values(columns, request.after)))
        if request.until is not None:
            last = self._values(columns, request.until)
            statement = statement.where(self._sql.not_(self._beyond(columns, last)))
        with self._engine.connect() as connection:
            self._refuse_nulls(connection, query, columns)
            rows = map(self._row, connection.execute(statement).mappings())
            yield from islice(distinct_rows(self.entity_type, rows), request.limit)

    def _row(self, row: Any) -> SourceRow:
        parts = [row[name] for name in self._key]
        return "/".join(map(key_text, parts)), self._body(cast("Mapping[str, Any]", row))

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
            if (kind := query.c[name].type.python_type) not in _READERS:
                raise InvalidOption(
                    "key", name, f"a column of text or whole numbers, and not of {kind.__name__}"
                )
            if name is not self._key[-1] and kind not in (int, UUID):
                raise InvalidOption("key", name, "of whole numbers or UUIDs, as other columns follow it")
        return [query.c[name] for name in self._key]

    def _values(self, columns: "Sequence[ColumnElement[Any]]", key: str) -> list[Any]:
        parts = key.split("/", len(columns) - 1)
        try:
            pairs = zip(columns, parts, strict=True)
            return [_READERS[column.type.python_type](part) for column, part in pairs]
        except _NO_KEY:
            raise InvalidOption("key", key, f"a key of the columns {', '.join(self._key)}") from None

    def _beyond(self, columns: "Sequence[ColumnElement[Any]]", values: list[Any]) -> "ColumnElement[bool]":
        """Whether a row comes behind a key; in plain comparisons, which every dialect knows."""
        first: ColumnElement[Any] = columns[0]
        value = values[0]
        beyond: ColumnElement[bool] = first > value
        if len(columns) == 1:
            return beyond
        further = self._sql.and_(first == value, self._beyond(columns[1:], values[1:]))
        return self._sql.or_(beyond, further)

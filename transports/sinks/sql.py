"""Keeps entities as rows of PostgreSQL or SQLite, effectively once: the position is stored with the rows (the extra ``sql``)."""

import contextlib
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import sqlalchemy as sa

from publishers.errors import InvalidOption
from publishers.model.change import Change
from publishers.model.errors import HIDDEN
from publishers.model.position import Position
from publishers.views.view import Images
from transports.sinks.bounded import ANSWER_BYTES, AnswerBound
from transports.sinks.errors import TargetRefused, TargetUnavailable
from transports.sinks.retry import check_seconds
from transports.sinks.secrets import SecretReference
from transports.sinks.sink import (
    EntityEffect,
    EntitySpace,
    ItemResult,
    SinkBatch,
    SinkContext,
    SinkGap,
    Unfit,
    effect_of,
)
from transports.sinks.sql_places import SqlPlaces
from transports.sinks.sql_table import IDENTIFIERS, EntityTable, NameTaken, SqlTable, check_identifier
from transports.sinks.tls import TargetTls

__all__ = ["SqlSink", "SqlTable"]


# Classes of SQLSTATE: triggered actions, data, integrity, external routines, WITH CHECK OPTION, limits, PL/pgSQL's RAISE, and
# those that are left to users, who may raise them in triggers.
_OF_VALUES: Final = re.compile(r"09|2[237]|3[89]|44|54|P0|[6-9I-OQ-WYZ]")


def _refuses_values(error: Exception) -> bool:
    """Whether a statement with other values may succeed: a value does not fit, a constraint is violated, or a trigger raises."""
    if not isinstance(error, sa.exc.StatementError):
        return isinstance(error, ValueError | ArithmeticError)  # of a driver that cannot pass the value on
    if not isinstance(error, sa.exc.DBAPIError):
        return True  # of SQLAlchemy, which cannot convert the value
    if isinstance(error, sa.exc.IntegrityError | sa.exc.DataError):
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return not error.connection_invalidated and _OF_VALUES.match(state) is not None
    return "binding parameter" in str(error.orig)


def _said_of(error: Exception) -> str:
    """Returns the message of the database, without the statement and its values."""
    origin = getattr(error, "orig", None)
    return " ".join(str(error if origin is None else origin).split())


_URLS: Final = "postgresql://HOST/DATABASE, sqlite:///FILE, or a reference to one: env:NAME or file:PATH"
_LATER: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_NOMEM,
    }
)  # fmt: skip
_READ_ONLY: Final = "25006"  # a PostgreSQL standby: a primary will take over
_PURGE_EVERY: Final = 60.0  # seconds
_Bad = tuple[int, str]  # the place of a refused change in its batch, and the error


@dataclass(frozen=True, slots=True)
class _Step:
    """The effect of one change."""

    place: int
    table: EntityTable
    effect: EntityEffect
    key: str | None
    parameters: dict[str, Any]


class SqlSink:
    """Keeps the newest state of each entity as a row.

    An UPSERT replaces the row and a REMOVE deletes it, unless the row is of a later position. Rows and position are written in one
    transaction, so nothing is lost or applied twice. A replaced sender writes nothing.

    Args:
        url: ``postgresql://USER:PASSWORD@HOST/DATABASE``, ``sqlite:///FILE``, or a reference: ``env:NAME`` or ``file:PATH``.
        tables: The table, or its name, of each entity type; other types are skipped, and no two share one. None: each type has a table
            of its name.
        create_tables: Whether to create missing tables; columns of fields are texts then.
        tombstone_ttl: Seconds for which the row of a removed entity stays, from 1; None: it is deleted at once.
        places: The table of the positions; several sinks may share it.
        gaps: The table of the gaps from while a sink was off; several sinks may share it.
        writers: The table that says which sink writes which table, so that no two write one; sinks share it. Optional without
            ``create_tables``.
        timeout: Seconds in which the database must answer, from 0.05 to 600. PostgreSQL ends a statement after that; a connection is
            closed when a transaction takes one and a half times as long and a second, or its answers have more than 4 MiB.
        tls: TLS to PostgreSQL, without which a connection is refused then. None for what the URL says.

    Raises:
        InvalidOption: If an argument is out of its bounds.
        ImportError: If the driver of PostgreSQL is not installed.
    """

    stores_position: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True
    partial: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    keeps_entities: ClassVar[bool] = True
    images: ClassVar[Images | None] = Images.AFTER

    def __init__(
        self,
        url: str,
        tables: Mapping[str, SqlTable | str] | None = None,
        *,
        create_tables: bool = False,
        tombstone_ttl: float | None = None,
        places: str = "penstock_places",
        gaps: str = "penstock_gaps",
        writers: str = "penstock_writers",
        timeout: float = 15.0,
        tls: TargetTls | None = None,
    ) -> None:
        kept = isinstance(url, str) and url.startswith(("env:", "file:"))
        self._kept_url = SecretReference(url) if kept else None
        self._url = None if kept else _url(url)
        check_seconds("timeout", timeout, 0.05, 600.0)
        if tombstone_ttl is not None:
            check_seconds("tombstone_ttl", tombstone_ttl, 1.0, 10 * 366 * 86400.0)
        if tables is not None and not isinstance(tables, Mapping):
            raise InvalidOption("tables", tables, "entity types, with the table of each")
        self._declared = None if tables is None else {kind: _table(one) for kind, one in tables.items()}
        _check_apart(self._declared or {})
        self._create, self._ttl, self._timeout = create_tables, tombstone_ttl, float(timeout)
        self._bound = AnswerBound(self._timeout * 1.5 + 1.0, ANSWER_BYTES)  # later than the server's own
        self._tls = tls
        self._places = SqlPlaces(places, gaps, writers, create=create_tables)
        self._new = False
        self._tables: dict[str, EntityTable | None] = {}
        self._engine: sa.Engine | None = None
        self._connection: sa.Connection | None = None
        self._context: SinkContext | None = None
        self._purged = 0.0

    def __repr__(self) -> str:
        return f"<SqlSink {self._shown}>"

    def open(self, context: SinkContext) -> Position | None:
        """See `Sink.open`.

        Raises:
            TargetTakenOver: If a later opening of the slot has written.
            TargetOfOtherHistory: If the stored position is not of this log's history.
            HistoryPruned: If the changes behind it are no longer kept.
        """
        self._context = context
        if self._kept_url is not None:
            try:
                self._url = _url(self._kept_url.value())
            except (InvalidOption, ImportError) as error:
                raise TargetRefused(f"{self._kept_url}: {error}") from None
        self._engine = self._made_engine()
        with self._transaction() as connection:
            text = self._places.take_over(connection, context)
        self._new = text is None
        if text is None:
            return None
        return context.place_of(text, f"the place in {self._places.places.name}", "the tables")

    def write(self, batch: SinkBatch) -> Sequence[ItemResult] | None:
        """See `Sink.write`. Writes up to the first misfit change, so that the stored position never passes one."""
        steps, bad = self._steps(batch)
        bad = self._write(steps, batch, _end(batch, bad)) or bad
        return None if bad is None else batch.refused_at(*bad)

    def space(self, entity_type: str) -> EntitySpace | None:
        """See `Sink`."""
        table = self._spec_of(entity_type)
        return None if table is None else EntitySpace("table", self._full_name(table))

    def _full_name(self, table: SqlTable) -> str:
        assert self._engine is not None
        schema = table.schema or self._engine.dialect.default_schema_name
        folds = self._engine.dialect.name == "sqlite"
        return f"{schema}.{table.name.lower() if folds else table.name}"

    def flush(self) -> None:
        """See `Sink.flush`: what was committed is durable. Deletes expired tombstones now and then."""
        if self._ttl is None:
            return
        now = self._opened.clock.monotonic()
        if now - self._purged >= min(_PURGE_EVERY, self._ttl):
            self._purged = now
            before = self._opened.clock.now_us() - int(self._ttl * 1e6)
            with self._transaction() as connection:
                for table in self._tables.values():
                    if table is not None:
                        table.purge(connection, before)

    def move(self, position: Position) -> None:
        """See `Sink.move`."""
        with self._transaction() as connection:
            self._places.store(connection, self._opened, position)

    def close(self) -> None:
        """See `Sink.close`."""
        self._let_go()
        engine, self._engine = self._engine, None
        self._tables = {}
        if engine is not None:
            engine.dispose()

    def alive(self) -> bool:
        """See `Sink.alive`."""
        try:
            with self._transaction() as connection:
                connection.execute(sa.select(self._places.places.c.place).limit(1))
        except (TargetUnavailable, TargetRefused):
            return False
        return True

    # Connections.

    @property
    def _opened(self) -> SinkContext:
        assert self._context is not None
        return self._context

    @property
    def _shown(self) -> str:
        if self._kept_url is not None:
            return str(self._kept_url)
        assert self._url is not None
        return self._url.set(query={}).render_as_string(hide_password=True)

    def _made_engine(self) -> sa.Engine:
        assert self._url is not None
        if self._url.get_backend_name() == "sqlite":
            arguments: dict[str, Any] = {"timeout": self._timeout, "check_same_thread": False}
        else:
            arguments = {"connect_timeout": max(int(self._timeout), 2)}
            arguments["application_name"] = f"penstock {self._opened.name}"
            if self._tls is not None:
                self._tls.warn(self._opened.name, self._shown)
                arguments |= self._tls.for_postgresql(self._url.host, self._url.port)
        engine = sa.create_engine(
            self._url, poolclass=sa.NullPool, connect_args=arguments, hide_parameters=True
        )
        if engine.dialect.name == "postgresql":
            sa.event.listen(engine, "do_connect", self._connect)
        return engine

    def _connect(self, _dialect: Any, _record: Any, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        from transports.sinks.sql_connection import bounded_connection  # noqa: PLC0415 - the extra postgresql

        made = bounded_connection(self._bound, *arguments, **options)
        self._bound.begin()
        return made

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """A transaction on the one connection, which is closed after an error."""
        committing = False
        try:
            if self._connection is None:
                assert self._engine is not None
                self._connection = self._connected(self._engine)
            self._bound.begin()
            with self._connection.begin():
                yield self._connection
                committing = True
        except Exception as error:
            if committing:
                self._let_go()  # SQLite keeps a transaction open whose commit it refuses
            if _refuses_values(error):
                raise _Misfit(_said_of(error)) from None
            self._let_go()
            if not isinstance(error, sa.exc.SQLAlchemyError):
                raise
            raise self._judged(error) from None
        except BaseException:
            self._let_go()
            raise

    def _connected(self, engine: sa.Engine) -> sa.Connection:
        try:
            connection = engine.connect()
        except (sa.exc.SQLAlchemyError, TargetRefused):
            raise
        except Exception as error:  # noqa: BLE001 - SQLAlchemy raises anything for a version that is none
            raise TargetUnavailable(f"{self._shown}: {type(error).__name__}: {error}") from None
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET statement_timeout = {int(self._timeout * 1000)}")
            connection.commit()
        return connection

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                connection.invalidate()
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                connection.close()

    def _judged(self, error: sa.exc.SQLAlchemyError) -> Exception:
        why = f"{self._shown}: {_said_of(error)}"
        if not isinstance(error, sa.exc.DBAPIError):
            return TargetRefused(why)
        code = getattr(error.orig, "sqlite_errorcode", None)
        if code is not None:
            later = code & 0xFF in _LATER
        else:
            state = getattr(error.orig, "sqlstate", None)
            # An answer that is none has no state; of what the driver refuses itself only this can be the server's fault.
            nonsense = state is None and not isinstance(
                error, sa.exc.ProgrammingError | sa.exc.NotSupportedError
            )
            later = isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError) or nonsense
            later = later or error.connection_invalidated or state == _READ_ONLY
        return TargetUnavailable(why) if later else TargetRefused(why)

    # Rows.

    def _steps(self, batch: SinkBatch) -> tuple[list[_Step], _Bad | None]:
        """Returns the effects of the changes, up to the first misfit."""
        now, steps = self._opened.clock.now_us(), []
        for place, change in enumerate(batch.changes):
            effect = effect_of(change)
            try:
                table = None if effect is EntityEffect.NONE else self._table_of(change)
                if table is not None:
                    given = table.parameters(change, effect, now)
                    steps.append(_Step(place, table, effect, change.key, given))
            except Unfit as error:
                return steps, (place, str(error))
        return steps, None

    def _table_of(self, change: Change) -> EntityTable | None:
        kind = change.entity_type
        if kind is None:
            return None
        if kind not in self._tables:
            table = self._spec_of(kind)
            if table is None and self._declared is None:
                raise Unfit(f"no table has the name of its entity type: {kind!r} is not {IDENTIFIERS}")
            try:
                self._tables[kind] = None if table is None else self._found(table)
            except NameTaken as error:
                raise Unfit(str(error)) from None
        return self._tables[kind]

    def _spec_of(self, entity_type: str) -> SqlTable | None:
        """Returns the declaration of the table of an entity type; None if it has none, or if none can have its name."""
        if self._declared is not None:
            return self._declared.get(entity_type)
        try:
            return SqlTable(name=entity_type)
        except InvalidOption:
            return None

    def _found(self, table: SqlTable) -> EntityTable:
        assert self._engine is not None
        folds = self._engine.dialect.name == "sqlite"
        if table.schema is None and self._places.owns(table.name, folds=folds):
            raise NameTaken(f"no entity type has the table {table.name}: it is one of the sink's own")
        with self._transaction() as connection:
            made = EntityTable(table, connection, create=self._create, tombstones=self._ttl is not None)
            foreign = self._new and made.written(connection)
            self._places.claim(connection, self._opened, self._full_name(table), foreign=foreign)
        return made

    def _apply(self, steps: Sequence[_Step], place: Position, gap: SinkGap | None) -> None:
        """Applies all steps in one transaction; only the last step of each entity is executed."""
        clears: dict[EntityTable, _Step] = {}
        last: dict[tuple[EntityTable, str | None], _Step] = {}
        for step in steps:
            if step.effect is EntityEffect.CLEAR:
                clears[step.table] = step
                last = {one: each for one, each in last.items() if one[0] is not step.table}
            else:
                last[step.table, step.key] = step
        grouped: dict[tuple[EntityTable, EntityEffect], list[dict[str, Any]]] = {}
        for step in (*clears.values(), *last.values()):
            grouped.setdefault((step.table, step.effect), []).append(step.parameters)
        with self._transaction() as connection:
            self._places.store(connection, self._opened, place, gap)
            for (table, effect), given in grouped.items():
                connection.execute(table.statement(effect), given)

    def _write(self, steps: Sequence[_Step], batch: SinkBatch, end: Position) -> _Bad | None:
        """Applies steps up to the first one that the database refuses, which is returned; ``end`` is the position behind them."""
        try:
            self._apply(steps, end, batch.gap)
        except _Misfit as error:
            if not steps:
                raise
            if len(steps) == 1:
                bad = steps[0].place, error.why
                self._apply((), _end(batch, bad), batch.gap)
                return bad
        else:
            return None
        try:
            return self._apply_singly(steps, batch, end)
        except (
            _Misfit
        ):  # of the commit, or of a trigger that ends the transaction: halves tell which step is the reason
            cut = _cut(steps, batch)
            middle = batch.changes[steps[cut].place].position
            return self._write(steps[:cut], batch, middle) or self._write(steps[cut:], batch, end)

    def _apply_singly(self, steps: Sequence[_Step], batch: SinkBatch, end: Position) -> _Bad | None:
        """Applies the steps one by one in one transaction, up to the first one that the database refuses."""
        with self._transaction() as connection:
            self._places.store(connection, self._opened, end, batch.gap)
            for step in steps:
                nested = connection.begin_nested()
                try:
                    connection.execute(step.table.statement(step.effect), step.parameters)
                except Exception as error:
                    if not _refuses_values(error):
                        raise
                    try:
                        nested.rollback()
                    except sa.exc.SQLAlchemyError:
                        raise error from None  # a trigger has ended the transaction
                    bad = step.place, _said_of(error)
                    self._places.store(connection, self._opened, _end(batch, bad))
                    return bad
                nested.commit()
        return None


class _Misfit(TargetRefused):
    """The database refuses a value."""


def _cut(steps: Sequence[_Step], batch: SinkBatch) -> int:
    """Returns where to cut steps in two: between transactions of the log, as constraints may hold only behind a whole one."""
    versions = [batch.changes[step.place].version for step in steps]
    cuts = [cut for cut in range(1, len(steps)) if versions[cut - 1] != versions[cut]]
    middle = len(steps) // 2
    return min(cuts, key=lambda cut: abs(cut - middle), default=middle)


def _end(batch: SinkBatch, bad: _Bad | None) -> Position:
    return batch.next if bad is None else batch.changes[bad[0]].position


def _url(text: object) -> sa.URL:
    try:
        url = sa.make_url(text)  # type: ignore[arg-type]  # whatever it is, it is judged
    except (sa.exc.ArgumentError, ValueError, TypeError, AttributeError):
        raise InvalidOption("url", HIDDEN, _URLS) from None
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        import psycopg  # noqa: F401, PLC0415 - the extra postgresql

        return url.set(drivername="postgresql+psycopg")
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        return url
    raise InvalidOption("url", url.drivername, _URLS)


def _table(table: SqlTable | str) -> SqlTable:
    return table if isinstance(table, SqlTable) else SqlTable(name=check_identifier("tables", table))


def _check_apart(tables: Mapping[str, SqlTable]) -> None:
    """Raises ``InvalidOption`` if two entity types have one table; schemas and letters that a database takes for equal are judged later."""
    kinds: dict[tuple[str | None, str], str] = {}
    for kind, table in tables.items():
        other = kinds.setdefault((table.schema, table.name), kind)
        if other != kind:
            raise InvalidOption("tables", table.name, f"a table of its own for each of {other} and {kind}")

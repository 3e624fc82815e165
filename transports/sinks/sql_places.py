"""What a database keeps of sinks besides their rows: their positions, each moved by one sender only, their gaps and their tables."""

import logging
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from publishers.model.position import Position
from transports.sinks.errors import TargetRefused, TargetTakenOver
from transports.sinks.sink import SinkContext, SinkGap
from transports.sinks.sql_table import check_identifier

__all__ = ["SqlPlaces"]

_LOG: Final = logging.getLogger("penstock.sinks")


class SqlPlaces:
    """The tables of positions, gaps and writers, which several sinks may share.

    Args:
        places: The name of the table of positions.
        gaps: The name of the table of gaps: a row for each time that changes were left out while a sink was off.
        writers: The name of the table that says which sink writes which table.
        create: Whether to create missing tables.

    Raises:
        InvalidOption: If a name is invalid.
    """

    def __init__(self, places: str, gaps: str, writers: str, *, create: bool) -> None:
        self._create = create
        self._claims = True  # whether the table of writers is there
        self.places: sa.Table = sa.Table(
            check_identifier("places", places),
            sa.MetaData(),
            sa.Column("log_id", sa.String(32), primary_key=True),
            sa.Column("sink", sa.String(64), primary_key=True),
            sa.Column("place", sa.Text()),
            sa.Column("generation", sa.BigInteger(), nullable=False),
        )
        self._gaps = sa.Table(
            check_identifier("gaps", gaps),
            sa.MetaData(),
            sa.Column("log_id", sa.String(32), primary_key=True),
            sa.Column("sink", sa.String(64), primary_key=True),
            sa.Column("first", sa.String(128), primary_key=True),
            sa.Column("next", sa.String(128), nullable=False),
        )
        self._writers = sa.Table(
            check_identifier("writers", writers),
            sa.MetaData(),
            sa.Column("table_name", sa.Text(), primary_key=True),
            sa.Column("log_id", sa.String(32), nullable=False),
            sa.Column("sink", sa.String(64), nullable=False),
        )

    def owns(self, name: str, *, folds: bool) -> bool:
        """Whether a table is one of these.

        Args:
            name: The name of the table.
            folds: Whether small and capital letters are the same.
        """
        own = (self.places.name, self._gaps.name, self._writers.name)
        return name.lower() in map(str.lower, own) if folds else name in own

    def take_over(self, connection: sa.Connection, context: SinkContext) -> str | None:
        """Returns the position, which from now on only this opening of the slot may move.

        Raises:
            TargetRefused: If a table is missing.
            TargetTakenOver: If a later opening of the slot has written.
        """
        self._find(connection, context)
        places = self.places
        mine = sa.and_(places.c.log_id == context.log_id, places.c.sink == context.name)
        if context.generation:
            row = {"log_id": context.log_id, "sink": context.name, "generation": context.generation}
            put = _insert(connection, places).values(row)
            connection.execute(
                put.on_conflict_do_update(
                    index_elements=[places.c.log_id, places.c.sink],
                    set_={"generation": put.excluded.generation},
                    where=places.c.generation <= put.excluded.generation,
                )
            )
        found = connection.execute(sa.select(places.c.place, places.c.generation).where(mine)).first()
        if found is None:
            return None
        if context.generation and found.generation != context.generation:
            raise TargetTakenOver(self._replaced(context), found.generation)
        place: str | None = found.place
        return place

    def store(
        self, connection: sa.Connection, context: SinkContext, place: Position, gap: SinkGap | None = None
    ) -> None:
        """Moves the position; first in its transaction, so that another sender waits for the row and is then refused.

        Args:
            connection: A connection in a transaction.
            context: The context of the sink.
            place: The new position.
            gap: The gap before it; written once, however often it is passed.

        Raises:
            TargetRefused: If a later opening of the slot has written.
        """
        places, gaps = self.places, self._gaps
        done = connection.execute(
            sa.update(places)
            .where(
                places.c.log_id == context.log_id,
                places.c.sink == context.name,
                places.c.generation == context.generation,
            )
            .values(place=context.token(place))
        )
        if done.rowcount != 1:
            raise TargetRefused(self._replaced(context))
        if gap is not None:
            row = {"log_id": context.log_id, "sink": context.name, "first": gap.first, "next": gap.next}
            put = _insert(connection, gaps).values(row)
            connection.execute(
                put.on_conflict_do_update(
                    index_elements=list(gaps.primary_key.columns), set_={"next": put.excluded.next}
                )
            )

    def claim(self, connection: sa.Connection, context: SinkContext, table: str, *, foreign: bool) -> None:
        """Notes that the sink writes a table.

        Args:
            connection: A connection in a transaction.
            context: The context of the sink.
            table: The table, with its schema.
            foreign: Whether the table has rows, and the sink has written none yet.

        Raises:
            TargetRefused: If another sink writes the table, or has written it; not without the table of writers.
        """
        writers, mine = self._writers, (context.log_id, context.name)
        if self._claims:
            row = {"table_name": table, "log_id": context.log_id, "sink": context.name}
            put = _insert(connection, writers).values(row)
            put = put.on_conflict_do_nothing(index_elements=[writers.c.table_name])
            unclaimed = connection.execute(put.returning(writers.c.sink)).first() is not None
        else:
            unclaimed = self._has_others(connection, context)
        if unclaimed and foreign:
            raise TargetRefused(
                f"table {table} has rows with positions of another sink or another log, beside which those of sink {context.name!r} "
                "would seem old: empty the table, or give the sink a table of its own"
            )
        if unclaimed or not self._claims:
            return
        found = connection.execute(
            sa.select(writers.c.log_id, writers.c.sink).where(writers.c.table_name == table)
        ).one()
        if (found.log_id, found.sink) != mine:
            other = "this log" if found.log_id == context.log_id else f"log {found.log_id}"
            raise TargetRefused(
                f"table {table} is that of sink {found.sink!r} of {other}, and each would overwrite and truncate what the other wrote: "
                f"give each sink a table of its own; if that sink is gone, empty the table and delete its row from {writers.name}"
            )

    def _has_others(self, connection: sa.Connection, context: SinkContext) -> bool:
        """Returns whether another sink, or a sink of another log, has a position here."""
        places = self.places
        mine = sa.and_(places.c.log_id == context.log_id, places.c.sink == context.name)
        others = sa.select(places.c.sink).where(sa.not_(mine), places.c.place.is_not(None)).limit(1)
        return connection.execute(others).first() is not None

    def _find(self, connection: sa.Connection, context: SinkContext) -> None:
        if self._create:
            for table in (self.places, self._gaps, self._writers):
                connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
            return
        there = sa.inspect(connection)
        missing = [one for one in (self.places, self._gaps) if not there.has_table(one.name)]
        if missing:
            names, made = (
                ", ".join(one.name for one in missing),
                "; ".join(_made(connection, one) for one in missing),
            )
            raise TargetRefused(f"there is no table {names}: {made}")
        self._claims = there.has_table(self._writers.name)
        if not self._claims:
            _LOG.warning(
                "sink %s: without table %s another sink that writes its tables is not noticed: %s",
                context.name,
                self._writers.name,
                _made(connection, self._writers),
            )

    def _replaced(self, context: SinkContext) -> str:
        return f"another runner has taken over the place of sink {context.name} in {self.places.name}"


def _made(connection: sa.Connection, table: sa.Table) -> str:
    return " ".join(str(sa.schema.CreateTable(table).compile(connection)).split())


def _insert(connection: sa.Connection, table: sa.Table) -> Any:
    make: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return make(table)

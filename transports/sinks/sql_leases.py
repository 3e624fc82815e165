"""A lease among hosts: a row of a SQL table that contenders compare and set (the extra ``sql``)."""

from typing import TYPE_CHECKING, Any

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import InvalidOption
from publishers.snapshots.sql import check_engine

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table

__all__ = ["SqlLeases"]


class SqlLeases:
    """A lease among all processes that reach one database; see `LeaseStore`.

    Clocks of different hosts are never compared. The holder increments the ``beat`` of the row. A contender that has seen one beat
    unchanged for the duration of a lease, by its own monotonic clock, sets the next epoch on condition that the beat is still
    the same.

    Args:
        engine: A ``sqlalchemy.Engine``.
        name: The name of the lease, 1 to 200 characters; one row.
        table: The name of the table: ``name`` (text, primary key), ``epoch`` and ``beat`` (64 bits), ``holder`` (text).
        create: Whether to create a missing table, at the first attempt to acquire the lease.
        clock: The clock of this contender.

    Raises:
        ImportError: If SQLAlchemy is not installed.
        InvalidOption: If the engine or the name is invalid.
    """

    def __init__(
        self,
        engine: "Engine",
        name: str,
        *,
        table: str = "penstock_leases",
        create: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not isinstance(name, str) or not 1 <= len(name) <= 200:
            raise InvalidOption("name", name, "a text of 1 to 200 letters")
        self._engine, self._name, self._clock = engine, name, clock
        self._rows = _table(table)
        check_engine(engine)
        self._seen: tuple[int, int] | None = None
        self._since = 0.0
        self._create = create

    def acquire(self, holder: str, seconds: float) -> int | None:
        """See `LeaseStore.acquire`. Errors of the database propagate."""
        from sqlalchemy import insert, select  # noqa: PLC0415 - the extra
        from sqlalchemy.exc import IntegrityError  # noqa: PLC0415 - the extra

        if self._create:
            self._rows.create(self._engine, checkfirst=True)
            self._create = False
        rows = self._rows.c
        with self._engine.begin() as connection:
            row = connection.execute(
                select(rows.epoch, rows.beat, rows.holder).where(rows.name == self._name)
            ).one_or_none()
            if row is not None:
                if row.holder and not self._silent((row.epoch, row.beat), seconds):
                    return None
                taken = self._set(connection, row.epoch, row.beat, epoch=row.epoch + 1, holder=holder)
                return row.epoch + 1 if taken else None
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(self._rows).values(name=self._name, epoch=1, beat=1, holder=holder))
        except IntegrityError:  # another contender was first
            return None
        return 1

    def renew(self, epoch: int) -> bool:
        """See `LeaseStore.renew`."""
        with self._engine.begin() as connection:
            return self._set(connection, epoch, None)

    def release(self, epoch: int) -> None:
        """See `LeaseStore.release`."""
        with self._engine.begin() as connection:
            self._set(connection, epoch, None, holder="")

    def close(self) -> None:
        """See `LeaseStore.close`; the engine stays open, because its user owns it."""

    def _silent(self, seen: tuple[int, int], seconds: float) -> bool:
        """Returns whether a holder's row has not changed for that long."""
        now = self._clock.monotonic()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= seconds

    def _set(self, connection: "Connection", epoch: int, beat: int | None, /, **values: Any) -> bool:
        """Changes the row if it still has that epoch, and that beat; returns whether it had."""
        from sqlalchemy import update  # noqa: PLC0415 - the extra

        rows = self._rows.c
        wanted = update(self._rows).where(rows.name == self._name, rows.epoch == epoch)
        if beat is not None:
            wanted = wanted.where(rows.beat == beat)
        return connection.execute(wanted.values(beat=rows.beat + 1, **values)).rowcount == 1


def _table(name: str) -> "Table":
    from sqlalchemy import BigInteger, Column, MetaData, String, Table  # noqa: PLC0415 - the extra

    return Table(
        name,
        MetaData(),
        Column("name", String(200), primary_key=True),
        Column("epoch", BigInteger, nullable=False),
        Column("beat", BigInteger, nullable=False),
        Column("holder", String(200), nullable=False),
    )

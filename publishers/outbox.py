"""An outbox: a table that the transactions of a database fill, and the relay that moves its rows to a log (the extra ``sql``)."""

import logging
import threading
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakKeyDictionary

from flow.misuse import names_arguments
from publishers.background import start_thread
from publishers.commits.errors import OutboxBehind
from publishers.commits.label import check_producer
from publishers.errors import InvalidChange, InvalidOption, PenstockError
from publishers.log.changelog import ChangeLog
from publishers.mutations.mutation import Mutation, remove, upsert
from publishers.options import check_whole
from publishers.snapshots.sql import check_engine

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Engine, Table
    from sqlalchemy.orm import Session

__all__ = ["Outbox"]

_LOG: Final = logging.getLogger("penstock.outbox")
_WRITTEN: Final = "penstock.outbox"  # in the ``info`` of a connection: something was committed on it

_turns_lock: Final = threading.Lock()
_turns: Final[WeakKeyDictionary[ChangeLog, dict[str, threading.RLock]]] = WeakKeyDictionary()


class Outbox:
    """Moves the rows of an outbox table to a log: each committed row once, in the order of their ids.

    A transaction that changes the application's tables also calls ``upsert`` or ``remove``, last, on the same connection. The
    relay numbers rows as a batch, commits the batch to the log under its number, and deletes the rows. So it may be killed at
    any point. One relay at a time works on a producer of a log, whatever the number of threads and of objects: a batch is
    numbered, committed and deleted before the next.

    As a context manager, or after ``start``, it relays on a thread: after each commit of a connection of ``engine``, once that
    is back in its pool, and every ``idle`` seconds, for rows of other programs. Without it, ``relay`` and ``wait`` work on the
    calling thread.

    Args:
        engine: A ``sqlalchemy.Engine`` of the application's database.
        log: The log, open for writing.
        table: The name of the table; other programs insert ``entity_type``, ``key`` and ``body``, which is JSON, or null for a removal.
        producer: The name under which batches are committed; None for that of the table. Each table needs its own.
        most: Most rows of a batch, from 1 to 10,000; each batch is one version.
        idle: Seconds until the thread looks again without a commit, and after an error.

    Attributes:
        table: The ``sqlalchemy.Table``; ``outbox.table.create(engine, checkfirst=True)`` makes it, or a migration of yours.
        error: The error of the thread's last attempt; None if that succeeded.

    Raises:
        ImportError: If SQLAlchemy is not installed.
        InvalidOption, InvalidChange: If an argument is invalid.
        LogReadOnly, LogClosed: If the log is not open for writing.
    """

    @names_arguments()
    def __init__(
        self,
        engine: "Engine",
        log: ChangeLog,
        *,
        table: str = "outbox",
        producer: str | None = None,
        most: int = 1_000,
        idle: float = 1.0,
    ) -> None:
        try:
            import sqlalchemy as sql  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ImportError("Outbox needs SQLAlchemy: pip install penstock-cdc[sql]") from error
        check_engine(engine)
        if not isinstance(log, ChangeLog):
            raise InvalidOption("log", log, "a ChangeLog that is open for writing in this process")
        if not isinstance(table, str) or not table:
            raise InvalidOption("table", table, "the name of a table")
        check_whole("most", most, "a whole number from 1 to 10000", 1, 10_000)
        if (
            isinstance(idle, bool)
            or not isinstance(idle, (int, float))
            or not 0 < idle <= threading.TIMEOUT_MAX
        ):
            raise InvalidOption("idle", idle, "a number of seconds, above 0")
        self._producer = table if producer is None else producer
        check_producer((self._producer, 0))
        log.produced(self._producer)  # raises if it cannot be written
        self._sql = sql
        self._engine = engine
        self._log = log
        self._most = most
        self._idle = idle
        number = sql.BigInteger().with_variant(sql.Integer(), "sqlite")
        self.table: Table = sql.Table(
            table,
            sql.MetaData(),
            sql.Column("id", number, primary_key=True, autoincrement=True),
            sql.Column("entity_type", sql.Text, nullable=False),
            sql.Column("key", sql.Text, nullable=False),
            sql.Column("body", sql.Text),
            sql.Column("batch", sql.BigInteger, index=True),
            sqlite_autoincrement=True,
        )
        with _turns_lock:
            self._turn = _turns.setdefault(log, {}).setdefault(self._producer, threading.RLock())
        self._called = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None

    def upsert(
        self,
        connection: "Connection | Session",
        entity_type: str,
        key: str,
        body: Mapping[str, Any] | bytes,
    ) -> int:
        """Inserts the creation or change of an entity, in the transaction of a connection; returns the row's id, for ``wait``.

        Raises:
            InvalidChange: If the log would refuse it.
        """
        return self._insert(connection, upsert(entity_type, key, body))

    def remove(self, connection: "Connection | Session", entity_type: str, key: str) -> int:
        """Inserts the removal of an entity, likewise."""
        return self._insert(connection, remove(entity_type, key))

    def relay(self) -> int:
        """Moves one batch, and returns the number of its changes; 0 if the table is empty. Waits for a relay in progress.

        Raises:
            OutboxBehind: If the log is ahead of the table's numbers; nothing is deleted.
            ProducerConflict: If the log has other changes under the batch's number; nothing is deleted.
            PenstockError: If the log refuses a row; no row is skipped.
            sqlalchemy.exc.SQLAlchemyError: If the database fails.
        """
        with self._turn:
            return self._move()

    def wait(self, marker: int | None = None, timeout: float | None = None) -> int:
        """Moves rows until the log contains those up to an id that are committed in the database.

        It is the ``marker`` of a source: ``SqlSource(..., marker=outbox.wait)``.

        Args:
            marker: The id, as ``upsert`` has returned it, once its transaction is committed; None for the newest row of this moment.
            timeout: Most seconds between two batches; None for no bound.

        Returns:
            A visible version that contains these rows.

        Raises:
            TimeoutError: After ``timeout`` seconds.
            Exception: As ``relay``.
        """
        ids, ends = self.table.c.id, None if timeout is None else monotonic() + timeout
        if marker is None:
            with self._engine.connect() as db:
                marker = db.execute(self._sql.select(self._sql.func.max(ids))).scalar()
        while marker is not None and self._holds(ids <= marker):
            left = -1.0 if ends is None else ends - monotonic()
            if (ends is not None and left <= 0) or not self._turn.acquire(timeout=left):
                raise TimeoutError(
                    f"the rows of the outbox up to {marker} are not in the log after {timeout} s"
                )
            try:
                self._move()
            finally:
                self._turn.release()
        return self._log.visible

    def start(self) -> None:
        """Begins to relay on a thread.

        Raises:
            LogExhausted: If the system has no thread.
        """
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name=f"penstock-{self._producer}", daemon=True)
        self._sql.event.listen(self._engine, "commit", _note)
        self._sql.event.listen(self._engine, "checkin", self._come)
        self._thread = thread
        try:
            start_thread(thread)
        except PenstockError:
            self.close()
            raise

    def close(self) -> None:
        """Ends the thread after the batch in progress; neither the log nor the engine. Idempotent."""
        thread, self._thread = self._thread, None
        self._called.set()
        if thread is not None:
            self._sql.event.remove(self._engine, "checkin", self._come)
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _insert(self, connection: "Connection | Session", row: Mutation) -> int:
        try:
            key, body = row.key.decode(), None if row.body is None else row.body.decode()
        except UnicodeDecodeError:
            raise InvalidChange("key", row.key, "text in UTF-8, as the body") from None
        values = {"entity_type": row.entity_type, "key": key, "body": body}
        found: Any = connection.execute(self._sql.insert(self.table).values(values))
        return int(found.inserted_primary_key[0])

    def _move(self) -> int:
        sql, columns = self._sql, self.table.c
        with self._engine.begin() as db:
            # The oldest batch that is numbered: a relay was stopped before it had deleted these rows.
            batch = db.execute(sql.select(sql.func.min(columns.batch))).scalar()
            if batch is None:
                free = sql.select(columns.id).where(columns.batch.is_(None)).order_by(columns.id)
                ids = db.execute(free.limit(self._most)).scalars().all()
                if not ids:
                    return 0
                last = self._log.produced(self._producer)
                batch = 1 if last is None else last.sequence + 1
                db.execute(sql.update(self.table).where(columns.id.in_(ids)).values(batch=batch))
        numbered = columns.batch == batch
        with self._engine.connect() as db:
            chosen = sql.select(columns.id, columns.entity_type, columns.key, columns.body)
            rows = db.execute(chosen.where(numbered).order_by(columns.id)).all()
        changes = [_change(kind, key, body) for _, kind, key, body in rows]
        commit = self._log.commit(changes, producer=(self._producer, batch), durable=True)
        if commit.duplicate and not commit.version:
            last = self._log.produced(self._producer)
            raise OutboxBehind(self._producer, batch, last.sequence if last else batch)
        with self._engine.begin() as db:
            db.execute(sql.delete(self.table).where(numbered))
        return len(rows)

    def _holds(self, condition: "ColumnElement[bool]") -> bool:
        with self._engine.connect() as db:
            return db.execute(self._sql.select(self.table.c.id).where(condition).limit(1)).first() is not None

    def _come(self, _connection: object, record: Any) -> None:
        """A connection is back in the pool: after a commit of it there may be rows."""
        if record is not None and record.info.pop(_WRITTEN, False):
            self._called.set()

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            self._called.clear()
            if self._thread is not me:  # after that, or what `close` has set would be cleared
                return
            try:
                while self._thread is me and self.relay():
                    pass
            except Exception as error:  # noqa: BLE001 - the rows stay, and are tried again
                if str(error) != str(self.error):
                    _LOG.error(
                        "the outbox %s is not moved to the log %s: %s", self.table, self._log.name, error
                    )
                self.error = error
            else:
                self.error = None
            self._called.wait(self._idle)


def _note(connection: "Connection") -> None:
    """A connection is about to commit; the relay looks when it is done with."""
    connection.info[_WRITTEN] = True


def _change(entity_type: str, key: str, body: str | None) -> Mutation:
    return remove(entity_type, key) if body is None else upsert(entity_type, key, body.encode())

"""The SQLite file of a compacted state: its rows, and the place in the log as of which they are; also looked at without the owner of its log."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from uuid import UUID
from zlib import crc32

from publishers.errors import StateIncomplete, StateUnusable
from publishers.model.position import Position
from publishers.options import Readers
from publishers.state.rows import EntityRow, RowActions, RowPlace, StoredRow, shown_row
from publishers.wal.disk.descriptors import DESCRIPTORS
from publishers.wal.disk.modes import DIRECTORY_MODES, make_file, make_readable

__all__ = [
    "STATE_DIRECTORY",
    "StateTable",
    "TablePage",
    "TablePlace",
    "damaged",
    "file_of",
    "find_in_file",
    "look_at_file",
    "remove_device",
    "remove_table",
]


STATE_DIRECTORY: Final = "state"
"""Where in the directory of a log the file is."""

_Row = TypeVar("_Row")
_NAME: Final = "rows.sqlite"
_APPLICATION: Final = 0x70656E73  # "pens"
_FORMAT: Final = 1
_IDLE: Final = 4  # connections for readers that are kept
_CACHE: Final = 16 * 1024  # KiB of pages that the writing connection keeps
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS place(
    one INTEGER PRIMARY KEY CHECK (one = 1), log_id TEXT NOT NULL, token TEXT NOT NULL, version INTEGER NOT NULL, rows INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rows(
    entity_type TEXT NOT NULL, key BLOB NOT NULL, body BLOB, meta BLOB, version INTEGER NOT NULL, place INTEGER NOT NULL,
    committed_at INTEGER NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (entity_type, key)) WITHOUT ROWID;
"""
_SIZES: Final = (64, 16, 4, 1)
# Each statement is one step without the interpreter's lock: to let go of it for each row and to ask for it again would hold up those
# who commit for longer than the work does.
_INSERT: Final = {
    n: f"INSERT INTO rows VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?)'] * n)}"  # noqa: S608 - of names only
    for n in _SIZES
}
_DELETE: Final = {
    n: f"DELETE FROM rows WHERE entity_type = ? AND key IN ({', '.join('?' * n)})"  # noqa: S608 - of names only
    for n in _SIZES
}
_COLUMNS: Final = "entity_type, key, body, meta, version, place, committed_at, crc"


def damaged(error: sqlite3.Error) -> bool:
    """Whether an error means that the file is damaged, and not that it cannot be read or written at the moment."""
    if isinstance(error, sqlite3.ProgrammingError):  # the file was closed
        return False
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class TablePlace(NamedTuple):
    """The place as of which the rows are.

    Attributes:
        token: The text of the position after the last change that is in them, with the history it belongs to.
        version: The version of that change; 0 if there is none.
        rows: How many rows there are.
    """

    token: str
    version: int
    rows: int


class TablePage(NamedTuple):
    """Some rows of one moment.

    Attributes:
        rows: The rows in their order.
        version: The newest version that they contain.
        more: Whether further ones may follow.
    """

    rows: list[StoredRow]
    version: int
    more: bool


Spans = Callable[[str], Sequence[tuple[bytes, bytes]] | None]
"""Of an entity type, spans of keys in their order: from a key up to another one, which is excluded; None for all keys."""


class StateTable:
    """One file, open for writing by one thread.

    Args:
        directory: Where it is; made if it is not there.
        log_id: Of which log the rows are.
        readers: Who may read the file.

    Raises:
        StateUnusable: If the file is of another application, or of a newer version of penstock.
        sqlite3.Error: If it is damaged, or cannot be opened.
    """

    def __init__(self, directory: Path, log_id: UUID, readers: Readers = "owner") -> None:
        self.path: Path = directory / _NAME
        self._log_id = log_id.hex
        self._free = threading.Condition()
        self._reads = 0
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        make_readable(directory, DIRECTORY_MODES[readers])
        make_file(self.path, readers)  # SQLite makes the files beside it with its modes
        self._writer = connection = _connect(self.path)
        try:
            check_file(connection, self.path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = -{_CACHE}")
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
            connection.executescript(_TABLES)
        except BaseException:
            connection.close()
            raise

    @property
    def place(self) -> TablePlace | None:
        """As of which place the rows are; None if the file is new, or of another log."""
        found = self._writer.execute("SELECT token, version, rows, log_id FROM place").fetchone()
        return None if found is None or found[3] != self._log_id else TablePlace(*found[:3])

    @property
    def nbytes(self) -> int:
        """Bytes of the file and of what was not yet brought into it."""
        paths = (self.path, Path(f"{self.path}-wal"))
        return sum(path.stat().st_size for path in paths if path.exists())

    def check(self) -> None:
        """Looks through the whole file.

        Raises:
            sqlite3.DatabaseError: If it is damaged.
        """
        (found,) = self._writer.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)

    # By the thread that writes.

    def begin(self) -> None:
        """Begins a transaction."""
        self._writer.execute("BEGIN IMMEDIATE")

    def rollback(self) -> None:
        """Ends the transaction as if it had never been, if there is one."""
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def clear(self) -> None:
        """Removes all rows, in the transaction."""
        self._writer.execute("DELETE FROM rows")
        self._writer.execute("DELETE FROM place")

    def apply(self, actions: RowActions) -> int:
        """Changes rows, in the transaction; answers how many more there are."""
        writer = self._writer
        gone = 0
        for name in actions.cleared:
            gone += writer.execute("DELETE FROM rows WHERE entity_type = ?", (name,)).rowcount
        for name, places in groupby(sorted(actions.rows), itemgetter(0)):
            for keys in _chunks([key for _, key in places]):
                gone += writer.execute(_DELETE[len(keys)], (name, *keys)).rowcount
        kept = sorted((*row, _crc(row)) for row in actions.rows.values() if row is not None)
        for rows in _chunks(kept):
            writer.execute(_INSERT[len(rows)], [*chain.from_iterable(rows)])
        return len(kept) - gone

    def commit(self, place: TablePlace) -> None:
        """Ends the transaction with the place as of which the rows are now."""
        self._writer.execute("INSERT OR REPLACE INTO place VALUES (1, ?, ?, ?, ?)", (self._log_id, *place))
        self._writer.execute("COMMIT")

    # By any thread.

    def sync(self) -> None:
        """Makes durable what was committed.

        Raises:
            OSError: If the disk fails.
        """
        # What is in the main file was synced when it was brought there.
        for path, flags in ((f"{self.path}-wal", os.O_RDWR), (self.path.parent, os.O_RDONLY)):
            with contextlib.suppress(FileNotFoundError):
                file = DESCRIPTORS.spending(partial(os.open, path, flags | os.O_CLOEXEC))
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
                    if DESCRIPTORS.low:
                        DESCRIPTORS.refill()

    def read(
        self,
        after: RowPlace | None,
        types: Sequence[str] | None,
        limit: int,
        max_bytes: int,
        spans: Spans | None = None,
    ) -> TablePage:
        """Rows in their order, and the version as of which they are, of one moment.

        Args:
            after: The row behind which the page begins; None for the first.
            types: Entity types of which rows are wanted, sorted; None for all.
            limit: Most rows, from 1.
            max_bytes: Bytes after which the page ends; it holds one row at least.
            spans: The keys of an entity type to which rows are restricted, in their order; None for any.

        Raises:
            sqlite3.Error: If the file is damaged, or cannot be read.
        """
        rows: list[StoredRow] = []
        with self._reading() as connection:
            (version,) = connection.execute("SELECT version FROM place").fetchone() or (0,)
            more = False
            with contextlib.closing(_select(connection, after, types, spans)) as found:
                for stored in found:
                    more = len(rows) == limit or max_bytes <= 0
                    if more:
                        break
                    row = _checked(stored)
                    rows.append(row)
                    max_bytes -= row.size
        return TablePage(rows, version, more)

    def get(self, place: RowPlace) -> TablePage:
        """One row, or none; likewise.

        Raises:
            sqlite3.Error: If the file is damaged, or cannot be read.
        """
        with self._reading() as connection:
            (version,) = connection.execute("SELECT version FROM place").fetchone() or (0,)
            row = row_at(connection, place)
        return TablePage([] if row is None else [row], version, more=False)

    def find(self, places: Iterable[RowPlace]) -> TablePage:
        """Those of some rows that there are; likewise.

        Raises:
            sqlite3.Error: If the file is damaged, or cannot be read.
        """
        with self._reading() as connection:
            (version,) = connection.execute("SELECT version FROM place").fetchone() or (0,)
            found = [row_at(connection, place) for place in places]
        return TablePage([row for row in found if row is not None], version, more=False)

    def close(self) -> None:
        """Closes the file when those that read it are done; later ones are refused. Again is harmless."""
        with self._free:
            self._closed = True
            # None may be left: SQLite finds what belongs to a file by its name, and another file may have it soon.
            self._free.wait_for(lambda: not self._reads)
            idle, self._idle = self._idle, []
        for connection in (*idle, self._writer):
            connection.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._free:
            if self._closed:
                raise sqlite3.ProgrammingError("the file was closed")
            self._reads += 1
            connection = self._idle.pop() if self._idle else None
        good = False
        try:
            if connection is None:
                connection = _connect(self.path)
            connection.execute("BEGIN")
            yield connection
            connection.execute("ROLLBACK")
            good = True
        finally:
            with self._free:
                good = good and len(self._idle) < _IDLE
                if good and connection is not None:
                    self._idle.append(connection)
            if not good and connection is not None:
                connection.close()
            with self._free:
                self._reads -= 1
                self._free.notify_all()


def check_file(connection: sqlite3.Connection, path: Path) -> None:
    """Looks whether a file may be used as that of a state: it is new, or was made as such.

    Raises:
        StateUnusable: If not.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != _APPLICATION and (application or found or tables):
        raise StateUnusable(path, "a database of another application")
    if found > _FORMAT:
        raise StateUnusable(
            path, f"of format {found}, and this version of penstock knows formats up to {_FORMAT}"
        )


def row_at(connection: sqlite3.Connection, place: RowPlace) -> StoredRow | None:
    """One row; None if there is none.

    Raises:
        sqlite3.Error: If the file is damaged, or cannot be read.
    """
    query = f"SELECT {_COLUMNS} FROM rows WHERE entity_type = ? AND key = ?"  # noqa: S608 - of names only
    found = connection.execute(query, place).fetchone()
    return None if found is None else _checked(found)


def file_of(log: Path) -> Path:
    """Where the file of the state is, if it lies in the directory of a log."""
    return log / STATE_DIRECTORY / _NAME


def remove_device(directory: Path) -> bool:
    """Removes what stands in place of the directory or of the file and is neither, such as a link to a device; returns whether it did.

    Raises:
        OSError: If it cannot be removed.
    """
    for path in (directory, directory / _NAME):
        if path.exists() and not path.is_file() and not path.is_dir():
            path.unlink()
            return True
    return False


def remove_table(directory: Path) -> None:
    """Removes the file, for it to be made anew.

    Raises:
        OSError: If it cannot be removed.
    """
    for suffix in ("", "-wal", "-shm"):
        Path(f"{directory / _NAME}{suffix}").unlink(missing_ok=True)


def _chunks(rows: Sequence[_Row]) -> Iterator[Sequence[_Row]]:
    """Rows in their order, as many at once as there is a statement for."""
    at = 0
    for size in _SIZES:
        while len(rows) - at >= size:
            yield rows[at : at + size]
            at += size


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=5.0, cached_statements=16
    )


def _select(
    connection: sqlite3.Connection,
    after: RowPlace | None,
    types: Sequence[str] | None,
    within: Spans | None,
) -> Generator[Sequence[object], None, None]:
    select = f"SELECT {_COLUMNS} FROM rows"  # noqa: S608 - of names only
    if types is None and within is None:
        if after is None:
            yield from connection.execute(f"{select} ORDER BY entity_type, key")
        else:
            yield from connection.execute(
                f"{select} WHERE (entity_type, key) > (?, ?) ORDER BY entity_type, key", after
            )
        return
    for name in _names(connection, after) if types is None else types:
        if after is not None and name < after.entity_type:
            continue
        behind = after.key if after is not None and name == after.entity_type else None
        spans = None if within is None else within(name)
        if spans is not None:
            first = b"" if behind is None else behind + b"\0"
            for low, high in spans:
                if high > first:
                    span = name, max(low, first), high
                    yield from connection.execute(
                        f"{select} WHERE entity_type = ? AND key >= ? AND key < ? ORDER BY key", span
                    )
        elif behind is None:
            yield from connection.execute(f"{select} WHERE entity_type = ? ORDER BY key", (name,))
        else:
            yield from connection.execute(
                f"{select} WHERE entity_type = ? AND key > ? ORDER BY key", (name, behind)
            )


def _names(connection: sqlite3.Connection, after: RowPlace | None) -> Iterator[str]:
    """The entity types from that of a row on; each is looked up, as DISTINCT would read every row."""
    least = "" if after is None else after.entity_type
    condition = ">="
    while True:
        query = f"SELECT entity_type FROM rows WHERE entity_type {condition} ? ORDER BY entity_type LIMIT 1"  # noqa: S608 - as above
        found = connection.execute(query, (least,)).fetchone()
        if found is None:
            return
        (least,) = found
        yield least
        condition = ">"


def _crc(row: StoredRow) -> int:
    """The checksum of a row."""
    named = crc32(row.key, crc32(row.entity_type.encode()))
    return crc32(b"%d:%d" % (row.version, row.index), crc32(row.meta or b"", crc32(row.body or b"", named)))


def _checked(found: Sequence[object]) -> StoredRow:
    row = StoredRow._make(found[:-1])
    try:
        sound = _crc(row) == found[-1]
    except (TypeError, AttributeError):  # not even of its types
        sound = False
    if not sound:
        raise sqlite3.DatabaseError(
            f"the row of {row.entity_type!r:.80} {row.key!r:.80} is not as it was written"
        )
    return row


@dataclass(frozen=True, slots=True)
class StateFile:
    """The place and the size of the file of a state.

    Attributes:
        log_id: Of which log it is: 32 hexadecimal digits.
        token: The position after the last change that is in it, with the history that it belongs to.
        version: The version of that change.
        rows: How many entities there are.
        nbytes: Bytes of the file.
    """

    log_id: str
    token: str
    version: int
    rows: int
    nbytes: int


def look_at_file(directory: Path, oldest: Position) -> StateFile:
    """Reads the place of the file in the directory of a log. Only the owner judges whether it is of the history of that log.

    Args:
        directory: The directory of the log.
        oldest: The oldest position of the log.

    Raises:
        StateIncomplete: If the log begins behind the place of the file, or behind version 1 without a file: no owner
            can use or make the state then.
        StateUnusable: If there is no file, or it cannot be read.
    """
    path = file_of(directory)
    if not path.is_file() and oldest.version > 1:
        raise StateIncomplete(oldest)
    with _reading(directory) as connection:
        found = connection.execute("SELECT log_id, token, version, rows FROM place").fetchone()
    if (0 if found is None else found[2]) + 1 < oldest.version:
        raise StateIncomplete(oldest)
    if found is None:
        raise StateUnusable(path, "empty: its log has had no changes yet, or it is being made")
    log_id, token, version, rows = found
    return StateFile(log_id, token, version, rows, path.stat().st_size)


def find_in_file(directory: Path, entity_type: str, key: bytes) -> EntityRow | None:
    """An entity, as of the place of the file; None if there is none.

    Raises:
        StateUnusable: If there is no file, or it cannot be read.
    """
    with _reading(directory) as connection:
        found = row_at(connection, RowPlace(entity_type, key))
    return None if found is None else shown_row(found)


@contextlib.contextmanager
def _reading(directory: Path) -> Iterator[sqlite3.Connection]:
    path = file_of(directory)
    if not path.is_file():
        raise StateUnusable(path, "not there; the owner of the log makes it with state=True")
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        ) as connection:
            check_file(connection, path)
            yield connection
    except sqlite3.Error as error:
        raise StateUnusable(path, f"not to be read ({error})") from error

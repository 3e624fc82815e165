"""The file of a compacted state, looked at beside the owner of its log or without one."""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from publishers.errors import StateIncomplete, StateUnusable
from publishers.model.position import Position
from publishers.state.rows import EntityRow, RowPlace, shown_row
from publishers.state.table import check_file, file_of, row_at

__all__ = ["StateFile", "find_in_file", "look_at_file"]


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

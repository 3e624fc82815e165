"""Bad rows: rows of a batch that cannot become changes. They fail the batch, are skipped, or go to a dead-letter log.

A row is bad if its ``flaw_column`` says so, if its key is null, empty or too long, or if its columns name no known operation or no
valid entity type. A fault of the whole batch, such as a missing column, is not a bad row.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, Literal, get_args
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from publishers.commits.errors import ProducerConflict
from publishers.errors import InvalidOption, LogReadOnly
from publishers.log.changelog import ChangeLog
from publishers.losses import LINES_MAX, log_changes
from publishers.mutations.mutation import Mutation, upsert
from publishers.options import KEEP_HISTORY, LogOptions, check_whole
from publishers.spark.arrow import ENTITY_TYPE_MAX, keyless, operation_names
from publishers.spark.errors import TooManyBadRows
from publishers.spark.schema import Encoding
from publishers.spark.server_log import ServerLog

__all__ = ["ENTITY_TYPE", "Aside", "BadRows", "OnBadRow"]

OnBadRow = Literal["fail", "skip", "dead_letter"]

ENTITY_TYPE: Final = "bad_row"
_NAME_MAX: Final = 200
_lock: Final = threading.Lock()  # held by the sink that writes to a dead-letter log it opened itself


@dataclass(frozen=True, slots=True)
class _Bad:
    """Rows with the same fault."""

    column: str
    why: str
    rows: pa.RecordBatch


class BadRows:
    """The bad rows of one batch.

    Attributes:
        count: Bad rows found so far.

    Args:
        encoding: How rows become changes.
        what: How to handle bad rows; with ``"fail"`` there is no search, as the conversion raises.
        limit: Maximum number of bad rows; the batch fails above it.
        max_key_bytes: Maximum length of a key in the log, in bytes.
        log_id: Id of the log, for log messages.
    """

    def __init__(
        self, encoding: Encoding, what: OnBadRow, *, limit: int, max_key_bytes: int, log_id: UUID
    ) -> None:
        self.count: int = 0
        self._what = what
        self._encoding = encoding
        self._limit = limit
        self._max_key_bytes = max_key_bytes
        self._log_id = log_id
        self._found: list[_Bad] = []

    @property
    def untold(self) -> bool:
        """Whether a row lacks values, which another attempt may find in the state of the log, and the other way round."""
        return any(
            "lacks" in bad.rows.schema.names and bad.rows.column("lacks").null_count < len(bad.rows)
            for bad in self._found
        )

    def without(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the good rows, in order; logs or keeps the bad ones.

        Raises:
            TooManyBadRows: If the batch has more bad rows than ``limit``.
        """
        if self._what == "fail":
            return rows
        for column, why, flawed in _flaws(rows, self._encoding, self._max_key_bytes):
            if not pc.any(flawed).as_py():
                continue
            bad = rows.filter(flawed)
            self.count += len(bad)
            if self.count > self._limit:
                raise TooManyBadRows(self.count, self._limit, column, why)
            if self._what == "dead_letter":
                self._found.append(_Bad(column, why, bad))
            else:
                self._log_skipped(column, why, bad)
            return self.without(rows.filter(pc.invert(flawed)))
        return rows

    def _log_skipped(self, column: str, why: str, bad: pa.RecordBatch) -> None:
        """Logs the skipped rows, with a bounded number of lines."""

        def rows() -> Iterator[tuple[str | None, bytes | None]]:
            some = bad.slice(0, LINES_MAX)
            kinds = some.column("entity_type").to_pylist() if "entity_type" in some.schema.names else []
            yield from zip_longest(kinds, some.column("key").to_pylist())

        log_changes(
            logging.WARNING, f"row left out, as column {column!r} {why}", self._log_id, len(bad), rows
        )

    def changes(self, sink: str, batch_id: int) -> Iterator[Mutation]:
        """Yields one upsert per bad row, for the dead-letter log.

        Args:
            sink: Name of the sink.
            batch_id: Number of the batch.
        """
        number = 0
        for bad in self._found:
            for row in bad.rows.to_pylist():
                number += 1
                why = row.get("flaw") or bad.why
                body: dict[str, Any] = {"sink": sink, "batch": batch_id, "column": bad.column, "why": why}
                key = row["key"]
                body["key"] = None if key is None else key.decode("utf-8", "replace")
                body |= {name: row[name] for name in ("operation", "entity_type") if name in row}
                body["row"] = None if row["body"] is None else msgspec.Raw(row["body"])
                yield upsert(ENTITY_TYPE, f"{sink[:_NAME_MAX]}/{batch_id}/{number}", body)


class Aside:
    """A sink's policy for bad rows.

    Args:
        log: The log of the sink.
        what: How to handle bad rows.
        dead_letters: The dead-letter log; None for a log beside the sink's, with ``.dead`` appended to its path.
        limit: Maximum number of bad rows in a batch, at least 0.

    Raises:
        InvalidOption: If an argument is out of bounds or contradicts another.
        LogReadOnly: If ``dead_letters`` was opened read-only.
    """

    def __init__(
        self, log: ChangeLog | ServerLog, what: OnBadRow, dead_letters: ChangeLog | None, limit: int
    ) -> None:
        if what not in get_args(OnBadRow):
            raise InvalidOption("on_bad_row", what, "'fail', 'skip' or 'dead_letter'")
        check_whole("bad_rows_max", limit, "a whole number, at least 0")
        if dead_letters is not None:
            if not isinstance(dead_letters, ChangeLog) or what != "dead_letter" or dead_letters is log:
                right = "another log than the sink's, with on_bad_row='dead_letter'"
                raise InvalidOption("dead_letters", dead_letters, right)
            if dead_letters.read_only:
                raise LogReadOnly(dead_letters.path)
        self._log = log
        self._what = what
        self._dead_letters = dead_letters
        self._limit = limit

    def begin(self, encoding: Encoding) -> BadRows:
        """Returns an empty collection of bad rows for a new batch."""
        most = self._log.options.max_key_bytes
        return BadRows(encoding, self._what, limit=self._limit, max_key_bytes=most, log_id=self._log.log_id)

    def carry(self, bad: BadRows, sink: str, producer: str | UUID, batch_id: int) -> None:
        """Commits the bad rows to the dead-letter log, which drops a repeated batch by its producer and sequence.

        Raises:
            LogError: If the dead-letter log refuses the commit.
        """
        if self._what != "dead_letter" or not bad.count:
            return
        numbered = producer, batch_id
        if self._dead_letters is not None:
            _commit(self._dead_letters, bad, sink, numbered)
            return
        # Opened for this commit only: the sink has no close(), and other sinks of the same log need the dead-letter log too.
        assert isinstance(self._log, ChangeLog)  # target_of refuses "dead_letter" for the log of a server
        path, keep = f"{self._log.path.resolve()}.dead", LogOptions(**KEEP_HISTORY)
        with _lock, ChangeLog.open(path, borrowed=True, options=keep) as opened:
            _commit(opened, bad, sink, numbered)


def _commit(log: ChangeLog, bad: BadRows, sink: str, numbered: tuple[str | UUID, int]) -> None:
    with suppress(ProducerConflict):
        log.commit(bad.changes(sink, numbered[1]), producer=numbered, durable=True, trust=not bad.untold)
        return
    # An attempt that failed has found other values in the state: better twice than not at all.
    log.commit(bad.changes(sink, numbered[1]), durable=True)


def _flaws(
    rows: pa.RecordBatch, encoding: Encoding, max_key_bytes: int
) -> Iterator[tuple[str, str, pa.BooleanArray]]:
    """Yields each possible fault: the column, the description, and a mask of the rows that have it."""
    if encoding.flaw_column is not None:
        flawed = rows.column("flawed")
        for name in pc.unique(flawed).drop_null().to_pylist():
            marked = pc.fill_null(pc.equal(flawed, name), False)
            yield name, rows.column("flaw").filter(marked)[0].as_py(), marked
    key, names = rows.column("key"), ", ".join(encoding.key)
    length = pc.fill_null(pc.binary_length(key), 0)
    yield names, "is null", key.is_null()
    yield names, "is empty", keyless(rows, encoding)
    yield names, f"is longer than {max_key_bytes} bytes", pc.greater(length, max_key_bytes)
    if encoding.operation_column is not None:
        operation, known = rows.column("operation"), operation_names(encoding.operations)
        unknown = pc.is_null(pc.index_in(operation, value_set=known.cast(operation.type)))
        yield encoding.operation_column, f"is none of {', '.join(known.to_pylist())}", unknown
    if encoding.entity_type_column is not None:
        length = pc.fill_null(pc.utf8_length(rows.column("entity_type")), 0)
        wrong = pc.or_(pc.equal(length, 0), pc.greater(length, ENTITY_TYPE_MAX))
        yield encoding.entity_type_column, f"is no text of 1 to {ENTITY_TYPE_MAX} characters", wrong

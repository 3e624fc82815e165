"""Rows of a DataFrame as the snapshot at the start of a subscription: in key order, a page or a partition at a time."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from publishers.commits import Commit
from publishers.errors import InvalidOption
from publishers.model.position import Position
from publishers.options import MIB
from publishers.snapshots.source import PageRequest, SourceRow, check_source, distinct_rows
from publishers.spark.arguments import check_least, column_names
from publishers.spark.partitions import collected, spread_windows
from publishers.spark.plan import free_name
from publishers.spark.queries import connect_module
from publishers.spark.schema import Encoding, key_column

__all__ = ["FrameSource"]

_RUNS: Final = 4  # computations kept open between two pages, one for each snapshot in progress
_SLICE: Final = 1_000  # rows converted to Python objects at once

_Run = Iterator[SourceRow]
_Place = tuple[int | None, str | None, str | None]


class FrameSource:
    """A snapshot source that reads a Spark DataFrame: ``log.changes(since="state", source=FrameSource(...))``.

    Rows are ordered by the bytes of their keys' text. The JVM makes keys and bodies as for `ChangeSink`, so a row has the same key and
    body as in a batch with the same columns. The driver never holds all rows.

    *   A DataFrame is read in its current state. Each page is a job of its own: it reads the frame again and returns the first
        ``page_rows`` rows after a key. The promises that `SnapshotSource` asks of writers apply to the files or tables of the frame.
        A cached frame, or one with a fixed list of files, does not show the current state.
    *   A function from a version of the log to a DataFrame is read **as of** that version: its rows contain exactly what was committed
        up to the version. For each snapshot, Spark computes it to measure the rows, again to find the key ranges if there are several,
        and again to sort the rows into these on the disks of the executors. It brings them to the driver range by range. If a subscriber
        resumes in the middle of a snapshot, Spark computes the rows after its last key again.

    Args:
        frame: The DataFrame, or the function.
        entity_type: The entity type of all rows.
        key: Column or columns of the key, unique and never null.
        body: Columns of the body; None for all.
        marker: See `SnapshotSource.mark`.
        page_rows: Maximum rows of a page, from 1 to 1,000,000.
        page_bytes: Size in bytes at which a page ends.
        collect_bytes: Approximate bytes that one job brings to the driver when reading as of a version, at least 1.

    Raises:
        InvalidChange: If the entity type is invalid.
        InvalidOption: If another argument is of the wrong kind or out of bounds.
        SchemaRefused: If the columns cannot become keys and bodies; for a function, reading the first page raises it.
    """

    def __init__(
        self,
        frame: DataFrame | Callable[[int], DataFrame],
        *,
        entity_type: str,
        key: str | Sequence[str],
        body: Sequence[str] | None = None,
        marker: Callable[[], Commit | Position | int] | None = None,
        page_rows: int = 10_000,
        page_bytes: int = 8 * MIB,
        collect_bytes: int = 64 * MIB,
    ) -> None:
        self.entity_type = entity_type
        self.as_of: bool = not isinstance(frame, DataFrame)
        self.page_rows = page_rows
        self.page_bytes = page_bytes
        check_source(self)
        check_least(collect_bytes=(collect_bytes, 1))
        if marker is not None and not callable(marker):
            raise InvalidOption("marker", marker, "a callable without arguments, or None")
        if self.as_of and not callable(frame):
            raise InvalidOption("frame", frame, "a DataFrame, or a callable that makes one of a version")
        self._frame = frame
        self._key = column_names("key", key)
        self._body = None if body is None else column_names("body", body)
        self._marker = marker
        self._collect_bytes = collect_bytes
        self._lock = threading.Lock()
        self._runs: OrderedDict[_Place, _Run] = OrderedDict()
        if isinstance(frame, DataFrame):
            self._keyed(frame)

    def read(self, request: PageRequest, /) -> Iterator[SourceRow]:
        """See `SnapshotSource.read`.

        Raises:
            SourceRowRefused: If a key is null or occurs twice.
        """
        if isinstance(self._frame, DataFrame):
            keyed, encoding, order = self._keyed(self._frame)
            # One row more than the page, to notice a duplicate of the page's last key.
            first = (
                keyed.where(_wanted(order, request)).orderBy(order.asc_nulls_first()).limit(request.limit + 1)
            )
            rows = _rows(collected(encoding.select(first)))
            yield from islice(distinct_rows(self.entity_type, rows), request.limit)
            return
        last = request.after
        run = self._going_on((request.version, request.until, last)) or self._begun(self._frame, request)
        try:
            for row in islice(run, request.limit):
                assert isinstance(row[0], bytes)  # Arrow delivers keys as bytes
                last = row[0].decode("utf-8", "surrogateescape")
                yield row
        finally:
            self._keep((request.version, request.until, last), run)

    def mark(self) -> Commit | Position | int | None:
        """See `SnapshotSource.mark`."""
        return None if self._marker is None else self._marker()

    def _keyed(self, frame: DataFrame) -> tuple[DataFrame, Encoding, Column]:
        """Returns the frame with an added column of key bytes, the encoding of its rows, and that column, to order by."""
        module = connect_module(frame)
        if module is not None:
            raise InvalidOption("frame", module, "of a classic SparkSession, and not of Spark Connect")
        name = free_name(frame.columns)
        plain = Encoding(key=self._key, body=self._body)
        plain.check(frame.schema)
        encoding = Encoding(key=self._key, body=plain.body_columns(frame.schema), order_by=(name,))
        return (
            frame.withColumn(name, key_column(frame.schema, self._key).cast("binary")),
            encoding,
            F.col(name),
        )

    def _begun(self, frame_of: Callable[[int], DataFrame], request: PageRequest) -> _Run:
        assert request.version is not None  # a source with as_of gets a version in each request
        frame = frame_of(request.version)
        if not isinstance(frame, DataFrame):
            raise InvalidOption("frame", frame, "a callable that answers a DataFrame")
        keyed, encoding, order = self._keyed(frame)
        windows = spread_windows(
            keyed.where(_wanted(order, request)), encoding, collect_bytes=self._collect_bytes
        )
        rows = (row for window in windows for row in _rows(window))
        return distinct_rows(self.entity_type, rows)

    def _going_on(self, place: _Place) -> _Run | None:
        with self._lock:
            return self._runs.pop(place, None)

    def _keep(self, place: _Place, run: _Run) -> None:
        """Keeps a computation for the next page; drops the least recently kept one above ``_RUNS``."""
        with self._lock:
            self._runs[place] = run
            while len(self._runs) > _RUNS:
                self._runs.popitem(last=False)


def _wanted(order: Column, request: PageRequest) -> Column:
    """Returns the condition for rows in the requested key range. Rows with a null key always match, so that reading refuses them."""
    wanted = F.lit(True)
    if request.after is not None:
        wanted = wanted & (order > F.lit(_bytes(request.after)))
    if request.until is not None:
        wanted = wanted & (order <= F.lit(_bytes(request.until)))
    return wanted | order.isNull()


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _rows(batches: list[pa.RecordBatch]) -> Iterator[tuple[bytes | None, bytes]]:
    for batch in batches:
        for start in range(0, len(batch), _SLICE):
            part = batch.slice(start, _SLICE)
            yield from zip(part.column("key").to_pylist(), part.column("body").to_pylist(), strict=True)

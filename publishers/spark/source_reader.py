"""Readers of a log on this machine: a planner splits the log into ranges, and each task reads one range."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cached_property, partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from publishers.blocks.block import Block
from publishers.criteria.predicate import Predicate
from publishers.model.position import Position, PositionToken, Start
from publishers.spark.source_arrow import RecordBatches
from publishers.spark.source_entities import TypedBatches
from publishers.spark.source_filters import filtered, is_known, version_bounds
from publishers.spark.source_log import LogRange, SourceLog
from publishers.spark.source_options import SourceOptions
from publishers.spark.task_garbage import spare_what_is_loaded

__all__ = ["ChangeReader", "ChangeStreamReader", "FilteringReader", "reader_for"]

_POSITION: Final = "position"
_FILTERING: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class ChangeReader(DataSourceReader):
    """Batch reader: reads the log up to its end at planning time."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filters: tuple[Filter, ...] = ()

    def partitions(self) -> Sequence[InputPartition]:
        """Splits the log into ranges, within the bounds of pushed-down version filters."""
        options = self._options
        with closing(SourceLog(options.path, options.consumer, planning=True)) as log:
            start = log.find(options.since or Start.EARLIEST)
            version = "version" if options.entity is None else "_commit_version"
            first, last = version_bounds(self._filters, version)
            end = min(_end(options, log), Position(last + 1))
            return log.ranges(max(start, Position(first)), end, options.partition_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one range; if there are no ranges, Spark passes a placeholder, which has no rows."""
        if isinstance(partition, LogRange):
            for batch in _read(self._options, self._schema, partition):
                yield filtered(batch, self._filters)


class FilteringReader(ChangeReader):
    """A `ChangeReader` with filter pushdown. A class of its own, as Spark refuses ``pushFilters`` where pushdown is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Keeps the filters that this reader applies, and returns the others to Spark."""
        self._filters = tuple(one for one in filters if is_known(one, self._schema))
        return (one for one in filters if not is_known(one, self._schema))


def reader_for(options: SourceOptions, schema: StructType) -> ChangeReader:
    """Returns the reader for this process: Spark pushes filters down only in a worker that it starts for this."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    pushing = _FILTERING in sys.modules or (main is not None and main.name == _FILTERING)
    return (FilteringReader if pushing else ChangeReader)(options, schema)


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader: follows the log. Offsets are tokens of positions between transactions."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Position | None = None

    @cached_property
    def _log(self) -> SourceLog:
        """The planner's log, open as long as the query; tasks open their own."""
        return SourceLog(self._options.path, self._options.consumer, planning=True)

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Returns the start offset of a query without a checkpoint."""
        return self._offset(self._log.find(self._options.since or Start.LATEST))

    def latestOffset(self, start: dict[str, str] | None = None, limit: Any = None) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Returns the end offset of the next micro-batch; that of the log without a start."""
        end = self._end()
        if start is None:
            return self._offset(end)
        begin = self._log.judge(PositionToken.parse(start[_POSITION]))
        if end <= begin:
            return start
        if not isinstance(limit, ReadAllAvailable):
            options = self._options
            if options.max_versions is not None:
                end = min(end, Position(begin.version + options.max_versions))
            if options.max_bytes is not None:
                end = self._log.within(begin, end, options.max_bytes)
        return self._offset(end)

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802 - Spark's name
        """Returns a limit if the options set one, so that Spark asks for limited batches; `latestOffset` applies the options."""
        options = self._options
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable() if options.max_versions is None else ReadMaxFiles(options.max_versions)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fixes the current end of the log as the end of the query."""
        self._target = self._end()

    def reportLatestOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Returns the end of the log, from which Spark reports how far behind the query is."""
        return self._offset(self._end())

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Splits a micro-batch into ranges."""
        log = self._log
        log.refresh()
        begin, until = (log.judge(PositionToken.parse(offset[_POSITION])) for offset in (start, end))
        return log.ranges(begin, until, self._options.partition_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one range of a micro-batch."""
        assert isinstance(partition, LogRange)
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, str]) -> None:
        """Removes the consumer's links to processed segments, which no checkpoint needs any more."""
        if self._options.consumer is not None:
            self._log.release(PositionToken.parse(end[_POSITION]).position)

    def stop(self) -> None:
        """Closes the log."""
        if "_log" in self.__dict__:
            self._log.close()

    def _end(self) -> Position:
        self._log.refresh()
        end = _end(self._options, self._log)
        return end if self._target is None else min(end, self._target)

    def _offset(self, position: Position) -> dict[str, str]:
        return {_POSITION: str(self._log.token(position))}


def _end(options: SourceOptions, log: SourceLog) -> Position:
    return log.head if options.until is None else min(log.head, Position(options.until + 1))


def _read(options: SourceOptions, schema: StructType, found: LogRange) -> Iterator[pa.RecordBatch]:
    """Yields the record batches of a range, in the process of a task."""
    spare_what_is_loaded()
    predicate = Predicate(options.criteria)
    start, end = found.start.position, found.end.position
    with closing(SourceLog(options.path, options.consumer)) as log:

        def selected() -> Iterator[tuple[Block, Sequence[int]]]:
            for block in log.blocks(found):
                indices = predicate.select(block)
                if (block.version, block.indices.start) < start or (
                    block.version,
                    block.indices.stop - 1,
                ) >= end:
                    indices = [index for index in indices if start <= (block.version, index) < end]
                if indices:
                    yield block, indices

        if options.entity is None:
            yield from RecordBatches(schema, options.content, found.prefixes).of(selected())
        else:
            told = partial(log.schema, options.entity)
            yield from TypedBatches(schema, found.prefixes, told).of(selected())

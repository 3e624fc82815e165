"""Staging by executors: each task encodes and seals its partition in the directory of the log, and the driver commits all as one version.

The rows of a partition stay on its executor until they are in a file of sealed payloads. Arrow data goes from the executor's JVM to its
Python worker; the driver receives only the name of the file and the sizes of the payloads. Each attempt of a task writes a file of its
own. The driver commits the files of the attempts that Spark reports; the others are removed.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args
from uuid import UUID

import pyarrow as pa
from pyspark import RDD, TaskContext
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from publishers.errors import InvalidChange, InvalidOption, TransactionTooLarge
from publishers.log.changelog import ChangeLog
from publishers.log.staging import Staged, Staging
from publishers.spark.arrow import columns_of, pieces
from publishers.spark.errors import RowRefused, StagingLost
from publishers.spark.plan import IN_PARTITION, arrow_schema, free_name, plan_of, record_batches_of
from publishers.spark.schema import Encoding, column_named
from publishers.spark.schema_changes import news_of
from publishers.spark.server_log import ServerLog
from publishers.wal.append.staged import StagedPart

if TYPE_CHECKING:
    from publishers.commits.group_commit import Commit

__all__ = ["ExecutorStaging", "Outcome", "StagingPlace", "staging_of"]

StagingPlace = Literal["driver", "executors"]

_REFUSED: Final = (RowRefused, TransactionTooLarge)
"""Errors that a task returns instead of raising, because Spark would retry a failed task, and a retry would not help."""


class Outcome(NamedTuple):
    """The result of a batch.

    Attributes:
        commit: The commit; None if there was nothing to commit.
        rows: Committed rows, without skipped ones.
        encode_seconds: Seconds to compute and encode the rows.
        bad_rows: Rows skipped because they are bad.
        unchanged: Rows skipped because they change nothing.
        abandoned: Removed files of earlier, ended batches.
    """

    commit: "Commit | None"
    rows: int
    encode_seconds: float
    bad_rows: int = 0
    unchanged: int = 0
    abandoned: int = 0


Answer = StagedPart | RowRefused | TransactionTooLarge


class ExecutorStaging:
    """Commits batches that executors stage.

    Args:
        log: The log to commit to; executors must see its directory under the same path as the driver.
        encoding: The encoding of rows.
        entity_type: The entity type of all rows.
        tell_schema: Whether to publish the schema ahead of the first row that needs it.
    """

    def __init__(self, log: ChangeLog, encoding: Encoding, entity_type: str, *, tell_schema: bool) -> None:
        self._log = log
        self._encoding = encoding
        self._entity_type = entity_type
        self._tell_schema = tell_schema

    def commit(self, frame: DataFrame, meta: Mapping[str, Any], producer: tuple[str | UUID, int]) -> Outcome:
        """Commits a batch.

        Raises:
            RowRefused: If a row cannot become a change.
            StagingLost: If the driver does not find the staged files.
            LogError: If the log refuses the commit.
        """
        rows = abandoned = 0
        seconds = 0.0

        def stage(staging: Staging) -> Staged:
            nonlocal rows, abandoned, seconds
            started = perf_counter()
            staged = self._stage(frame, staging)
            rows, abandoned = sum(part.changes for part in staged.parts), staging.abandoned
            seconds = perf_counter() - started
            return staged

        try:
            commit = self._log.serving.commit_staged(
                stage, meta=meta, producer=producer, durable=True, trust=True
            )
        except OSError as error:
            raise StagingLost(self._log.path, error) from error
        return Outcome(commit if rows else None, rows, seconds, abandoned=abandoned)

    def _stage(self, frame: DataFrame, staging: Staging) -> Staged:
        """Stages the batch; if it has rows, first commits its schema unless the published one contains it."""
        entity_type, schema = self._entity_type, self._encoding.told(frame.schema)
        while True:
            newest = self._log.schema(entity_type)
            version = 0 if newest is None else newest.version
            news = news_of(entity_type, schema, newest, version + 1) if self._tell_schema else None
            version += news is not None
            versions = {entity_type: version} if version else {}
            parts = self._parts(frame, staging, versions)
            if news is not None and any(part.payloads for part in parts):
                try:
                    self._log.commit([news], durable=True)
                except InvalidChange:
                    if self._log.schema(entity_type) == newest:
                        raise
                    continue  # another writer has published a schema meanwhile
            return Staged(parts, versions)

    def _parts(self, frame: DataFrame, staging: Staging, versions: Mapping[str, int]) -> list[StagedPart]:
        """Runs the job that stages the partitions.

        Raises:
            RowRefused, TransactionTooLarge: If a task returns such an error.
        """
        encoding, context = self._encoding, frame.sparkSession.sparkContext
        if encoding.order_by:
            # The row id keeps equal rows in their order. Spark computes the batch once more to find the ranges of the sort.
            row = free_name(frame.columns)
            keys = [*(column_named(name).asc_nulls_first() for name in encoding.order_by), F.col(row)]
            numbered = frame.withColumn(row, F.monotonically_increasing_id())
            selected = encoding.select(numbered.orderBy(*keys), frame.schema)
            encoded, schema = record_batches_of(selected), arrow_schema(selected)
        else:
            encoded, schema = plan_of(encoding, frame).record_batches(frame, IN_PARTITION)
        batches: RDD[bytes] = RDD(encoded.toJavaRDD(), context, NoOpSerializer())
        task = partial(
            _staged_partition,
            schema.serialize().to_pybytes(),
            encoding,
            self._entity_type,
            staging,
            dict(versions),
        )
        parts: list[StagedPart] = []
        for answer in batches.mapPartitionsWithIndex(task).collect():
            if isinstance(answer, _REFUSED):
                raise answer
            parts.append(answer)
        return parts


def staging_of(
    place: StagingPlace,
    log: ChangeLog | ServerLog,
    encoding: Encoding,
    entity_type: str | None,
    on_bad_row: str,
    *,
    compare: bool,
    tell_schema: bool,
) -> ExecutorStaging | None:
    """Returns the executor staging of a sink; None if the driver collects the batches.

    Raises:
        InvalidOption: If ``place`` is unknown, or another option does not work with staging by executors.
    """
    if place not in get_args(StagingPlace):
        raise InvalidOption("staging", place, "'driver' or 'executors'")
    if place == "driver":
        return None
    if not isinstance(log, ChangeLog):
        raise InvalidOption("staging", place, "'driver', as executors write nothing beside a server's log")
    if entity_type is None:
        raise InvalidOption("entity_type", None, "given with staging='executors', in place of a column")
    if on_bad_row != "fail":
        raise InvalidOption("on_bad_row", on_bad_row, "'fail' with staging='executors'")
    if compare:
        raise InvalidOption("compare", compare, "False with staging='executors'")
    return ExecutorStaging(log, encoding, entity_type, tell_schema=tell_schema)


def _staged_partition(
    schema: bytes,
    encoding: Encoding,
    entity_type: str,
    staging: Staging,
    versions: Mapping[str, int],
    partition: int,
    messages: Iterable[bytes],
) -> Iterator[Answer]:
    """Stages one partition, in a task; yields the staged part, or the error that refuses the batch."""
    context = TaskContext.get()
    assert context is not None
    columns = pa.ipc.read_schema(pa.py_buffer(schema))
    batches = (pa.ipc.read_record_batch(pa.py_buffer(message), columns) for message in messages)
    cut = pieces(batches, staging.options.frame_bytes)
    changes = (columns_of(piece, encoding, entity_type) for piece in cut)
    try:
        yield staging.seal(changes, f"{partition}-{context.taskAttemptId()}", versions)
    except _REFUSED as error:
        yield error

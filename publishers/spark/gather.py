"""Brings the rows of a batch to the driver as Arrow record batches, whole or a few partitions at a time.

``DataFrame.toArrow`` needs the whole result at once, and ``mapInArrow`` needs pandas on every executor. Both are built on
the same thing, an RDD of serialised record batches that Spark makes in the JVM. Here jobs run over that RDD directly:
over all partitions if there are few, else over windows of them that bring about ``collect_bytes`` each. Every partition is
computed once and in its order, whatever the windows, and no Python worker takes part.

A window above ``spark.driver.maxResultSize`` is halved and tried again; only a single partition above it fails.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _load_from_socket

from publishers.spark.errors import BatchTooLarge

__all__ = ["windows"]

_LIMIT: Final = "spark.driver.maxResultSize"
_FIRST: Final = 8  # partitions that the first job takes, if the cluster runs fewer at once
_SORTED_PARTITIONS: Final = 64  # at least, if Spark sorts, so that each can be brought alone
_SORTED_BYTES: Final = 2**30  # what is put in order here; Arrow's offsets end at twice that


def windows(frame: DataFrame, order_by: int, collect_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Yields the rows of ``frame``, a window of partitions at a time.

    Args:
        frame: What `Encoding.select` made.
        order_by: How many of its columns ``order_0, order_1, ...`` the rows are to be ordered by. What comes in one
            job is put in order here, stably; otherwise Spark sorts it, which computes the batch twice.
        collect_bytes: About how many bytes one job may bring.

    Raises:
        BatchTooLarge: If a single partition is above ``spark.driver.maxResultSize``.
    """
    partitions = _Partitions(frame)
    if order_by:
        if partitions.count <= partitions.first:
            try:
                whole = partitions.bring(0, partitions.count)
            except BatchTooLarge:
                whole = None
            if whole is not None and sum(batch.nbytes for batch in whole) <= _SORTED_BYTES:
                yield _ordered(whole, order_by)
                return
            del whole
        order = [F.col(f"order_{place}").asc_nulls_first() for place in range(order_by)]
        # Spark's own sort would leave as few partitions as shuffles have, or as adaptive execution makes of them.
        wanted = max(_SORTED_PARTITIONS, partitions.count)
        partitions = _Partitions(frame.repartitionByRange(wanted, *order).sortWithinPartitions(*order))
    start = size = 0
    width = ceiling = partitions.first
    while start < partitions.count:
        width = min(width, partitions.count - start)
        try:
            batches = partitions.bring(start, width)
        except BatchTooLarge:
            if width == 1:
                raise
            width = ceiling = width // 2
            continue
        start += width
        size += sum(batch.nbytes for batch in batches)
        yield batches
        fitting = collect_bytes * start // max(size, 1)
        # After a refusal windows stay as small as what went through.
        width = max(1, fitting if ceiling == partitions.first else min(fitting, ceiling))


class _Partitions:
    """The partitions of a frame, each of them serialised record batches in the JVM."""

    def __init__(self, frame: DataFrame) -> None:
        # A classic DataFrame is a shell around a Dataset of the JVM; nothing public gives out Arrow by partitions.
        dataset: Any = frame._jdf  # noqa: SLF001
        self._context = frame.sparkSession.sparkContext
        wide = frame.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
        self._schema = to_arrow_schema(frame.schema, timezone="UTC", prefers_large_types=wide)
        self._rdd: Any = dataset.toArrowBatchRdd().toJavaRDD()
        self.count: int = self._rdd.getNumPartitions()
        self.first = max(_FIRST, 2 * self._context.defaultParallelism)

    def bring(self, start: int, width: int) -> list[pa.RecordBatch]:
        """Runs one job over some partitions.

        Raises:
            BatchTooLarge: If their rows together are above what Spark hands to the driver.
        """
        jvm: Any = self._context._jvm  # noqa: SLF001 - see above
        chosen = jvm.java.util.ArrayList()
        for partition in range(start, start + width):
            chosen.append(partition)
        try:
            served = jvm.PythonRDD.runJob(self._context._jsc.sc(), self._rdd, chosen)  # noqa: SLF001 - see above
            with _load_from_socket(served, NoOpSerializer()) as messages:
                return [pa.ipc.read_record_batch(pa.py_buffer(message), self._schema) for message in messages]
        except (Py4JError, PySparkException) as error:
            if _LIMIT not in str(error):
                raise
            raise BatchTooLarge(self._context.getConf().get(_LIMIT, "1g") or "1g") from error


def _ordered(batches: list[pa.RecordBatch], order_by: int) -> list[pa.RecordBatch]:
    if not batches:
        return []
    rows = pa.concat_batches(batches)
    places = _places([rows.column(f"order_{place}") for place in range(order_by)])
    in_place = pc.all(pc.equal(places, pa.array(range(len(places)), pa.uint64()))).as_py()
    return [rows if in_place else rows.take(places)]


def _places(columns: list[pa.Array]) -> pa.Array:
    """The places of rows in ascending order, nulls first, equal rows as they came."""
    keys: dict[str, pa.Array] = {}
    for place, column in enumerate(columns):
        if column.null_count:
            # Whether there is a value goes before the value; how to say "nulls first" differs between releases.
            keys[f"there_{place}"] = column.is_valid().cast(pa.uint8())
        keys[f"value_{place}"] = column
    return pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])

"""Brings the rows of a batch to the driver as Arrow record batches, in windows that fit its memory.

``DataFrame.toArrow`` needs the whole result at once, and ``mapInArrow`` needs pandas on every executor. Both use an RDD of
serialised record batches that Spark makes in the JVM. Here jobs run over that RDD directly, without a Python worker. There
are three ways:

*   `windows`, the usual way, runs one job over all partitions if they are few, else one job over each window of partitions that
    brings about ``collect_bytes``. It computes each partition once.
*   ``stored_batches`` is for large partitions and for batches of unknown size. Spark transfers a partition only as a whole, so a
    large one would need a heap several times its size. This way computes the batch once, stores it on the executors' disks, and
    brings it in parts.
*   `spread_windows` is for more rows than the driver can sort, and for rows of many megabytes. It measures the rows, and shuffles
    them in order into partitions of a quarter of ``collect_bytes``. It computes the batch three times, and needs only a small heap
    for any amount of rows.

`windows` notices by itself that it does not suffice: it takes only as many rows of a partition as should fit, and raises
`TooMuchAtOnce` if the partition has more.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from publishers.spark.errors import BatchTooLarge
from publishers.spark.inside import gateway_of, java_context, load_from_socket
from publishers.spark.plan import arrow_schema, free_name, plan_of, record_batches_of
from publishers.spark.schema import Encoding, column_named

__all__ = [
    "HELD",
    "Partitions",
    "TooMuchAtOnce",
    "Window",
    "collected",
    "connect_windows",
    "in_order",
    "spread_windows",
    "windows",
]

_LIMIT: Final = "spark.driver.maxResultSize"
_FIRST: Final = 8  # minimum number of partitions of the first job
_PARTS: Final = (
    4  # spread partitions per ``collect_bytes``; a window brings half of it, as the heap also holds the rows
)

HELD: Final = 4
"""Multiple of ``collect_bytes`` up to which the driver holds and sorts a batch in memory."""
Window = list[pa.RecordBatch]


class TooMuchAtOnce(Exception):
    """This way cannot bring the batch. Nothing is lost: another way computes the batch again."""


def windows(
    frame: DataFrame, encoding: Encoding, *, collect_bytes: int, row_bytes: float
) -> Iterator[Window]:
    """Yields the encoded rows of ``frame`` in the order of its partitions, or sorted by ``order_by``; the driver sorts.

    Args:
        frame: The batch.
        encoding: The encoding of its rows.
        collect_bytes: Approximate bytes that one job may bring; also the bound of a single partition.
        row_bytes: Expected bytes of an encoded row.

    Raises:
        TooMuchAtOnce: If a partition exceeds ``collect_bytes``, or rows to sort exceed ``HELD`` times as much; possibly after
            some windows.
    """
    plan = plan_of(encoding, frame)
    batches, schema = plan.record_batches(frame, max(1, int(collect_bytes / row_bytes)))
    partitions = Partitions(batches, schema, frame.sparkSession)
    ordered = len(encoding.order_by)
    held: Window = []
    for window in partitions.windows(collect_bytes, partitions.first):
        if any(pc.any(batch.column("beyond")).as_py() for batch in window):
            raise TooMuchAtOnce
        if not ordered:
            yield window
            continue
        held += window
        if sum(batch.nbytes for batch in held) > HELD * collect_bytes:
            raise TooMuchAtOnce
    if held:
        yield in_order(held, ordered)


def connect_windows(frame: DataFrame, encoding: Encoding) -> Iterator[Window]:
    """Yields the encoded rows of a Spark Connect frame as one window, since Connect gives no access to partitions."""
    batches = collected(encoding.select(frame))
    if batches:
        yield in_order(batches, len(encoding.order_by)) if encoding.order_by else batches


def spread_windows(frame: DataFrame, encoding: Encoding, *, collect_bytes: int) -> Iterator[Window]:
    """Yields what `windows` yields, for partitions of any size; the module docstring names the cost.

    Raises:
        BatchTooLarge: If a single row, or a few rows, exceed ``spark.driver.maxResultSize``.
    """
    encoded = encoding.select(frame)
    sizes = [F.coalesce(F.sum(F.octet_length(name).cast("bigint")), F.lit(0)) for name in encoding.sized]
    measured = sum(encoded.agg(*sizes).collect()[0])
    row = free_name(frame.columns)
    keys = [*(column_named(name).asc_nulls_first() for name in encoding.order_by), F.col(row)]
    numbered = frame.withColumn(row, F.monotonically_increasing_id())
    part_bytes = max(1, collect_bytes // _PARTS)
    wanted = 1 + measured // part_bytes
    spread = numbered.repartitionByRange(wanted, *keys).sortWithinPartitions(*keys)
    selected = encoding.select(spread, frame.schema)
    partitions = Partitions.of(selected)
    try:
        yield from partitions.windows(collect_bytes // 2, 1)
    except TooMuchAtOnce as error:
        raise BatchTooLarge(partitions.limit) from error


def collected(frame: DataFrame) -> Window:
    """Returns all rows of a frame at once, by Spark's public API."""
    batches: Window = frame.toArrow().cast(arrow_schema(frame)).to_batches()
    return batches


class Partitions:
    """The partitions of a frame, as serialised record batches in the JVM.

    Args:
        batches: The RDD of record batches in the JVM.
        schema: Their schema.
        session: The session of the frame.
    """

    def __init__(self, batches: Any, schema: pa.Schema, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._schema = schema
        self._rdd: Any = batches.toJavaRDD()
        self.count: int = self._rdd.getNumPartitions()

    @classmethod
    def of(cls, frame: DataFrame) -> "Partitions":
        """Returns the partitions of any frame."""
        return cls(record_batches_of(frame), arrow_schema(frame), frame.sparkSession)

    @property
    def first(self) -> int:
        """The number of partitions of the first job."""
        return self.count if self.count <= _FIRST else max(_FIRST, 2 * self._context.defaultParallelism)

    @property
    def limit(self) -> str:
        """Spark's limit of a job's result. Reading it costs py4j commands in proportion to the number of settings."""
        return self._context.getConf().get(_LIMIT, "1g") or "1g"

    def windows(self, collect_bytes: int, width: int) -> Iterator[Window]:
        """Yields all partitions: first ``width`` of them, then as many per job as bring about ``collect_bytes``.

        Raises:
            TooMuchAtOnce: If a single partition exceeds Spark's limit.
        """
        start = size = 0
        ceiling = self.count
        while start < self.count:
            width = max(1, min(width, ceiling, self.count - start))
            window = self.bring(start, width)
            if window is None:
                if width == 1:
                    raise TooMuchAtOnce
                # Later windows stay within the width that passes Spark's limit.
                width = ceiling = width // 2
                continue
            start += width
            size += sum(batch.nbytes for batch in window)
            yield window
            width = collect_bytes * start // max(size, 1)

    def bring(self, start: int, width: int) -> Window | None:
        """Runs one job over ``width`` partitions; returns None if their rows exceed Spark's limit of a job's result."""
        numbers, array_list, run_job = _java(gateway_of(self._context))
        # A JVM stream makes the list, since each element of a list made in Python would cost a py4j command.
        chosen = array_list(numbers(start, start + width).boxed().toList())
        try:
            served = run_job(java_context(self._context), self._rdd, chosen)
            with load_from_socket(served, NoOpSerializer()) as messages:
                return [pa.ipc.read_record_batch(pa.py_buffer(message), self._schema) for message in messages]
        except (Py4JError, PySparkException) as error:
            if _LIMIT not in str(error):
                raise
            return None


@lru_cache(maxsize=4)
def _java(gateway: Any) -> tuple[Any, Any, Any]:
    """Returns the JVM functions that each job calls. Cached, since a lookup costs a py4j command per part of the name."""
    jvm: Any = gateway.jvm
    return jvm.java.util.stream.IntStream.range, jvm.java.util.ArrayList, jvm.PythonRDD.runJob


def in_order(batches: Window, order_by: int) -> Window:
    """Returns one batch with the rows of all batches, sorted by the columns ``order_0, order_1, ...``."""
    rows = pa.concat_batches(batches)
    places = _places([rows.column(f"order_{place}") for place in range(order_by)])
    # Strictly rising indices mean that the rows are sorted already.
    in_place = pc.all(pc.greater(places[1:], places[:-1])).as_py()
    return [rows if in_place else rows.take(places)]


def _places(columns: list[pa.Array]) -> pa.Array:
    """Returns the row indices in ascending order of the columns, nulls first; the sort is stable."""
    keys: dict[str, pa.Array] = {}
    for place, column in enumerate(columns):
        if column.null_count:
            # Sort by validity before the value: the argument for "nulls first" differs between releases of PyArrow.
            keys[f"there_{place}"] = column.is_valid().cast(pa.uint8())
        keys[f"value_{place}"] = column
    return pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])

"""Brings the rows of a batch to the driver as Arrow record batches, in pieces that fit its memory.

``DataFrame.toArrow`` needs the whole result at once, and ``mapInArrow`` needs pandas on every executor. Both are built on
the same thing, an RDD of serialised record batches that Spark makes in the JVM. Here jobs run over that RDD directly, and
no Python worker takes part. There are three ways:

*   `windows`, the usual one, runs one job over all partitions if there are few, else one over each window of them that
    brings about ``collect_bytes``. Every partition is computed once.
*   ``stored_batches`` takes what that cannot, and batches of unknown size: Spark hands a partition over only as a whole, so a large
    one would need a heap several times its size. What was computed, once, is stored on the executors' disks and brought in parts.

*   `spread_windows` takes what neither can: more rows than can be ordered here, and rows of many megabytes. They are measured, and
    shuffled into partitions of a quarter of ``collect_bytes``, in order; the batch is computed three times, and any amount of it
    passes through a small heap.

The first finds out by itself that another is needed: no partition gives it more rows than should fit, and one that has
more raises `TooMuchAtOnce`.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.util import _load_from_socket

from publishers.spark.errors import BatchTooLarge
from publishers.spark.plan import arrow_schema, free_name, plan_of
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
_FIRST: Final = 8  # partitions that the first job takes, if the cluster runs fewer at once
_PARTS: Final = (
    4  # spread partitions to ``collect_bytes``; a window takes half of it, for the heap holds their rows too
)

HELD: Final = 4
"""Times ``collect_bytes`` that are held to be ordered in memory."""
Window = list[pa.RecordBatch]


class TooMuchAtOnce(Exception):
    """The batch is not to be brought by `windows`; nothing is lost, as it is only computed again."""


def windows(
    frame: DataFrame, encoding: Encoding, *, collect_bytes: int, row_bytes: float
) -> Iterator[Window]:
    """Yields the encoded rows of ``frame`` in the order of its partitions, or of ``order_by``, which is sorted here.

    Args:
        frame: The batch.
        encoding: What to make of its rows.
        collect_bytes: About how many bytes one job, and no partition more than, may bring.
        row_bytes: What an encoded row will need.

    Raises:
        TooMuchAtOnce: If a partition has more, which may show at any time; or if rows to be ordered are too many to be
            held together.
    """
    plan = plan_of(encoding, frame)
    selected = plan.select(frame, max(1, int(collect_bytes / row_bytes)))
    partitions = Partitions(selected, plan.arrow_schema(selected))
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
    """Yields the encoded rows of a frame of Spark Connect, all at once: it gives out no partitions."""
    batches = collected(encoding.select(frame))
    if batches:
        yield in_order(batches, len(encoding.order_by)) if encoding.order_by else batches


def spread_windows(frame: DataFrame, encoding: Encoding, *, collect_bytes: int) -> Iterator[Window]:
    """Yields what `windows` yields, whatever the size of partitions; see the module for the price.

    Raises:
        BatchTooLarge: If a single row, or very few, are above ``spark.driver.maxResultSize``.
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
    partitions = Partitions(selected, arrow_schema(selected))
    try:
        yield from partitions.windows(collect_bytes // 2, 1)
    except TooMuchAtOnce as error:
        raise BatchTooLarge(partitions.limit) from error


def collected(frame: DataFrame) -> Window:
    """All rows of a frame, by what is public of Spark."""
    batches: Window = frame.toArrow().cast(arrow_schema(frame)).to_batches()
    return batches


class Partitions:
    """The partitions of a frame, each of them serialised record batches in the JVM."""

    def __init__(self, frame: DataFrame, schema: pa.Schema) -> None:
        # A classic DataFrame is a shell around a Dataset of the JVM; nothing public gives out Arrow by partitions.
        dataset: Any = frame._jdf  # noqa: SLF001 - see above
        self._context = frame.sparkSession.sparkContext
        self._schema = schema
        self._rdd: Any = dataset.toArrowBatchRdd().toJavaRDD()
        self.count: int = self._rdd.getNumPartitions()

    @property
    def first(self) -> int:
        """How many of them the first job takes."""
        return self.count if self.count <= _FIRST else max(_FIRST, 2 * self._context.defaultParallelism)

    @property
    def limit(self) -> str:
        """What Spark hands to the driver at most; to ask costs commands by the number of settings."""
        return self._context.getConf().get(_LIMIT, "1g") or "1g"

    def windows(self, collect_bytes: int, width: int) -> Iterator[Window]:
        """Yields all partitions, ``width`` of them at first and then as many as bring about ``collect_bytes``.

        Raises:
            TooMuchAtOnce: If a single partition was above Spark's limit.
        """
        start = size = 0
        ceiling = self.count
        while start < self.count:
            width = max(1, min(width, ceiling, self.count - start))
            window = self.bring(start, width)
            if window is None:
                if width == 1:
                    raise TooMuchAtOnce
                # From here on windows stay as small as what goes through.
                width = ceiling = width // 2
                continue
            start += width
            size += sum(batch.nbytes for batch in window)
            yield window
            width = collect_bytes * start // max(size, 1)

    def bring(self, start: int, width: int) -> Window | None:
        """Runs one job over ``width`` partitions; None if their rows are above what Spark hands to the driver."""
        numbers, array_list, run_job = _java(self._context._gateway)  # noqa: SLF001 - see above
        # As a stream of the JVM, since each number of a list from here would be a command.
        chosen = array_list(numbers(start, start + width).boxed().toList())
        try:
            served = run_job(self._context._jsc.sc(), self._rdd, chosen)  # noqa: SLF001 - see above
            with _load_from_socket(served, NoOpSerializer()) as messages:
                return [pa.ipc.read_record_batch(pa.py_buffer(message), self._schema) for message in messages]
        except (Py4JError, PySparkException) as error:
            if _LIMIT not in str(error):
                raise
            return None


@lru_cache(maxsize=4)
def _java(gateway: JavaGateway) -> tuple[Any, Any, Any]:
    """What each job calls; to look for it by its name takes a command for each part of the name."""
    jvm: Any = gateway.jvm
    return jvm.java.util.stream.IntStream.range, jvm.java.util.ArrayList, jvm.PythonRDD.runJob


def in_order(batches: Window, order_by: int) -> Window:
    """The rows of all batches in one, in the order of the columns ``order_0, order_1, ...``."""
    rows = pa.concat_batches(batches)
    places = _places([rows.column(f"order_{place}") for place in range(order_by)])
    # Places that only rise are those that the rows have.
    in_place = pc.all(pc.greater(places[1:], places[:-1])).as_py()
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

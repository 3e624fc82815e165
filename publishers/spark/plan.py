"""The expressions that encode rows of one schema; they are made in the JVM once and reused for every batch.

Each part of an expression costs a py4j command, and a column of the batch about twenty. A micro-batch with a known schema costs
none, and the batches of a query share their physical plan.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from publishers.spark.inside import dataset_of, gateway_of, java_column
from publishers.spark.physical_plan import PhysicalPlan, scan_of
from publishers.spark.schema import IMAGES, Encoding

__all__ = ["IN_PARTITION", "BatchPlan", "arrow_schema", "free_name", "plan_of", "record_batches_of"]

_PLANS: Final = 64
IN_PARTITION: Final = 2**33 - 1
"""Mask of a monotonically increasing id: the bits that count the rows of a partition."""


class BatchPlan:
    """Encodes the first rows of each partition, for one schema."""

    def __init__(self, encoding: Encoding, schema: StructType, gateway: Any) -> None:
        encoding.check(schema)
        columns = [java_column(column) for column in encoding.columns(schema)]
        self._columns: Any = gateway.jvm.PythonUtils.toSeq(columns)
        self._limited: tuple[int, Any, Any] = (
            0,
            None,
            None,
        )  # the last limit, its row filter, and the selected columns
        self._planned: tuple[int, PhysicalPlan | None] = (0, None)  # the last limit of a query, and its plan
        self._arrow: dict[bool, pa.Schema] = {}  # key: whether Spark uses the large types

    def record_batches(self, frame: DataFrame, most: int) -> tuple[Any, pa.Schema]:
        """Encodes the first ``most`` rows of each partition, or up to an eighth fewer, and marks the row at the limit ``beyond``.

        Returns:
            The RDD of serialised record batches in the JVM, and their schema.
        """
        least = max(0, most.bit_length() - 4)
        most = most >> least << least  # rounded down, so that the limit seldom changes between batches
        wide = _wide(frame)
        scan = scan_of(frame)
        limit, planned = self._planned
        if scan is not None and planned is not None and limit == most and planned.reads(scan):
            return planned.record_batches(scan), self._arrow[wide]
        selected = self._select(frame, most)
        if wide not in self._arrow:
            self._arrow[wide] = arrow_schema(selected)
        batches = record_batches_of(selected)
        if scan is not None:
            self._planned = most, PhysicalPlan.of(selected)
        return batches, self._arrow[wide]

    def _select(self, frame: DataFrame, most: int) -> DataFrame:
        known, within, selected = self._limited
        if known != most:
            # Evaluated twice, in the filter and in the select: the filter passes a prefix, so both count the same.
            number = F.monotonically_increasing_id().bitwiseAND(IN_PARTITION)
            within = java_column(number <= most)
            selected = self._columns.appended(java_column((number == most).alias("beyond")))
            self._limited = most, within, selected
        fitting = dataset_of(frame).where(within)
        return DataFrame(fitting.select(selected), frame.sparkSession)


def record_batches_of(frame: DataFrame) -> Any:
    """Returns the RDD of a frame's serialised record batches in the JVM."""
    return dataset_of(frame).toArrowBatchRdd()


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Returns the Arrow schema of a frame's record batches; keys and images are read as binary, since the log stores bytes."""
    schema: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC", prefers_large_types=_wide(frame))
    for place, field in enumerate(schema):
        if field.name in IMAGES:
            wide = pa.types.is_large_string(field.type)
            schema = schema.set(place, field.with_type(pa.large_binary() if wide else pa.binary()))
    return schema


def _wide(frame: DataFrame) -> bool:
    return frame.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"


@lru_cache(maxsize=_PLANS)
def _made(encoding: Encoding, schema: StructType, gateway: Any) -> BatchPlan:
    return BatchPlan(encoding, schema, gateway)


def plan_of(encoding: Encoding, frame: DataFrame) -> BatchPlan:
    """Returns the plan for the schema of a frame; the last ``_PLANS`` plans are cached.

    Raises:
        SchemaRefused: If the columns cannot become changes.
    """
    return _made(encoding, frame.schema, gateway_of(frame.sparkSession.sparkContext))


def free_name(names: Iterable[str]) -> str:
    """Returns a column name that differs from all names, regardless of case."""
    longest = max(map(len, names), default=0)
    return "row".ljust(longest + 1, "_")

"""Debezium: converts the envelopes of a Kafka topic to the columns of a sink.

Debezium publishes each change of a table as an envelope with ``before``, ``after``, ``source`` and ``op``. The values of ``op`` are ``c``
(create), ``u`` (update), ``d`` (delete), ``r`` (row of the initial snapshot), ``t`` (truncate) and ``m`` (message in the database's log).
With ``schemas.enable`` the envelope is in the member ``payload``.
"""

from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StructField, StructType

from publishers.errors import InvalidOption
from publishers.spark.errors import SchemaRefused

__all__ = ["DEBEZIUM", "debezium"]

DEBEZIUM: Final[dict[str, Any]] = {
    "operation_column": "_operation",
    "operations": {"c": "upsert", "u": "upsert", "r": "upsert", "d": "remove", "t": "truncate"},
    "entity_type_column": "_table",
    "before": "_before",
    "order_by": ("_partition", "_offset"),
}
"""Sink options for the rows of `debezium`: ``ChangeSink(log, key="id", name="shop", **DEBEZIUM)``."""

_KAFKA: Final = ("value", "partition", "offset")
_OURS: Final = ("_operation", "_table", "_before", "_partition", "_offset")
_MESSAGE: Final = "m"


def debezium(frame: DataFrame, fields: str | StructType) -> DataFrame:
    """Parses envelopes into columns; lazy, starts no job.

    Tombstones (null values, which Kafka's log compaction needs after deletions) and messages (``m``) are dropped. A value that is
    not an envelope remains, without an operation: it is a bad row for the sink (``on_bad_row``) and never lost in silence.

    Args:
        frame: The rows of Spark's Kafka source; ``value``, ``partition`` and ``offset`` are used.
        fields: The columns of the table, as a schema or as DDL: ``"id BIGINT, total STRING"``. Columns that are not named are
            dropped; named columns that the table lacks are null.

    Returns:
        The fields, after the change or before a deletion, and ``_operation``, ``_table``, ``_before``, ``_partition``, ``_offset``.

    Raises:
        InvalidOption: If ``fields`` is not a struct.
        SchemaRefused: If the frame lacks a column, or a field has one of the added names.
    """
    image = fields if isinstance(fields, StructType) else StructType.fromDDL(fields)
    if not isinstance(image, StructType):
        raise InvalidOption("fields", fields, "columns with their types, such as 'id BIGINT, total STRING'")
    for name in _KAFKA:
        if name not in frame.columns:
            raise SchemaRefused(
                name,
                f"is not in the frame, which has {', '.join(frame.columns)}; take that of Spark's Kafka source",
            )
    for name in image.names:
        if name in _OURS:
            raise SchemaRefused(name, f"is a field of the table, but {', '.join(_OURS)} are added to them")
    source = StructType().add("table", "string")
    members = StructType().add("before", image).add("after", image).add("source", source).add("op", "string")
    parsed = F.from_json(
        frame["value"].cast("string"), StructType([*members.fields, StructField("payload", members)])
    )
    rows = frame.where(frame["value"].isNotNull()).select(parsed.alias("_parsed"), "partition", "offset")
    operation = _member("op")
    kept = rows.where(operation.isNull() | (operation != _MESSAGE))
    shown = F.when(operation == "d", _member("before")).otherwise(_member("after"))
    taken = kept.select(
        shown.alias("_shown"),
        operation.alias("_operation"),
        _member("source").getField("table").alias("_table"),
        F.when(operation.isin("u", "d"), _member("before")).alias("_before"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
    )
    return taken.select("_shown.*", *_OURS)


def _member(name: str) -> Column:
    """Returns a member of the envelope, with or without ``payload`` around it."""
    return F.coalesce(F.col(f"_parsed.payload.{name}"), F.col(f"_parsed.{name}"))

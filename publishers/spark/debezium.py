"""Rows of a change feed of Debezium: the envelopes of a Kafka topic as columns that a sink takes.

Debezium tells of each change of a table in an envelope: ``before``, ``after``, ``source`` and ``op``, of which ``c`` is a creation, ``u``
an update, ``d`` a deletion, ``r`` a row of its first snapshot, ``t`` a truncated table and ``m`` a message in the database's log. It stands
alone or, with ``schemas.enable``, in a member ``payload``.
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
"""Options of a sink for such rows: ``ChangeSink(log, key="id", name="shop", **DEBEZIUM)``."""

_KAFKA: Final = ("value", "partition", "offset")
_OURS: Final = ("_operation", "_table", "_before", "_partition", "_offset")
_MESSAGE: Final = "m"


def debezium(frame: DataFrame, fields: str | StructType) -> DataFrame:
    """Takes envelopes apart; nothing runs yet.

    Tombstones, which follow deletions for Kafka's own purposes, and messages (``m``) are left out. What is no envelope stays, without
    an operation, so that it is a bad row of the sink (``on_bad_row``) and not lost without a word.

    Args:
        frame: What Spark's Kafka source brings: ``value``, ``partition`` and ``offset`` are used.
        fields: The columns of the table, as a schema or in Spark's words: ``"id BIGINT, total STRING"``. What is not named is left
            out, and so is what the table lacks.

    Returns:
        The fields, after the change or before a deletion, and ``_operation``, ``_table``, ``_before``, ``_partition``, ``_offset``.

    Raises:
        SchemaRefused: If the frame lacks a column, or a field has one of these names.
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
    """A member of the envelope, wherever that stands."""
    return F.coalesce(F.col(f"_parsed.payload.{name}"), F.col(f"_parsed.{name}"))

"""Debezium: converts the envelopes of a Kafka topic to the columns of a sink.

Debezium publishes each change of a table as an envelope with ``before``, ``after``, ``source`` and ``op``. The values of ``op`` are ``c``
(create), ``u`` (update), ``d`` (delete), ``r`` (row of the initial snapshot), ``t`` (truncate) and ``m`` (message in the database's log).
With ``schemas.enable`` the envelope is in the member ``payload``.
"""

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType

from publishers.errors import InvalidOption
from publishers.spark.envelopes import EnvelopeParser
from publishers.spark.errors import SchemaRefused

__all__ = ["DEBEZIUM", "debezium"]

DEBEZIUM: Final[dict[str, Any]] = {
    "operation_column": "_operation",
    "operations": {"c": "upsert", "u": "upsert", "r": "upsert", "d": "remove", "t": "truncate"},
    "entity_type_column": "_table",
    "before": "_before",
    "flaw_column": "_flaw",
    "order_by": ("_partition", "_offset"),
}
"""Sink options for the rows of `debezium`: ``ChangeSink(log, key="id", name="shop", **DEBEZIUM)``."""

_KAFKA: Final = ("value", "partition", "offset")
_OURS: Final = ("_operation", "_table", "_before", "_flaw", "_partition", "_offset")
_MESSAGE: Final = "m"


def debezium(frame: DataFrame, fields: str | StructType) -> DataFrame:
    """Parses envelopes into columns; lazy, starts no job.

    Tombstones (null values, which Kafka's log compaction needs after deletions) and messages (``m``) are dropped. A value that is
    not an envelope remains, without an operation: it is a bad row for the sink (``on_bad_row``) and never lost in silence. So is an
    envelope with a value that its column cannot represent; ``_flaw`` names the column and the value. An envelope with its schema
    (``schemas.enable``) says how Debezium wrote days, times and decimals, and these are decoded. A value that the database has not
    told, as it was not changed, is taken from ``before``, if that is there; else the sink takes it from earlier rows of the batch or from
    the state of its log, if it is open with ``state=True``.

    A Python worker of Spark parses the envelopes, so penstock must be in the Python of the executors.

    Args:
        frame: The rows of Spark's Kafka source; ``value``, ``partition`` and ``offset`` are used.
        fields: The columns of the table, as a schema or as DDL: ``"id BIGINT, total STRING"``. Columns that are not named are
            dropped; named columns that the table lacks are null.

    Returns:
        The fields, after the change or before a deletion, and ``_operation``, ``_table``, ``_before``, ``_flaw``, ``_partition``,
        ``_offset``.

    Raises:
        InvalidOption: If ``fields`` is not a struct.
        SchemaRefused: If the frame lacks a column, or a field has one of the added names, or a type that JSON lacks.
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
    try:
        parser = EnvelopeParser(image)
    except ValueError as error:
        raise SchemaRefused("*", f"has a type that envelopes lack ({error})") from None
    # Not deterministic: otherwise Spark would parse once for the filter, and again for the columns.
    parse = arrow_udf(parser.columns, parser.parsed).asNondeterministic()  # type: ignore[call-overload] # its stubs lack StructType
    rows = frame.where(frame["value"].isNotNull()).select(
        parse(frame["value"].cast("binary")).alias("_parsed"), "partition", "offset"
    )
    operation = F.col("_parsed.op")
    kept = rows.where(operation.isNull() | (operation != _MESSAGE))
    shown, before = F.col("_parsed.shown"), F.col("_parsed.before")
    if not parser.direct:
        shown, before = F.from_json(shown, image), F.from_json(before, image)
    taken = kept.select(
        shown.alias("_shown"),
        operation.alias("_operation"),
        F.col("_parsed.table").alias("_table"),
        before.alias("_before"),
        F.col("_parsed.flaw").alias("_flaw"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
    )
    return taken.select("_shown.*", *_OURS)

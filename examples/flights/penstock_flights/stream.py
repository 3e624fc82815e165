"""Spark's readers of the prepared events: a stream of micro-batches, and the digest for the comparison."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.window import Window

from penstock_flights.digest import StreamDigest
from penstock_flights.flights import KEY_COLUMNS, ORDER_COLUMN
from publishers.spark.schema import Encoding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["EVENTS_DDL", "FLIGHT", "read_events", "source_digest"]

FLIGHT: Final = "flight"
EVENTS_DDL: Final = """
    seq BIGINT, time TIMESTAMP, status STRING, carrier STRING, number INT, date DATE, origin STRING, dest STRING,
    tailnum STRING, distance INT, scheduled_departure TIMESTAMP, scheduled_arrival TIMESTAMP, departure TIMESTAMP,
    departure_delay INT, arrival TIMESTAMP, arrival_delay INT
"""
_FILES: Final = "*.parquet"
_STRETCH: Final = 50_000


def read_events(spark: "SparkSession", directory: Path, files_per_trigger: int) -> "DataFrame":
    """Streams prepared events, ``files_per_trigger`` files in a micro-batch, in the order of time.

    Commit them with ``ChangeSink(log, entity_type=FLIGHT, key=KEY_COLUMNS, order_by=ORDER_COLUMN)``: rows of one batch come
    from several files at once.
    """
    stream = spark.readStream.schema(EVENTS_DDL).option("maxFilesPerTrigger", files_per_trigger)
    return stream.option("pathGlobFilter", _FILES).parquet(str(directory))


def _renumbered(rows: "DataFrame") -> "DataFrame":
    """Numbers the rows from 1: the number within a range of the order, plus the count of all rows in earlier ranges.

    A single window over all rows would run on one core.
    """
    stretch = F.expr(f"({ORDER_COLUMN} - 1) div {_STRETCH}")
    counted = rows.groupBy(stretch.alias("stretch")).count().orderBy("stretch").collect()
    before = [(0, 0)]
    for row in counted:
        before.append((row["stretch"] + 1, before[-1][1] + row["count"]))
    earlier = F.lit(0)
    for first, count in before[1:]:
        earlier = F.when(F.col(ORDER_COLUMN) > first * _STRETCH, F.lit(count)).otherwise(earlier)
    inside = F.row_number().over(Window.partitionBy(stretch).orderBy(ORDER_COLUMN))
    return rows.withColumn(ORDER_COLUMN, (inside + earlier).cast("bigint"))


def source_digest(
    spark: "SparkSession", directory: Path, *, glob: str | None = None, where: str | None = None
) -> StreamDigest:
    """Computes with Spark the digest that a subscriber of these events must have.

    Args:
        spark: Any session.
        directory: The directory of prepared events.
        glob: Reads only files whose names match, such as ``events-0000?.parquet``.
        where: An SQL condition; the matching events are numbered among themselves, as a subscriber with these criteria counts
            them. If files at the front are left out, only ``count`` and ``content`` can agree.
    """
    rows = spark.read.schema(EVENTS_DDL).option("pathGlobFilter", glob or _FILES).parquet(str(directory))
    if where is not None:
        rows = _renumbered(rows.where(where))
    encoded = Encoding(key=KEY_COLUMNS, order_by=(ORDER_COLUMN,)).select(rows)
    line = encoded.select("order_0", F.concat("key", F.lit("\n"), "body").cast("binary").alias("line"))
    place = F.concat(F.col("order_0").cast("string"), F.lit("\n")).cast("binary")
    ordered, content = F.crc32(F.concat(place, "line")), F.crc32("line")
    sums = line.select(
        F.count("*"), F.sum(ordered.cast("decimal(20,0)")), F.sum(content.cast("decimal(20,0)"))
    )
    count, in_order, anyhow = sums.collect()[0]
    return StreamDigest(count, int(in_order or 0), int(anyhow or 0))

"""Spark's readers of the prepared events: a stream of micro-batches, and the digests for the comparison."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.window import Window

from penstock_flights.digest import MODULUS, StreamDigest
from penstock_flights.flights import KEY_COLUMNS, ORDER_COLUMN
from publishers.spark.schema import Encoding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["EVENTS_DDL", "FLIGHT", "read_events", "source_digests"]

FLIGHT: Final = "flight"
EVENTS_DDL: Final = """
    seq BIGINT, time TIMESTAMP, status STRING, carrier STRING, number INT, date DATE, origin STRING, dest STRING,
    tailnum STRING, distance INT, scheduled_departure TIMESTAMP, scheduled_arrival TIMESTAMP, departure TIMESTAMP,
    departure_delay INT, arrival TIMESTAMP, arrival_delay INT
"""
_FILES: Final = "*.parquet"


def read_events(spark: "SparkSession", directory: Path, files_per_trigger: int) -> "DataFrame":
    """Streams prepared events, ``files_per_trigger`` files in a micro-batch, in the order of time.

    Commit them with ``ChangeSink(log, entity_type=FLIGHT, key=KEY_COLUMNS, order_by=ORDER_COLUMN)``: rows of one batch come
    from several files at once.
    """
    stream = spark.readStream.schema(EVENTS_DDL).option("maxFilesPerTrigger", files_per_trigger)
    return stream.option("pathGlobFilter", _FILES).parquet(str(directory))


def source_digests(
    spark: "SparkSession", directory: Path, wheres: Iterable[str | None], *, glob: str | None = None
) -> dict[str | None, StreamDigest]:
    """Computes with Spark the digests that subscribers of these events must have, in one pass over the events.

    Args:
        spark: Any session.
        directory: The directory of prepared events.
        wheres: SQL conditions, or None for all events; the events that match one are numbered among themselves, as a subscriber
            with these criteria counts them.
        glob: Reads only files whose names match, such as ``events-0000?.parquet``. If files at the front are left out, only
            ``count`` and ``content`` can agree for None.
    """
    rows = spark.read.schema(EVENTS_DDL).option("pathGlobFilter", glob or _FILES).parquet(str(directory))
    asked = list(dict.fromkeys(wheres))
    key, body = Encoding(key=KEY_COLUMNS, order_by=(ORDER_COLUMN,)).columns(rows.schema)[:2]
    chosen = [F.lit(True) if where is None else F.expr(where) for where in asked]
    lines = rows.select(
        ORDER_COLUMN,
        F.crc32(F.concat(key, F.lit("\n"), body).cast("binary")).alias("content"),
        *(one.alias(f"chosen_{number}") for number, one in enumerate(chosen)),
    )
    # Only numbers are sorted, all of them on one core.
    before = Window.orderBy(ORDER_COLUMN).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    sums: list[Column] = []
    for number, where in enumerate(asked):
        here, content = F.col(f"chosen_{number}"), F.col("content")
        place = F.col(ORDER_COLUMN)
        if where is not None:
            place = F.col(f"place_{number}")
            lines = lines.withColumn(f"place_{number}", F.count_if(here).over(before))
        sums += [
            F.count_if(here),
            F.sum(F.when(here, place * content % MODULUS)),
            F.sum(F.when(here, content)),
        ]
    found = [one or 0 for one in lines.select(*sums).collect()[0]]
    return {where: StreamDigest(*found[3 * n : 3 * n + 3]) for n, where in enumerate(asked)}

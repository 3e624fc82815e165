"""The sink of streaming queries, against Spark's own sink of JSON files: time and size for the same rows and micro-batches."""

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks import harness
from benchmarks.harness import Table, progress
from benchmarks.processes import cpu_seconds
from publishers import ChangeLog
from publishers.spark import ChangeSink, spark_session

ROWS = 1_000_000
WIDE_ROWS = 200_000
BATCHES = 10
WARMING = 4
"""Rounds that do not count, in which the JVM compiles."""
_COLUMNS: Final = 24  # of a wide row, beside the two of a narrow one
_JSON: Final = "Spark, JSON files"
_SINK: Final = "penstock, ChangeSink"
_COMPRESSED: Final = "penstock, ChangeSink, compress=True"
_GOALS: Final = {"narrow": (1.4, 1.5), "wide": (1.2, 1.2)}
"""The goals for the sink, as ratios to Spark's sink: CPU time, and wall-clock time."""


def run(_directory: Path) -> dict[str, Table]:
    """A million narrow rows, and 200,000 of 26 columns, in ten micro-batches."""
    spark = spark_session("penstock-bench")
    tables: dict[str, Table] = {}
    for kind, rows in (("narrow", ROWS), ("wide", WIDE_ROWS)):
        # Checkpoints of some hundred files are removed after each round, not at the end.
        with tempfile.TemporaryDirectory(dir=_directory) as place:
            tables |= _tables(spark, Path(place), kind, rows)
    return tables


def _tables(spark: SparkSession, place: Path, kind: str, rows: int) -> dict[str, Table]:
    source = place / "source"
    for batch in range(BATCHES):
        part = spark.range(batch * rows // BATCHES, (batch + 1) * rows // BATCHES, 1, 1)
        _rows(part, kind).write.mode("append").parquet(str(source))
    schema = spark.read.parquet(str(source)).schema
    ways = {_JSON: _to_json, _SINK: _to_log, _COMPRESSED: partial(_to_log, compress=True)}
    weights: dict[str, int] = {}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(WARMING + harness.ROUNDS):
        for name in sorted(ways, reverse=number % 2 == 1):
            stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
            turn = place / f"{number}-{len(name)}"
            began, used = time.perf_counter(), cpu_seconds()
            ways[name](stream, turn, rows)
            if number >= WARMING:
                seconds[name].append(rows / (time.perf_counter() - began))
                processor[name].append(rows / max(cpu_seconds() - used, 0.01))
            weights[name] = sum(file.stat().st_size for file in (turn / "kept").rglob("*[0-9].log"))
            weights[name] += sum(file.stat().st_size for file in (turn / "kept").rglob("*.json"))
        progress(f"{kind} rows: round {number + 1} of {WARMING + harness.ROUNDS}")
    progress()
    sizes = (
        f"{rows:,} rows in {BATCHES} micro-batches, B={rows // BATCHES:,}; penstock synced with each batch"
    )
    most_cpu, most_time = _GOALS[kind]
    by_cpu = Table(
        f"{kind} rows from Spark, CPU time of all processes", "rows/CPU s", processor, sizes
    ).show()
    by_cpu.reach(_SINK, ">=", 1 / most_cpu, _JSON)
    by_time = Table(f"{kind} rows from Spark, time", "rows/s", seconds, sizes).show()
    by_time.reach(_SINK, ">=", 1 / most_time, _JSON)
    for name, weight in weights.items():
        by_time.note(f"{name}: {weight / rows:.0f} bytes a row on the disk")
    print()
    return {f"spark, {kind}, CPU": by_cpu, f"spark, {kind}, time": by_time}


def _rows(ids: DataFrame, kind: str) -> DataFrame:
    narrow = ["id", F.concat(F.lit("name "), F.col("id") % 1000).alias("name")]
    if kind == "narrow":
        return ids.select(*narrow)
    texts = [F.concat(F.lit(f"value {n} of "), F.col("id")).alias(f"text_{n}") for n in range(_COLUMNS // 2)]
    numbers = [(F.col("id") * (n + 1)).alias(f"number_{n}") for n in range(_COLUMNS - len(texts))]
    return ids.select(*narrow, *texts, *numbers)


def _to_json(stream: DataFrame, place: Path, _rows: int) -> None:
    _wait(stream.writeStream.format("json").option("path", str(place / "kept")), place)


def _to_log(stream: DataFrame, place: Path, rows: int, *, compress: bool = False) -> None:
    with ChangeLog.open(place / "kept", compress=compress) as log:
        sink = ChangeSink(log, entity_type="row", key="id")
        _wait(stream.writeStream.foreachBatch(sink), place)
        assert sink.statistics().rows == rows, sink.statistics()


def _wait(writer: "DataStreamWriter", place: Path) -> None:
    query = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()

"""The data source for Spark, against Parquet files of the same rows, read by as many tasks and discarded."""

import time
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from benchmarks import harness
from benchmarks.harness import Table, progress
from benchmarks.processes import cpu_seconds
from publishers import ChangeLog
from publishers.spark import ChangeSink, register, spark_session

ROWS = 1_000_000
COMMITS = 10
WARMING = 2
"""Rounds that do not count, in which the JVM compiles."""
_CHOSEN: Final = {"all columns": "", "key and body": "key,body"}
_PARQUET: Final = "Spark, Parquet"
_SOURCE: Final = "penstock, from its directory"
_GOAL: Final = 0.5


def run(directory: Path) -> dict[str, Table]:
    """A million rows of ten commits: all columns, and key and body alone."""
    spark = spark_session("penstock-bench")
    register(spark)
    log = directory / "log"
    with ChangeLog.open(log) as opened:
        sink = ChangeSink(opened, entity_type="row", key="id", producer="bench")
        for number in range(COMMITS):
            ids = spark.range(number * ROWS // COMMITS, (number + 1) * ROWS // COMMITS, 1, 1)
            texts = [F.concat(F.lit(f"value {n} of "), F.col("id")).alias(f"text_{n}") for n in range(4)]
            sink(ids.select("id", *texts), number)
    files = str(directory / "parquet")
    _changes(spark, log, "").write.parquet(files)
    return {title: table for name in _CHOSEN for title, table in _compared(spark, log, files, name).items()}


def _changes(spark: SparkSession, log: Path, columns: str) -> DataFrame:
    reader = spark.read.format("penstock").option("area", "DATA")
    return (reader.option("columns", columns) if columns else reader).load(str(log))


def _compared(spark: SparkSession, log: Path, files: str, name: str) -> dict[str, Table]:
    columns = _CHOSEN[name]
    parquet = spark.read.parquet(files)
    ways = {
        _PARQUET: partial(parquet.select, *columns.split(",")) if columns else lambda: parquet,
        _SOURCE: partial(_changes, spark, log, columns),
    }
    assert all(way().count() == ROWS for way in ways.values())
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    processor: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(WARMING + harness.ROUNDS):
        for way in sorted(ways, reverse=number % 2 == 1):
            began, used = time.perf_counter(), cpu_seconds()
            ways[way]().write.format("noop").mode("overwrite").save()
            if number >= WARMING:
                seconds[way].append(ROWS / (time.perf_counter() - began))
                processor[way].append(ROWS / max(cpu_seconds() - used, 0.01))
        progress(f"{name}: round {number + 1} of {WARMING + harness.ROUNDS}")
    progress()
    sizes = f"{ROWS:,} rows of {COMMITS} commits, B={ROWS // COMMITS:,}; from the page cache"
    by_time = Table(f"rows to Spark, {name}, time", "rows/s", seconds, sizes).show()
    by_time.reach(_SOURCE, ">=", _GOAL, _PARQUET)
    by_cpu = Table(f"rows to Spark, {name}, CPU time of all processes", "rows/CPU s", processor, sizes).show()
    print()
    return {f"spark source, {name}, time": by_time, f"spark source, {name}, CPU": by_cpu}

"""One SparkSession for all tests (``tests.conftest``); each test has a log, a source directory, a checkpoint and queries of its own."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from publishers import Area, Change, ChangeLog, Content


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ChangeLog]:
    with ChangeLog.open(tmp_path / "log") as opened:
        yield opened


class Source:
    """A file stream of which each file is a micro-batch, and the query that reads it."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.files = directory / "source"
        self.files.mkdir()
        self.checkpoint = directory / "checkpoint"
        self._count = 0

    def add(self, *rows: dict) -> None:
        self._count += 1
        path = self.files / f"{self._count:04d}.json"
        draft = self.files / f".{path.name}"
        draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(draft, (1_700_000_000 + self._count,) * 2)
        draft.rename(path)

    def add_numbers(self, batches: int, rows: int) -> None:
        for batch in range(batches):
            self.add(*({"id": batch * rows + row, "name": f"n{row}"} for row in range(rows)))

    def read(self, schema: str = "id BIGINT, name STRING") -> DataFrame:
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.files))

    def start(
        self, function: Callable[[DataFrame, int], None], schema: str = "id BIGINT, name STRING", name=None
    ):
        writer = (
            self.read(schema)
            .writeStream.foreachBatch(function)
            .option("checkpointLocation", str(self.checkpoint))
        )
        return (writer.queryName(name) if name else writer).trigger(availableNow=True).start()

    def run(
        self, function: Callable[[DataFrame, int], None], schema: str = "id BIGINT, name STRING", name=None
    ) -> None:
        query = self.start(function, schema, name)
        assert query.awaitTermination(300), "the query hangs"

    def forget_newest_commit(self) -> int:
        """Makes Spark run its newest batch again, as after a stop or a crash between our commit and its own."""
        commits = self.checkpoint / "commits"
        newest = max(
            (entry for entry in commits.iterdir() if entry.name.isdigit()), key=lambda entry: int(entry.name)
        )
        newest.unlink()
        (commits / f".{newest.name}.crc").unlink(missing_ok=True)
        return int(newest.name)


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Iterator[Source]:
    made = Source(spark, tmp_path)
    yield made
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def stored() -> Callable[[ChangeLog], list[Change]]:
    """Reads every change of data that a log holds; schemas are told beside them."""

    def read(log: ChangeLog) -> list[Change]:
        found = log.history(None, limit=1_000_000, content=Content.BODY)
        return [change for change in found.changes if change.area is Area.DATA]

    return read

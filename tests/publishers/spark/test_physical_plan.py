import gc

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from publishers.spark import ChangeSink
from publishers.spark.physical_plan import PhysicalPlan, scan_of
from publishers.spark.plan import BatchPlan
from tests.publishers.support import wait_until

pytestmark = pytest.mark.timeout(600)
COLUMNS = 120
"""More than Spark compiles into one function."""


@pytest.fixture
def planned(monkeypatch):
    """Counts the frames that Spark must plan."""
    frames = []
    select = BatchPlan._select

    def counted(plan, frame, most):
        frames.append(frame)
        return select(plan, frame, most)

    monkeypatch.setattr(BatchPlan, "_select", counted)
    return frames


def bodies(changes):
    return [change.body_bytes for change in changes]


def test_the_batches_of_a_query_are_planned_until_the_size_of_rows_is_known_and_not_again(
    source, log, stored, planned
):
    """The first batch is stored, the second one has a limit by the rows of the first, and the third one by those of the second."""
    counts = []

    def commit(frame, batch):
        sink(frame, batch)
        counts.append(len(planned))

    sink = ChangeSink(log, entity_type="number", key="id")
    source.add_numbers(5, 4)
    source.run(commit)
    assert counts[0] == 1
    assert counts[2:] == [counts[2]] * 3
    assert bodies(stored(log)) == [b'{"id":%d,"name":"n%d"}' % (row, row % 4) for row in range(20)]


def test_queries_of_one_schema_in_turns_commit_their_own_rows(spark, source, log, stored):
    """Their columns have the same names and types, but are other attributes."""

    def commit(frame, batch):
        ours(frame, batch)
        theirs(spark.createDataFrame([(100 + batch, "other")], frame.schema), batch)

    ours = ChangeSink(log, entity_type="number", key="id", producer="ours")
    theirs = ChangeSink(log, entity_type="number", key="id", producer="theirs")
    source.add_numbers(4, 1)
    source.run(commit)
    source.add_numbers(2, 1)
    source.run(commit)
    keys = [change.key for change in stored(log)]
    assert keys == ["0", "100", "1", "101", "2", "102", "3", "103", "0", "104", "1", "105"]


def test_a_batch_with_more_columns_than_spark_compiles_into_one_function_is_not_planned_again(
    source, log, stored, planned
):
    names = [f"column_{number}" for number in range(COLUMNS)]
    sink = ChangeSink(log, entity_type="wide", key="id")
    for row in range(5):
        source.add({"id": row, **dict.fromkeys(names, row)})
    source.run(sink, "id BIGINT, " + ", ".join(f"{name} INT" for name in names))
    assert len(planned) < 5
    assert [change.body for change in stored(log)] == [
        {"id": row, **dict.fromkeys(names, row)} for row in range(5)
    ]


def test_a_batch_that_the_caller_persists_is_read_from_where_it_is_kept(source, log, stored):
    """Its rows would be other ones if they were computed again, by the plan of the batches before."""
    rows = []

    def commit(frame, batch):
        if batch >= 4:
            frame.collect()  # Spark plans this frame before it is persisted
            frame.persist()
            rows.extend(row.name for row in frame.select("*").collect())
        sink(frame, batch)

    sink = ChangeSink(log, entity_type="number", key="id")
    source.add_numbers(6, 2)
    random = source.read().withColumn("name", F.expr("reflect('java.util.UUID', 'randomUUID')"))
    query = random.writeStream.option("checkpointLocation", str(source.checkpoint)).trigger(availableNow=True)
    assert query.foreachBatch(commit).start().awaitTermination(300)
    assert [change.body["name"] for change in stored(log)][8:] == rows


def test_a_batch_that_the_caller_transforms_is_planned_each_time(source, log, stored, planned):
    sink = ChangeSink(log, entity_type="number", key="id")
    source.add_numbers(3, 2)
    source.run(lambda frame, batch: sink(frame.where("id % 2 = 0"), batch))
    assert len(planned) == 3
    assert [change.key for change in stored(log)] == ["0", "2", "4"]


def test_no_batch_is_kept_once_it_is_committed(spark, source, log):
    """A plan that kept it would keep its shuffles and broadcasts."""
    java = spark.sparkContext._jvm.java.lang
    kept = []

    def commit(frame, batch):
        kept.append(java.ref.WeakReference(frame._jdf.logicalPlan().rdd()))
        sink(frame, batch)

    sink = ChangeSink(log, entity_type="number", key="id")
    source.add_numbers(4, 2)
    source.run(commit)

    def collected():
        gc.collect()
        java.System.gc()
        return all(reference.get() is None for reference in kept[:-1])

    wait_until(collected)


def test_a_plan_of_another_shape_is_not_kept(spark):
    numbers = spark.range(3)
    for frame in (numbers, numbers.where("id > 1"), numbers.crossJoin(numbers)):
        assert scan_of(frame) is None
        assert PhysicalPlan.of(frame) is None
    drawn = spark.createDataFrame([(1,)], "id BIGINT").withColumn("drawn", F.rand())
    assert PhysicalPlan.of(drawn.where("drawn < 0.5").select("id")) is None, "two projections"

from itertools import chain

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from publishers.spark.errors import BatchTooLarge
from publishers.spark.gather import windows

LIMIT = "spark.driver.maxResultSize"


def frame_of(spark, rows, partitions, size=10):
    """Rows of which each partition holds a range of ids, in order."""
    return spark.range(0, rows, 1, partitions).select(
        F.col("id").cast("string").cast("binary").alias("key"),
        F.repeat(F.lit("x"), F.lit(size)).cast("binary").alias("body"),
        F.col("id").alias("order_0"),
    )


def keys_of(window):
    return [int(key) for batch in window for key in batch.column("key").to_pylist()]


@pytest.fixture
def result_limit(spark):
    """Sets how much Spark hands to the driver; it is asked anew for each stage."""
    conf = spark.sparkContext._jsc.sc().conf()

    def limit(value):
        conf.set(LIMIT, value)

    yield limit
    conf.set(LIMIT, "1g")


def test_few_partitions_come_in_one_window_in_their_order(spark):
    found = list(windows(frame_of(spark, 1000, 8), 0, 1))
    assert [keys_of(window) for window in found] == [list(range(1000))]


def test_many_partitions_come_in_windows_of_about_the_bytes_asked_for(spark):
    found = [keys_of(window) for window in windows(frame_of(spark, 3000, 30, size=100), 0, 35_000)]
    assert list(chain.from_iterable(found)) == list(range(3000))
    # A partition brings some 12,000 bytes; the first window does not know that yet.
    assert len(found[0]) == 800
    assert {len(keys) for keys in found[1:-1]} == {200}


def test_empty_partitions_bring_nothing(spark):
    found = list(windows(frame_of(spark, 3, 20), 0, 1 << 20))
    assert [key for window in found for key in keys_of(window)] == [0, 1, 2]
    assert not [key for window in windows(frame_of(spark, 0, 3), 0, 1 << 20) for key in keys_of(window)]


def test_a_window_above_the_limit_is_halved(spark, result_limit):
    result_limit("1m")
    found = [keys_of(window) for window in windows(frame_of(spark, 800, 8, size=3000), 0, 1 << 30)]
    assert list(chain.from_iterable(found)) == list(range(800))
    assert [len(keys) for keys in found] == [200, 200, 200, 200]


def test_a_partition_above_the_limit_fails_and_names_the_ways_out(spark, result_limit):
    result_limit("1m")
    with pytest.raises(
        BatchTooLarge, match=r"spark\.driver\.maxResultSize \(1m\).*repartition.*maxFilesPerTrigger"
    ):
        list(windows(frame_of(spark, 1000, 1, size=3000), 0, 1 << 30))


@pytest.mark.parametrize(("partitions", "limit"), [(4, "1g"), (30, "1g"), (4, "1m")])
def test_rows_are_ordered_wherever_they_are_sorted(spark, result_limit, partitions, limit):
    mixed = frame_of(spark, 900, partitions, size=2000).withColumn("order_0", 900 - F.col("order_0"))
    result_limit(limit)
    found = [key for window in windows(mixed, 1, 400_000) for key in keys_of(window)]
    assert found == list(range(899, -1, -1))


@pytest.mark.parametrize("limit", ["1g", "1m"])
def test_nulls_come_first_and_a_second_column_decides_between_equals(spark, result_limit, limit):
    rows = spark.sql(
        "select * from values (2, 'b'), (null, 'z'), (2, 'a'), (1, 'c'), (2, null), (null, 'y') as t(a, b)"
    )
    frame = rows.select(
        F.concat_ws("-", F.coalesce("a", F.lit(0)), F.coalesce("b", F.lit("0"))).cast("binary").alias("key"),
        F.repeat(F.lit("x"), F.lit(500_000)).cast("binary").alias("body"),
        F.col("a").alias("order_0"),
        F.col("b").alias("order_1"),
    )
    result_limit(limit)
    found = [
        key
        for window in windows(frame.repartition(3), 2, 1)
        for batch in window
        for key in batch.column("key").to_pylist()
    ]
    assert found == [b"0-y", b"0-z", b"1-c", b"2-0", b"2-a", b"2-b"]


def test_another_failure_is_passed_on_as_it_is(spark):
    broken = frame_of(spark, 10, 2).withColumn("body", F.raise_error(F.lit("on purpose")).cast("binary"))
    with pytest.raises(Exception, match="on purpose"):
        list(windows(broken, 0, 1 << 20))


def test_large_types_of_arrow_are_read_as_what_they_are(spark):
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    (window,) = windows(frame_of(session, 5, 1), 0, 1 << 20)
    assert keys_of(window) == [0, 1, 2, 3, 4]

from itertools import chain

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from publishers.spark.errors import BatchTooLarge
from publishers.spark.partitions import TooMuchAtOnce, in_order, spread_windows
from publishers.spark.partitions import windows as windows_of_rows
from publishers.spark.schema import Encoding
from publishers.spark.stored_batches import StoredBatches

LIMIT = "spark.driver.maxResultSize"
BY_ID = Encoding(key=("id",))


def windows(frame, encoding, *, collect_bytes, row_bytes=512):
    return windows_of_rows(frame, encoding, collect_bytes=collect_bytes, row_bytes=row_bytes)


def frame_of(spark, rows, partitions, size=10):
    """Rows of which each partition holds a range of ids, in order."""
    return spark.range(0, rows, 1, partitions).withColumn("text", F.repeat(F.lit("x"), F.lit(size)))


@pytest.mark.parametrize("order", [[], [7], [1, 2, 3], [1, 1, 2], [2, 1, 3], [3, None, 1, 3]])
def test_rows_of_all_batches_are_brought_into_order_nulls_first_and_equal_ones_as_they_came(order):
    whole = pa.record_batch(
        {"order_0": pa.array(order, pa.int64()), "at": pa.array(range(len(order)), pa.int64())}
    )
    batches = [whole.slice(0, 2), whole.slice(2)]
    (found,) = in_order(batches, 1)
    expected = sorted(zip(order, range(100), strict=False), key=lambda row: (row[0] is not None, row[0] or 0))
    assert found.column("at").to_pylist() == [at for _, at in expected]


def counted(spark, rows):
    """A partition of ids, and how often it was computed; a property of Java counts, as Spark runs in one process."""
    java = spark.sparkContext._jvm.System
    java.setProperty("computed", "-")
    once = "reflect('java.lang.System', 'setProperty', 'computed', concat(reflect('java.lang.System', 'getProperty', 'computed'), 'x'))"
    noted = spark.range(0, 1, 1, 1).selectExpr(f"{once} as noted")
    frame = noted.selectExpr(f"explode(sequence(0, {rows - 1} + length(noted) * 0)) as id", "noted")
    return frame, lambda: java.getProperty("computed").count("x")


def keys_of(window):
    return [key.decode() for batch in window for key in batch.column("key").to_pylist()]


def ids_of(found):
    return [int(key) for window in found for key in keys_of(window)]


@pytest.fixture
def result_limit(spark):
    """Sets how much Spark hands to the driver; it is asked anew for each stage."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get(LIMIT)
    yield lambda value: conf.set(LIMIT, value)
    conf.set(LIMIT, before)


def test_few_partitions_come_in_one_window_in_their_order(spark):
    found = list(windows(frame_of(spark, 1000, 8), BY_ID, collect_bytes=1 << 20))
    assert [ids_of([window]) for window in found] == [list(range(1000))]


def test_many_partitions_come_in_windows_of_about_the_bytes_asked_for(spark):
    found = [
        ids_of([window])
        for window in windows(frame_of(spark, 3000, 30, size=70), BY_ID, collect_bytes=60_000)
    ]
    assert list(chain.from_iterable(found)) == list(range(3000))
    # A partition brings some 11,000 bytes; the first window does not know that yet.
    assert len(found[0]) == 800
    assert {len(keys) for keys in found[1:-1]} == {500}


def test_empty_partitions_bring_nothing(spark):
    assert ids_of(windows(frame_of(spark, 3, 20), BY_ID, collect_bytes=1 << 20)) == [0, 1, 2]
    assert ids_of(windows(frame_of(spark, 0, 3), BY_ID, collect_bytes=1 << 20)) == []
    assert ids_of(spread_windows(frame_of(spark, 0, 3), BY_ID, collect_bytes=1 << 20)) == []
    for encoding in (BY_ID, Encoding(key=("id",), order_by=("id",))):
        assert ids_of(StoredBatches(frame_of(spark, 0, 3), encoding, collect_bytes=1 << 20)) == []


def test_a_window_above_the_limit_is_halved(spark, result_limit):
    result_limit("1m")
    frame = frame_of(spark, 800, 8, size=3000)
    found = [ids_of([window]) for window in windows(frame, BY_ID, collect_bytes=1 << 30)]
    assert list(chain.from_iterable(found)) == list(range(800))
    assert [len(keys) for keys in found] == [200, 200, 200, 200]


def test_no_partition_brings_more_rows_than_should_fit(spark):
    assert len(ids_of(windows(frame_of(spark, 192, 2), BY_ID, collect_bytes=96_000, row_bytes=1000))) == 192
    with pytest.raises(TooMuchAtOnce):
        list(windows(frame_of(spark, 194, 2), BY_ID, collect_bytes=96_000, row_bytes=1000))


def test_a_large_partition_late_in_the_batch_is_noticed_too(spark):
    skewed = frame_of(spark, 400, 1).repartitionByRange(20, F.least("id", F.lit(19)))
    with pytest.raises(TooMuchAtOnce):
        list(windows(skewed, BY_ID, collect_bytes=10_000, row_bytes=100))
    assert sorted(ids_of(spread_windows(skewed, BY_ID, collect_bytes=10_000))) == list(range(400))


def test_a_partition_above_the_limit_is_spread(spark, result_limit):
    result_limit("1m")
    frame = frame_of(spark, 1000, 1, size=3000)
    with pytest.raises(TooMuchAtOnce):
        list(windows(frame, BY_ID, collect_bytes=1 << 30))
    found = [ids_of([window]) for window in spread_windows(frame, BY_ID, collect_bytes=800_000)]
    assert list(chain.from_iterable(found)) == list(range(1000))
    assert len(found) > 5


def test_rows_above_the_limit_fail_and_name_the_ways_out(spark, result_limit):
    result_limit("1m")
    with pytest.raises(
        BatchTooLarge, match=r"spark\.driver\.maxResultSize \(1m\).*collect_bytes.*maxFilesPerTrigger"
    ):
        list(spread_windows(frame_of(spark, 2, 1, size=2_000_000), BY_ID, collect_bytes=1000))


def test_spreading_keeps_the_order_of_partitions_and_rows(spark):
    frame = frame_of(spark, 900, 3).select((F.lit(899) - F.col("id")).alias("id"))
    assert ids_of(spread_windows(frame, BY_ID, collect_bytes=2000)) == list(range(899, -1, -1))


@pytest.mark.parametrize("way", [windows, StoredBatches, spread_windows])
def test_rows_are_ordered_whichever_way_they_come(spark, way):
    mixed = frame_of(spark, 900, 4).withColumn("place", (F.col("id") * 7) % 900).repartition(5)
    encoding = Encoding(key=("place",), order_by=("place",))
    assert ids_of(way(mixed, encoding, collect_bytes=1 << 20)) == list(range(900))


def test_rows_of_many_partitions_are_ordered_here_as_long_as_they_can_be_held(spark):
    frame, encoding = frame_of(spark, 900, 30), Encoding(key=("id",), order_by=("id",))
    assert ids_of(windows(frame.repartition(30), encoding, collect_bytes=20_000)) == list(range(900))
    with pytest.raises(TooMuchAtOnce):
        list(windows(frame, encoding, collect_bytes=10_000, row_bytes=10))


@pytest.mark.parametrize("way", [windows, StoredBatches, spread_windows])
@pytest.mark.parametrize("partitions", [1, 3])
def test_nulls_come_first_and_a_second_column_decides_between_equals(spark, way, partitions):
    values = "(2, 'b'), (null, 'z'), (2, 'a'), (1, 'c'), (2, null), (null, 'y')"
    rows = spark.sql(
        f"select *, concat_ws('-', coalesce(a, 0), coalesce(b, '0')) as id from values {values} as t(a, b)"
    )
    encoding = Encoding(key=("id",), order_by=("a", "b"), body=("id",))
    found = way(rows.repartition(partitions), encoding, collect_bytes=1 << 20)
    assert [key for window in found for key in keys_of(window)] == ["0-y", "0-z", "1-c", "2-0", "2-a", "2-b"]


@pytest.mark.parametrize("way", [windows, StoredBatches, spread_windows])
def test_columns_that_were_added_on_the_way_are_not_in_the_body(spark, way):
    frame = spark.sql("select 1 as id, 2 as row, 3 as ROW_, 4 as beyond")
    (window,) = way(frame, BY_ID, collect_bytes=1 << 20)
    assert [body for batch in window for body in batch.column("body").to_pylist()] == [
        b'{"id":1,"row":2,"ROW_":3,"beyond":4}'
    ]


def test_another_failure_is_passed_on_as_it_is(spark):
    broken = frame_of(spark, 10, 2).withColumn("text", F.raise_error(F.lit("on purpose")))
    with pytest.raises(Exception, match="on purpose"):
        list(windows(broken, BY_ID, collect_bytes=1 << 20))


def test_large_types_of_arrow_are_read_as_what_they_are(spark):
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    assert ids_of(windows(frame_of(session, 5, 1), BY_ID, collect_bytes=1 << 20)) == [0, 1, 2, 3, 4]


def test_large_partitions_come_in_parts_that_were_computed_once(spark):
    frame, computed = counted(spark, 25_000)
    found = [ids_of([window]) for window in StoredBatches(frame, BY_ID, collect_bytes=300_000)]
    assert list(chain.from_iterable(found)) == list(range(25_000))
    assert len(found) == 3
    assert computed() == 1


def test_what_is_too_much_to_be_ordered_here_is_told_by_what_was_stored_too(spark):
    encoding = Encoding(key=("id",), order_by=("id",))
    with pytest.raises(TooMuchAtOnce):
        list(StoredBatches(frame_of(spark, 900, 1), encoding, collect_bytes=5_000))


def test_a_stored_batch_above_the_limit_is_left_to_spreading(spark, result_limit):
    result_limit("1m")
    with pytest.raises(TooMuchAtOnce):
        list(StoredBatches(frame_of(spark, 1000, 1, size=3000), BY_ID, collect_bytes=1 << 30))


def test_a_stored_batch_that_was_lost_and_came_out_otherwise_is_not_taken(spark):
    frame, computed = counted(spark, 25_000)
    found = iter(StoredBatches(frame, BY_ID, collect_bytes=300_000))
    next(found)
    for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
        rdd.unpersist(True)
    with pytest.raises(TooMuchAtOnce):
        list(found)
    assert computed() == 2
    assert not spark.sparkContext._jsc.getPersistentRDDs()

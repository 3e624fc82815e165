"""A sink tells the schema of its rows, once, ahead of the first row that needs it."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from publishers import Area, ChangeLog, Content, Operation
from publishers.spark import ChangeSink

pytestmark = pytest.mark.timeout(600)

NARROW = "id BIGINT, name STRING"
WIDE = "id BIGINT, name STRING, total DECIMAL(10,2)"


def changes_of(log):
    return [change for change in log.history(None, limit=1000, content=Content.BODY).changes if change.index]


def told(log):
    return [change for change in changes_of(log) if change.area is Area.SCHEMA]


def test_a_schema_is_told_ahead_of_the_first_row_and_again_only_when_it_differs(source, log):
    """F9, F10, F11: over batches, restarts of the query and openings of the log."""
    source.add_numbers(2, 2)
    source.run(ChangeSink(log, entity_type="number", key="id"))
    source.add({"id": 9, "name": "x", "total": 1.5})
    path = log.path
    log.close()
    with ChangeLog.open(path) as log:
        source.run(ChangeSink(log, entity_type="number", key="id"), schema=WIDE)
        changes = changes_of(log)
        assert [(c.version, c.area.name, c.schema_version) for c in changes] == [
            (1, "SCHEMA", 1),
            (1, "DATA", 1),
            (1, "DATA", 1),
            (2, "DATA", 1),
            (2, "DATA", 1),
            (3, "SCHEMA", 2),
            (3, "DATA", 2),
        ]
        first, second = told(log)
        assert (first.operation, first.entity_type, first.key) == (Operation.UPSERT, "number", "entity")
        assert first.changed == ("id", "name")
        assert second.changed == ("total",)
        assert second.before == first.body
        assert second.body["fields"][2] == {
            "name": "total",
            "type": "decimal(10,2)",
            "nullable": True,
            "metadata": {},
        }


def test_a_batch_that_runs_again_tells_nothing_twice(source, log):
    """F9: a re-run after a commit that Spark has not seen, and one with another sink."""
    source.add_numbers(1, 2)
    source.run(ChangeSink(log, entity_type="number", key="id"))
    source.forget_newest_commit()
    source.add_numbers(1, 1)
    sink = ChangeSink(log, entity_type="number", key="id")
    source.run(sink)
    assert sink.statistics().repeated == 1
    assert len(told(log)) == 1


def test_types_that_come_from_a_column_are_told_one_by_one(source, log):
    """F9, F10."""
    source.add({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    source.add({"id": 3, "name": "a"}, {"id": 4, "name": "c"})
    source.run(ChangeSink(log, entity_type_column="name", name="kinds", key="id", order_by="id"))
    seen = set()
    for change in changes_of(log):
        if change.area is Area.SCHEMA:
            assert change.entity_type not in seen
            seen.add(change.entity_type)
        else:
            assert change.entity_type in seen
            assert change.schema_version == 1
    assert seen == {"a", "b", "c"}


def test_nothing_is_told_if_it_is_declined(source, log):
    source.add_numbers(1, 2)
    source.run(ChangeSink(log, entity_type="number", key="id", tell_schema=False))
    assert [change.schema_version for change in changes_of(log)] == [None, None]


def test_columns_that_may_be_null_are_told_once_though_other_batches_have_them_without(spark, log):
    """F9: else two queries of one entity type would tell their schemas in turn, for ever."""
    sink = ChangeSink(log, entity_type="number", key="id", producer="p")
    whole = "id", F.array(F.lit(1)).alias("list"), F.struct(F.lit(1).alias("n")).alias("part")
    rows = spark.range(1).select(*whole)
    nullable = spark.createDataFrame(
        [(1, [None], (None,))], "id BIGINT, list ARRAY<INT>, part STRUCT<n: INT>"
    )
    for batch, frame in enumerate((rows, rows, nullable, rows, nullable, rows.drop("list"), nullable)):
        sink(frame, batch)
    assert [change.version for change in told(log)] == [1, 3]


def test_sinks_with_columns_of_their_own_tell_one_schema_between_them(spark, log, stored):
    """F9: that of all columns, once; rows are stamped with it, and read back by it."""
    names = ChangeSink(log, entity_type="n", key="id", producer="names")
    totals = ChangeSink(log, entity_type="n", key="id", producer="totals")
    for batch in range(3):
        names(spark.range(1).selectExpr("id", "'x' AS name"), batch)
        totals(spark.range(1).selectExpr("int(id) AS id", "1.5BD AS total"), batch)
    first, second = told(log)
    assert [field["name"] for field in second.body["fields"]] == ["id", "name", "total"]
    assert [(field["type"], field["nullable"]) for field in second.body["fields"]] == [
        ("long", False),
        ("string", True),
        ("decimal(2,1)", True),
    ]
    assert (first.version, second.version, second.changed) == (1, 2, ("name", "total"))
    assert [change.schema_version for change in stored(log)] == [1, 2, 2, 2, 2, 2]
    read = log.schema("n").reader()
    assert [read(change.body) for change in stored(log)[-2:]] == [
        {"id": 0, "name": "x"},
        {"id": 0, "total": Decimal("1.5")},
    ]


def test_rows_come_back_by_the_schema_that_was_told(spark, log, stored):
    """F24: every type that Python has, as it was in Spark."""
    row = spark.range(1).select(
        F.lit(1).alias("id"),
        F.lit(2**53 + 1).cast("bigint").alias("long"),
        F.lit("1.10").cast("decimal(20,10)").alias("decimal"),
        F.lit("0.00000001").cast("decimal(20,8)").alias("small"),
        F.lit(bytearray(b"\x00\xff")).alias("binary"),
        F.lit("2026-01-02T03:04:05.678901Z").cast("timestamp").alias("at"),
        F.lit("2026-01-02T03:04:05.678901").cast("timestamp_ntz").alias("local"),
        F.lit("2024-02-29").cast("date").alias("day"),
        F.lit(float("nan")).alias("nan"),
        F.lit(None).cast("string").alias("nothing"),
        F.array(F.struct(F.lit("2.50").cast("decimal(5,2)").alias("price"))).alias("lines"),
        F.create_map(F.lit(7), F.lit("x")).alias("map"),
    )
    ChangeSink(log, entity_type="row", key="id", producer="test")(row, 0)
    change = stored(log)[-1]
    value = log.schema("row", change.schema_version).reader()(change.body)
    assert value.pop("nan") != 0
    assert value == {
        "id": 1,
        "long": 2**53 + 1,
        "decimal": Decimal("1.1000000000"),
        "small": Decimal("0.00000001"),
        "binary": b"\x00\xff",
        "at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        "local": datetime.fromisoformat("2026-01-02T03:04:05.678901"),
        "day": datetime(2024, 2, 29, tzinfo=UTC).date(),
        "nothing": None,
        "lines": [{"price": Decimal("2.50")}],
        "map": {7: "x"},
    }

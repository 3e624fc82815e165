"""Images before a change, from a column of the batch."""

from decimal import Decimal

import pytest
from pyspark.sql import types as T  # noqa: N812 - its name everywhere

from penstock_cdc.errors import InvalidOption
from publishers import ChangeLog, Content, Criterion, Images, Position
from publishers.spark import ChangeSink
from publishers.spark.errors import SchemaRefused

pytestmark = pytest.mark.timeout(600)

ENTITY = "id int, total decimal(10,2), note string"
ROWS = f"{ENTITY}, op string, old struct<id:int,total:decimal(10,2),note:string>"


def rows(spark):
    ten, twelve = Decimal("10.00"), Decimal("12.00")
    return spark.createDataFrame(
        [
            (1, ten, None, "insert", None),
            (1, twelve, None, "update", (1, ten, None)),
            (2, ten, "x", "update", (2, ten, None)),
            (2, None, None, "delete", (2, ten, "x")),
        ],
        ROWS,
    ).coalesce(1)


def test_a_column_holds_what_was_there_before(spark, tmp_path):
    """F6: without loss, as the body is; and what is shown of the two agrees."""
    with ChangeLog.open(tmp_path / "log", frame_bytes=1024) as log:
        sink = ChangeSink(
            log, entity_type="e", key="id", before="old", operation_column="op", order_by=(), producer="test"
        )
        sink(rows(spark), 0)

        def shown(images):
            return log.history(since=Position(1, 2), content=Content.BODY, images=images).changes

        assert [(change.body_bytes, change.before_bytes) for change in shown(Images.ALL)] == [
            (b'{"id":1,"total":"10.00","note":null}', None),
            (b'{"id":1,"total":"12.00","note":null}', b'{"id":1,"total":"10.00","note":null}'),
            (b'{"id":2,"total":"10.00","note":"x"}', b'{"id":2,"total":"10.00","note":null}'),
            (None, b'{"id":2,"total":"10.00","note":"x"}'),
        ]
        told = shown(Images.CHANGED_WITH_OLD)
        assert [change.changed for change in told[1:3]] == [("total",), ("note",)]
        assert told[1].before | told[1].body == {"total": "12.00"}
        wish = Criterion(entity_types={"e"}, where=["note == x"], transitions={"ENTERED", "LEFT"})
        found = log.history(wish, content=Content.BODY).changes
        assert [change.index for change in found] == [4, 5]


def test_a_batch_that_is_spread_over_frames_keeps_them_together(spark, tmp_path):
    """F6: also cut finer, as a batch is that is too large at once."""
    frame = spark.range(2_000, numPartitions=2).selectExpr(
        "id", "repeat('n', 40) AS n", "named_struct('id', id, 'n', repeat('o', id % 60)) AS old"
    )
    with ChangeLog.open(tmp_path / "log", frame_bytes=4096) as log:
        ChangeSink(log, entity_type="e", key="id", before="old", producer="p", collect_bytes=20_000)(frame, 0)
        found = log.history(since=Position(1, 2), limit=10_000, content=Content.BODY).changes
    assert len(found) == 2_000
    for change in found:
        assert change.before["id"] == change.body["id"] == int(change.key)
        assert change.before["n"] == "o" * (int(change.key) % 60)


def test_a_column_that_is_no_struct_is_refused(spark, tmp_path):
    with ChangeLog.open(tmp_path / "log") as log:
        frame = spark.range(1).selectExpr("id", "'x' AS old")
        for name, text in (("old", "the image before is a struct"), ("gone", "is not in the batch")):
            with pytest.raises(SchemaRefused, match=text):
                ChangeSink(log, entity_type="e", key="id", before=name, producer="p")(frame, 0)
        lossy = T.MapType(T.StructType([T.StructField("a", T.IntegerType())]), T.StringType())
        schema = T.StructType(
            [
                T.StructField("id", T.IntegerType()),
                T.StructField("old", T.StructType([T.StructField("m", lossy)])),
            ]
        )
        with pytest.raises(SchemaRefused, match=r"old\.m"):
            ChangeSink(log, entity_type="e", key="id", before="old", producer="p")(
                spark.createDataFrame([], schema), 0
            )
        for wrong in ("", 5, ["old"]):
            with pytest.raises(InvalidOption, match="before"):
                ChangeSink(log, entity_type="e", key="id", before=wrong)
        assert log.head == Position(1)

import json

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from publishers import ChangeLog, InvalidOption, Operation
from publishers.spark import DEBEZIUM, ChangeSink, SchemaRefused, UnorderedWarning, debezium

pytestmark = pytest.mark.timeout(600)
FIELDS = "id BIGINT, total STRING"
ONE, TWO = {"id": 1, "total": "10.00"}, {"id": 1, "total": "12.00"}


def envelope(op, before=None, after=None, table="order", **more):
    source = {"version": "3.6.0.Final", "connector": "postgresql", "db": "shop", "table": table, "lsn": 7}
    return {
        "before": before,
        "after": after,
        "source": source,
        "op": op,
        "ts_ms": 1,
        "transaction": None,
    } | more


def kafka(spark, *values):
    """As Spark's Kafka source brings them: key and value are bytes, and each has its offset."""
    rows = [
        (
            b"{}",
            None if value is None else (value if isinstance(value, bytes) else json.dumps(value).encode()),
            "shop",
            0,
            offset,
        )
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(
        rows[::-1], "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"
    )


def sink_of(log, **named):
    return ChangeSink(log, key="id", name="shop", producer="p", **DEBEZIUM, **named)


@pytest.mark.parametrize("wrapped", [False, True])
def test_each_operation_of_a_table_becomes_the_change_that_it_is(spark, log, stored, wrapped):
    told = [
        envelope("r", None, ONE),
        envelope("u", ONE, TWO),
        envelope("u", None, ONE),  # a table that tells no images before
        envelope("d", TWO, None),
        None,  # the tombstone of the deletion
        envelope("c", None, {"id": 2, "total": None, "unknown": True}, table="line"),
        envelope("m", message={"prefix": "audit", "content": "aGVsbG8="}),
        envelope("t", table="line"),
    ]
    values = [{"schema": {"type": "struct"}, "payload": one} if wrapped and one else one for one in told]
    sink_of(log)(debezium(kafka(spark, *values), FIELDS), 0)
    assert [(c.operation, c.entity_type, c.key, c.body, c.before) for c in stored(log)] == [
        (Operation.UPSERT, "order", "1", ONE, None),
        (Operation.UPSERT, "order", "1", TWO, ONE),
        (Operation.UPSERT, "order", "1", ONE, None),
        (Operation.REMOVE, "order", "1", None, TWO),
        (Operation.UPSERT, "line", "2", {"id": 2, "total": None}, None),
        (Operation.TRUNCATE, "line", None, None, None),
    ]


def test_what_is_no_envelope_is_a_bad_row_and_not_lost(spark, log, stored):
    values = [
        envelope("c", None, ONE),
        b"not json",
        b"{}",
        envelope("c", None, None),
        envelope("x", None, TWO),
    ]
    sink = sink_of(log, on_bad_row="dead_letter")
    sink(debezium(kafka(spark, *values), FIELDS), 0)
    assert len(stored(log)) == 1
    with ChangeLog.open(log.path.with_name("log.dead"), read_only=True) as dead:
        told = [(change.body["column"], change.body["operation"]) for change in stored(dead)]
    assert sorted(told, key=str) == [("_operation", "x"), ("id", "c"), ("id", None), ("id", None)]


def test_fields_may_be_a_schema(spark):
    schema = StructType([StructField("id", LongType()), StructField("total", StringType())])
    frame = kafka(spark, envelope("c", None, ONE))
    assert debezium(frame, schema).collect() == debezium(frame, FIELDS).collect()


def test_a_frame_or_a_table_that_does_not_fit_is_refused(spark):
    frame = kafka(spark, envelope("c", None, ONE))
    with pytest.raises(SchemaRefused, match="'offset' is not in the frame, which has key, value"):
        debezium(frame.drop("offset"), FIELDS)
    with pytest.raises(SchemaRefused, match="'_table' is a field of the table"):
        debezium(frame, "id BIGINT, _table STRING")
    with pytest.raises(InvalidOption, match="columns with their types"):
        debezium(frame, "BIGINT")


def test_operations_in_a_column_without_an_order_are_warned_of(log):
    with pytest.warns(UnorderedWarning, match="in the column 'op'.*name the columns that order them"):
        ChangeSink(log, entity_type="n", key="id", operation_column="op")

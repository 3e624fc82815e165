import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock_cdc.errors import InvalidOption
from publishers import ChangeLog, Operation, remove, upsert
from publishers.spark import DEBEZIUM, ChangeSink, RowRefused, SchemaRefused, UnorderedWarning, debezium
from publishers.spark.untold import UntoldValues
from publishers.state import CompactedState

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


LOGICAL = {
    "total": ("E4g=", {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}),
    "price": ({"scale": 3, "value": "AN6t"}, {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}),
    "day": (20454, {"type": "int32", "name": "io.debezium.time.Date"}),
    "early": (-800_000, {"type": "int32", "name": "org.apache.kafka.connect.data.Date"}),
    "late": (2_932_897, {"type": "int32", "name": "io.debezium.time.Date"}),
    "at": (1767225600000000, {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}),
    "local": (-1, {"type": "int64", "name": "io.debezium.time.Timestamp"}),
    "nano": (1_000, {"type": "int64", "name": "io.debezium.time.NanoTimestamp"}),
    "zoned": ("2026-01-01T00:00:00.5+02:00", {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}),
    "clock": (3_600_000_001, {"type": "int64", "name": "io.debezium.time.MicroTime"}),
    "raw": (1767225600000000, {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}),
    "bytes": ("E4g=", {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}),
}  # fmt: skip
LOGICAL_FIELDS = """total DECIMAL(10,2), price DECIMAL(12,4), day DATE, early DATE, late DATE, at TIMESTAMP, local TIMESTAMP_NTZ, nano TIMESTAMP_NTZ,
    zoned TIMESTAMP, clock TIME(6), raw BIGINT, bytes BINARY"""  # fmt: skip


def described(after, before=None, op="c"):
    """An envelope with its schema."""
    fields = [{"field": name, **kind} for name, (_, kind) in LOGICAL.items()]
    schema = {
        "type": "struct",
        "fields": [{"field": image, "fields": fields} for image in ("before", "after")],
    }
    return {"schema": schema, "payload": envelope(op, before, after)}


def test_an_envelope_with_its_schema_tells_days_times_and_decimals(spark):
    """F192: what they stand for, by the names of Debezium and of Kafka Connect."""
    after = {name: value for name, (value, _) in LOGICAL.items()}
    frame = debezium(kafka(spark, described(after)), LOGICAL_FIELDS)
    texts = frame.selectExpr(
        *(f"CAST({name} AS STRING)" for name in LOGICAL if name != "bytes"), "hex(bytes)", "_flaw"
    )
    (row,) = texts.collect()
    assert row[-1] is None, row[-1]
    assert list(row)[:-1] == [
        "50.00", "57.0050", "2026-01-01", "-0221-09-04", "+10000-01-01", "2026-01-01 00:00:00", "1969-12-31 23:59:59.999",
        "1970-01-01 00:00:00.000001", "2025-12-31 22:00:00.5", "01:00:00.000001", "1767225600000000", "1388",
    ]  # fmt: skip


@pytest.mark.parametrize("on_bad_row", ["fail", "dead_letter"])
def test_a_value_that_does_not_fit_its_column_is_a_bad_row_that_names_the_member(
    spark, log, stored, on_bad_row
):
    """F192: of every type, in both images; the other rows are committed."""
    wrong = {
        "total": "E4g=", "n": 6178466636, "big": 1.5, "day": 20454, "flag": "yes", "at": 1767225600000000, "name": 7,
        "local": "2026-01-01T00:00:00Z", "ratio": "1.5", "many": [1, 2.5],
    }  # fmt: skip
    fields = """id BIGINT, total DECIMAL(10,2), n INT, big BIGINT, day DATE, flag BOOLEAN, at TIMESTAMP, name STRING, local TIMESTAMP_NTZ,
        ratio DOUBLE, many ARRAY<INT>"""
    values = [envelope("c", None, {"id": 1, name: value}) for name, value in wrong.items()]
    values += [
        envelope("u", {"id": 2, "big": True}, {"id": 2, "big": 1}),
        envelope("c", None, {"id": 3, "big": 2.0, "n": None}),
    ]
    frame = debezium(kafka(spark, *values), fields)
    if on_bad_row == "fail":
        with pytest.raises(
            RowRefused, match=r"column 'total' is \"E4g=\" in after, which cannot be read as decimal\(10,2\)"
        ) as refused:
            sink_of(log)(frame, 0)
        assert refused.value.column == "total"
        assert stored(log) == []
        return
    sink = sink_of(log, on_bad_row=on_bad_row)
    sink(frame, 0)
    assert [(change.key, change.body["big"]) for change in stored(log)] == [("3", 2)]
    assert sink.statistics().bad_rows == len(values) - 1
    with ChangeLog.open(log.path.with_name("log.dead"), read_only=True) as dead:
        told = {change.body["column"]: change.body for change in stored(dead)}
    assert set(told) == {*(wrong.keys() - {"many"}), "many[1]"}
    assert told["day"]["why"] == "is 20454 in after, which cannot be read as date without changing it"
    assert {body["key"] for body in told.values()} == {"1", "2"}


def test_a_value_that_the_database_has_not_told_is_taken_from_before_or_makes_a_bad_row(spark, log, stored):
    """F192: as text, as bytes, and in a list."""
    unknown = {
        "note": "__debezium_unavailable_value",
        "raw": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        "tags": ["__debezium_unavailable_value"],
    }
    known = {"note": "long", "raw": "AP8=", "tags": ["a"]}
    values = [
        envelope("u", {"id": 1, **known}, {"id": 1, **unknown}),
        envelope("u", None, {"id": 2, **known, "note": unknown["note"]}),
        envelope("u", {"id": 3, **unknown}, {"id": 3, **known}),
    ]  # fmt: skip
    sink_of(log, on_bad_row="dead_letter")(
        debezium(kafka(spark, *values), "id BIGINT, note STRING, raw BINARY, tags ARRAY<STRING>"), 0
    )
    assert [change.body for change in stored(log)] == [{"id": 1, **known}]
    with ChangeLog.open(log.path.with_name("log.dead"), read_only=True) as dead:
        assert sorted((change.body["key"], change.body["column"]) for change in stored(dead)) == [
            ("2", "note"),
            ("3", "note"),
        ]


UNTOLD, UNTOLD_RAW = "__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
LONG = {"note": "l\u00f6ng", "raw": "AP8=", "tags": ["a", None], "big": 12345678901234567}
GAPS = {"note": UNTOLD, "raw": UNTOLD_RAW, "tags": [UNTOLD], "big": 7}
WIDE = "id BIGINT, note STRING, raw BINARY, tags ARRAY<STRING>, big BIGINT"


@pytest.fixture
def stated(tmp_path):
    with ChangeLog.open(tmp_path / "stated", sync="os", state=True) as log:
        yield log


def test_a_value_that_the_database_has_not_told_is_taken_from_the_state_or_an_earlier_row(
    spark, stated, stored
):
    """F192: of both images; else it makes a bad row that names the member."""
    sink = sink_of(stated, on_bad_row="dead_letter")
    keys = range(1, 8)
    sink(debezium(kafka(spark, *(envelope("c", None, {"id": n, **LONG}) for n in keys)), WIDE), 0)
    new, gone = {**LONG, "note": "new"}, {**LONG, "tags": None}
    values = [
        envelope("u", None, {"id": 1, **GAPS}),  # from the state
        envelope("u", None, {"id": 2, **new}),
        envelope("u", None, {"id": 2, **GAPS}),  # from an earlier row
        envelope("u", None, {"id": 2, **GAPS, "big": 8}),  # which was filled in itself
        envelope("d", {"id": 3, **GAPS}, None),  # the image before
        envelope("u", None, {"id": 3, **GAPS}),  # which is not there any more
        envelope("u", {"id": 4, **GAPS}, {"id": 4, **new}),
        envelope("u", None, {"id": 5, **gone}),
        envelope("u", None, {"id": 5, **GAPS}),  # null is nothing that would not be told
        envelope("u", None, {"id": 9, **GAPS}),  # no such entity
        envelope("u", None, {"id": 6, **GAPS, "big": "7"}),  # something else is wrong
        envelope("c", None, {"id": 1, **LONG}, table="line"),
        envelope("t", table="order"),
        envelope("u", None, {"id": 7, **GAPS}),
        envelope("u", None, {"id": 1, **GAPS}, table="line"),
    ]
    sink(debezium(kafka(spark, *values), WIDE), 1)
    whole = {**LONG, "big": 7}
    found = [(c.operation.name, c.entity_type, c.key, c.body, c.before) for c in stored(stated)[len(keys) :]]
    assert found == [
        ("UPSERT", "order", "1", {"id": 1, **whole}, None),
        ("UPSERT", "order", "2", {"id": 2, **new}, None),
        ("UPSERT", "order", "2", {"id": 2, **new, "big": 7}, None),
        ("UPSERT", "order", "2", {"id": 2, **new, "big": 8}, None),
        ("REMOVE", "order", "3", None, {"id": 3, **whole}),
        ("UPSERT", "order", "4", {"id": 4, **new}, {"id": 4, **whole}),
        ("UPSERT", "order", "5", {"id": 5, **gone}, None),
        ("UPSERT", "line", "1", {"id": 1, **LONG}, None),
        ("TRUNCATE", "order", None, None, None),
        ("UPSERT", "line", "1", {"id": 1, **whole}, None),
    ]
    assert list(json.loads(stored(stated)[len(keys)].body_bytes)) == [
        "id",
        *LONG,
    ]  # in the order of the columns
    with ChangeLog.open(stated.path.with_name("stated.dead"), read_only=True) as dead:
        told = [(change.body["key"], change.body["column"]) for change in stored(dead)]
    assert sorted(told) == [("3", "note"), ("5", "note"), ("6", "note"), ("7", "note"), ("9", "note")]
    sink = sink_of(stated, on_bad_row="dead_letter", on_rerun="verify")
    sink(debezium(kafka(spark, *values), WIDE), 1)  # which the log has, with values of then
    assert sink.statistics().repeated == 1


def test_rows_that_are_not_remembered_leave_a_value_untold(spark, stated, stored):
    """F192: a value of the state would be older than that of the row which was forgotten."""
    sink = sink_of(stated, compare_bytes=600)
    sink(debezium(kafka(spark, envelope("c", None, {"id": 1, **LONG})), WIDE), 0)
    values = [envelope("u", None, {"id": 1, **LONG, "note": "new"})]
    values += [envelope("c", None, {"id": n, **LONG}) for n in range(2, 5)]
    values.append(envelope("u", None, {"id": 1, **GAPS}))
    with pytest.raises(RowRefused, match="column 'note' is unavailable in after"):
        sink(debezium(kafka(spark, *values), WIDE), 1)
    assert len(stored(stated)) == 1


def test_nothing_is_taken_from_before_a_bad_row(spark, stated, stored):
    """F192: it may have changed the value, and is not in the log."""
    sink = sink_of(stated, on_bad_row="dead_letter")
    sink(debezium(kafka(spark, envelope("c", None, {"id": 1, **LONG})), WIDE), 0)
    bad = envelope("u", None, {"id": 1, **LONG, "note": "new", "big": "7"})
    sink(debezium(kafka(spark, bad, envelope("u", None, {"id": 1, **GAPS})), WIDE), 1)
    assert [change.body for change in stored(stated)] == [{"id": 1, **LONG}]
    with ChangeLog.open(stated.path.with_name("stated.dead"), read_only=True) as dead:
        assert [change.body["column"] for change in stored(dead)] == ["big", "note"]


@pytest.fixture
def meanwhile(monkeypatch):
    """Calls functions behind the next looks into the state, one each, as another writer does; returns those that are left."""
    left, find = [], CompactedState.find

    def found(state, places):
        page = find(state, places)
        if left:
            left.pop(0)()
        return page

    monkeypatch.setattr(CompactedState, "find", found)
    return left


@pytest.mark.parametrize("compare", [False, True])
def test_a_value_that_another_writer_changes_meanwhile_is_taken_again(
    spark, stated, stored, meanwhile, compare
):
    """F192: the older one would go over the newer one."""
    sink = sink_of(stated)
    sink(debezium(kafka(spark, *(envelope("c", None, {"id": n, **LONG}) for n in (1, 2))), WIDE), 0)
    values = [envelope("u", None, {"id": 1, **GAPS}), envelope("d", {"id": 2, **GAPS}, None)]
    newer = [{"id": n, **LONG, "note": "newer"} for n in (1, 2)]
    meanwhile += [
        lambda: stated.commit([upsert("order", "1", newer[0]), upsert("order", "3", {})]),
        lambda: stated.commit([upsert("order", "2", newer[1])]),
        lambda: stated.commit([upsert("order", "3", {"n": 1})]),  # which the batch does not read
    ]
    if compare:
        options = {name: value for name, value in DEBEZIUM.items() if name != "before"}
        sink = ChangeSink(stated, key="id", name="shop", producer="p", compare=True, **options)
        values = values[:1]
        meanwhile[1] = meanwhile[2]
    sink(debezium(kafka(spark, *values), WIDE).drop(*["_before"][: int(compare)]), 1)
    assert not meanwhile
    last = {change.key: change for change in stored(stated)}
    assert last["1"].body == {**newer[0], "big": 7}
    if not compare:
        assert last["2"].before == {**newer[1], "big": 7}


def test_a_row_that_turns_bad_while_the_batch_is_tried_again_is_a_dead_letter(
    spark, stated, stored, meanwhile
):
    """F192: also if an earlier attempt has told of other rows."""
    sink = sink_of(stated, on_bad_row="dead_letter")
    sink(debezium(kafka(spark, envelope("c", None, {"id": 1, **LONG})), WIDE), 0)
    meanwhile.append(lambda: stated.commit([remove("order", "1")]))
    values = [envelope("u", None, {"id": n, **GAPS}) for n in (1, 2)]
    sink(debezium(kafka(spark, *values, envelope("c", None, {"id": 3, **LONG})), WIDE), 1)
    with ChangeLog.open(stated.path.with_name("stated.dead"), read_only=True) as dead:
        assert [change.body["key"] for change in stored(dead)] == ["2", "1", "2"]
    assert stored(stated)[-1].body == {"id": 3, **LONG}


def test_without_a_state_a_value_stays_untold(spark, log, stored):
    """F192: also if the log has it."""
    sink = sink_of(log)
    sink(debezium(kafka(spark, envelope("c", None, {"id": 1, **LONG})), WIDE), 0)
    with pytest.raises(RowRefused, match="column 'note' is unavailable in after"):
        sink(debezium(kafka(spark, envelope("u", None, {"id": 1, **GAPS})), WIDE), 1)


def test_types_that_envelopes_lack_are_refused(spark):
    with pytest.raises(SchemaRefused, match="has a type that envelopes lack"):
        debezium(kafka(spark, envelope("c", None, ONE)), "id BIGINT, place GEOMETRY(ANY)")


def test_rows_for_a_log_without_a_state_keep_their_flaw_also_at_a_server():
    """Nothing is read from the state of a server, so nothing may be asked of it."""
    batch = pa.RecordBatch.from_pydict({"lacks": pa.array([b"[]", None], pa.binary())})
    encoding: Any = SimpleNamespace(operations={})
    server: Any = SimpleNamespace()
    assert UntoldValues(server, encoding, "order", 1_000, 1.0, None).filled(batch) is batch

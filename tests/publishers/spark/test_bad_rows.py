from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import InvalidOption, LogReadOnly
from publishers import ChangeLog, Operation
from publishers.losses import LINES_MAX, key_digest
from publishers.spark import ChangeSink, RowRefused, TooManyBadRows
from publishers.spark.arrow import columns_of
from publishers.spark.bad_rows import BadRows
from publishers.spark.schema import Encoding

pytestmark = pytest.mark.timeout(600)
SCHEMA = "id STRING, op STRING, kind STRING, name STRING"
BY_ALL = Encoding(key=("id",), operation_column="op", entity_type_column="kind")
LONG = "k" * 1025


def bad_rows(limit=100):
    return BadRows(BY_ALL, "dead_letter", limit=limit, max_key_bytes=1024, log_id=UUID(int=1))


def batch_of(rows):
    keys, operations, kinds = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None if key is None else key.encode() for key in keys], pa.binary()),
            "body": pa.array([b'{"row":%d}' % number for number in range(len(rows))], pa.binary()),
            "operation": pa.array(operations, pa.string()),
            "entity_type": pa.array(kinds, pa.string()),
        }
    )


def is_good(row):
    key, operation, kind = row
    return (
        bool(key)
        and len(key) <= 1024
        and operation in ("upsert", "remove")
        and bool(kind)
        and len(kind) <= 1024
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "", None, LONG]),
            st.sampled_from(["upsert", "remove", "?", None]),
            st.sampled_from(["order", "line", "", None, "t" * 1025]),
        ),
        max_size=30,
    )
)
def test_every_bad_row_is_left_out_once_and_every_good_one_stays_in_its_order(rows):
    """F154: what stays can become changes; nothing else is left out."""
    bad = bad_rows()
    good = bad.without(batch_of(rows))
    numbers = [number for number, row in enumerate(rows) if is_good(row)]
    assert good.column("body").to_pylist() == [b'{"row":%d}' % number for number in numbers]
    assert bad.count == len(rows) - len(numbers)
    told = [msgspec.json.decode(change.body)["row"]["row"] for change in bad.changes("s", 7)]
    assert sorted(told) == [number for number, row in enumerate(rows) if not is_good(row)]
    if numbers:
        assert columns_of(good, BY_ALL, None).count == len(numbers)


def test_a_row_that_is_skipped_gets_a_line_without_its_key(caplog):
    """F138, F154: one that is carried aside is not lost, and gets none."""
    rows = [(LONG, "upsert", "order"), (None, "upsert", "order"), ("secret", "?", "order")]
    rows += 20 * [("", "upsert", "")]
    for what, lines in (("dead_letter", 0), ("skip", 3 + LINES_MAX + 1)):
        bad = BadRows(BY_ALL, what, limit=100, max_key_bytes=1024, log_id=UUID(int=1))
        assert len(bad.without(batch_of(rows))) == 0
        told = [one.getMessage() for one in caplog.records if one.name == "penstock.losses"]
        assert len(told) == lines
    assert all("left out, as column" in line and "secret" not in line and "kkkk" not in line for line in told)
    assert any(line.endswith("key #" + key_digest("secret", UUID(int=1))) for line in told)
    assert any("key #-" in line for line in told)


def test_each_row_with_a_flaw_is_told_with_its_own_reason():
    """F192: what was wrong with its value, which is not what was wrong with that of another row."""
    columns = {"key": [b"1", b"2", b"3"], "body": [b"{}"] * 3}
    columns |= {"flawed": ["n", "n", None], "flaw": ["is 'x'", "is 'y'", None]}
    types = {"key": pa.binary(), "body": pa.binary(), "flawed": pa.string(), "flaw": pa.string()}
    encoding = Encoding(key=("id",), flaw_column="_flaw")
    bad = BadRows(encoding, "dead_letter", limit=9, max_key_bytes=1024, log_id=UUID(int=1))
    good = bad.without(pa.RecordBatch.from_pydict(columns, pa.schema(types)))
    assert good.column("key").to_pylist() == [b"3"]
    bodies = [msgspec.json.decode(change.body) for change in bad.changes("s", 7)]
    assert [(body["key"], body["column"], body["why"]) for body in bodies] == [
        ("1", "n", "is 'x'"),
        ("2", "n", "is 'y'"),
    ]


def test_too_many_bad_rows_name_their_number_and_the_last_fault():
    """F154."""
    bad = bad_rows(limit=2)
    bad.without(batch_of([(None, "upsert", "t"), ("a", "?", "t")]))
    with pytest.raises(
        TooManyBadRows, match=r"3 rows or more.*'id' is null, but bad_rows_max is 2"
    ) as refused:
        bad.without(batch_of([(None, "upsert", "t")]))
    assert (refused.value.count, refused.value.limit, refused.value.column) == (3, 2, "id")


ROWS = [
    {"id": "1", "op": "C", "kind": "order", "name": "a"},
    {"op": "c", "kind": "order", "name": "no key"},
    {"id": "2", "op": "truncated", "kind": "order", "name": "b"},
    {"id": "3", "op": "d", "kind": "order", "name": "c"},
    {"id": LONG, "op": "c", "kind": "order", "name": "d"},
    {"id": "4", "op": "c", "kind": "", "name": "e"},
]


def sink_of(log, **named):
    return ChangeSink(
        log,
        entity_type_column="kind",
        key="id",
        name="orders",
        operation_column="op",
        order_by=(),
        operations={"c": "upsert", "D": "remove"},
        **named,
    )


def test_bad_rows_fail_the_batch_unless_asked_otherwise(spark, log):
    """F154."""
    with pytest.raises(RowRefused, match="is null in 1 of 6 rows"):
        sink_of(log, producer="p")(spark.createDataFrame(ROWS, SCHEMA), 0)
    assert log.head.version == 1


def test_bad_rows_are_skipped_and_counted(spark, log, stored):
    """F154."""
    sink = sink_of(log, producer="p", on_bad_row="skip")
    sink(spark.createDataFrame(ROWS, SCHEMA), 0)
    sink(spark.createDataFrame([{"op": "c"}], SCHEMA), 1)
    assert [(change.key, change.operation) for change in stored(log)] == [
        ("1", Operation.UPSERT),
        ("3", Operation.REMOVE),
    ]
    assert sink.statistics().bad_rows == 5
    (transaction,) = [change for change in log.history(None).changes if change.index == 0]
    assert transaction.meta["spark"]["bad_rows"] == 4


def test_bad_rows_are_committed_beside_exactly_once(source, log, stored):
    """F154: with what is wrong and the whole row, also when Spark runs the batch again, and when no row is good."""
    source.add(*ROWS)
    source.add({"op": "c", "name": "alone"})
    source.run(sink_of(log, on_bad_row="dead_letter"), SCHEMA)
    source.forget_newest_commit()
    source.run(sink_of(log, on_bad_row="dead_letter"), SCHEMA)
    with ChangeLog.open(log.path.with_name("log.dead"), read_only=True) as dead:
        told = [change.body for change in stored(dead)]
    assert [(row["batch"], row["column"], row["row"]["name"]) for row in told] == [
        (0, "id", "no key"),
        (0, "id", "d"),
        (0, "op", "b"),
        (0, "kind", "e"),
        (1, "id", "alone"),
    ]
    assert told[2] | {"row": None} == {
        "sink": "orders",
        "batch": 0,
        "column": "op",
        "why": "is none of c, d",
        "key": "2",
        "operation": "truncated",
        "entity_type": "order",
        "row": None,
    }
    assert [change.key for change in stored(log)] == ["1", "3"]


def test_bad_rows_go_to_the_log_that_was_named(spark, log, stored, tmp_path):
    """F154."""
    with ChangeLog.open(tmp_path / "elsewhere") as dead:
        sink = sink_of(log, producer="p", on_bad_row="dead_letter", dead_letters=dead)
        sink(spark.createDataFrame(ROWS, SCHEMA), 0)
        assert len(stored(dead)) == 4
    assert not log.path.with_name("log.dead").exists()


@pytest.mark.parametrize(
    ("named", "right"),
    [
        ({"on_bad_row": "drop"}, "'fail', 'skip' or 'dead_letter'"),
        ({"bad_rows_max": -1}, "at least 0"),
        ({"operations": {}}, "a mapping such as"),
        ({"operations": {"c": "insert"}}, "'truncate' or 'expire'"),
        ({"operations": {"c": "upsert", "C": "remove"}}, "different words"),
        (
            {"operations": {"c": "upsert"}, "operation_column": None},
            "left out where there is no operation_column",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(log, named, right):
    with pytest.raises(InvalidOption, match=right):
        ChangeSink(log, **{"entity_type": "t", "key": "id", "operation_column": "op"} | named)


def test_the_log_of_bad_rows_is_another_one_and_can_be_written(log, tmp_path):
    with pytest.raises(InvalidOption, match="another log than the sink's"):
        ChangeSink(log, entity_type="t", key="id", on_bad_row="dead_letter", dead_letters=log)
    ChangeLog.open(tmp_path / "dead").close()
    with ChangeLog.open(tmp_path / "dead", read_only=True) as dead, pytest.raises(LogReadOnly):
        ChangeSink(log, entity_type="t", key="id", on_bad_row="dead_letter", dead_letters=dead)

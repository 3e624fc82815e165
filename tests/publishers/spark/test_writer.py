"""F152: what tasks and the commit of a batch job do, tried in this process and without Spark."""

import os
import pickle
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema

from flow.clock import SYSTEM_CLOCK
from penstock_cdc.errors import InvalidOption, LogBusy
from publishers import Area, ChangeLog, Content, Criterion, upsert
from publishers.spark import RowRefused, SchemaRefused
from publishers.spark.source import ChangeSource

NUMBERS = pa.record_batch({"id": pa.array(range(5000)), "name": [f"n{n}" for n in range(5000)]})
DATA = Criterion(areas={Area.DATA})


def writer(path, *batches, overwrite=False, **options):
    """A writer as Spark has it in the process of the commit, what its tasks answered."""
    made = ChangeSource(CaseInsensitiveDict({"path": str(path), **options}))
    made = made.writer(from_arrow_schema(batches[0].schema, prefer_timestamp_ntz=True), overwrite)
    messages = [pickle.loads(pickle.dumps(made)).write(iter([batch])) for batch in batches]
    return pickle.loads(pickle.dumps(made)), pickle.loads(pickle.dumps(messages))


def write(path, *batches, **options):
    made, messages = writer(path, *batches, **options)
    made.commit(messages)


def changes(path):
    with ChangeLog.open(path) as log:
        return log.history(DATA, limit=100_000, content=Content.BODY).changes


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "log"
    assert [one.name for one in tmp_path.iterdir() if one.name != "log"] == []


def test_all_partitions_become_one_version_in_their_order(path):
    """F152: and nothing of what was staged is left."""
    with ChangeLog.open(path) as log:
        log.commit([upsert("n", "before", {})])
    write(path, NUMBERS.slice(0, 3000), NUMBERS.slice(3000), entity_type="n", key="id")
    found = changes(path)[1:]
    assert {change.version for change in found} == {2}
    assert [change.key for change in found] == [f"{n}" for n in range(5000)]
    assert found[4].body == {"id": 4, "name": "n4"}
    with ChangeLog.open(path) as log:
        (told,) = log.history(Criterion(areas={Area.INFRASTRUCTURE}), since=2).changes
        assert told.meta == {"spark": {"rows": 5000}}


def test_a_job_without_rows_writes_nothing(path):
    """F152: and makes no log."""
    write(path, NUMBERS.slice(0, 0), entity_type="n", key="id")
    assert not path.exists()


def test_what_was_staged_is_removed_where_the_job_fails(path):
    """F152: also of tasks that gave no answer."""
    made, messages = writer(path, NUMBERS, NUMBERS, entity_type="n", key="id")
    made.abort([messages[0], None])
    assert not path.exists()


def test_what_killed_jobs_have_staged_is_removed_by_one_of_a_day_later(tmp_path):
    """F152: what others may still be adding to is left alone, and so is that of another log."""
    lost, living, other = (
        writer(tmp_path / name, NUMBERS, entity_type="n", key="id")[0]._staged
        for name in ("l[o]g", "l[o]g", "lo")
    )
    long_ago = SYSTEM_CLOCK.now_us() / 1e6 - 100_000
    for staged in (lost, other):
        for path in (*staged.iterdir(), staged):
            os.utime(path, (long_ago, long_ago))
    write(tmp_path / "l[o]g", NUMBERS, entity_type="n", key="id")
    assert sorted(tmp_path.glob(".*")) == sorted([living, other])
    assert len(changes(tmp_path / "l[o]g")) == 5000


def test_a_row_that_cannot_become_a_change_fails_the_job_and_nothing_is_written(path):
    """F152."""
    keyless = pa.record_batch({"id": ["a", None], "x": [1.0, float("nan")]})
    with pytest.raises(RowRefused, match="is null in 1 of 2 rows"):
        write(path, keyless, entity_type="n", key="id", body="id")
    assert changes(path) == ()
    made, _ = writer(path, keyless.slice(0, 1), entity_type="n", key="id")
    with pytest.raises(RowRefused, match=r"holds NaN or an infinity at \['x'\]"):
        made.write(iter([keyless]))
    made.abort([])


def test_types_and_operations_come_from_columns(path):
    """F152."""
    rows = pa.record_batch(
        {"k": ["1", "2", "3"], "t": ["a", "b", "a"], "o": ["Insert", "DELETE", "update"], "v": [1, 2, 3]}
    )
    write(path, rows, entity_type_column="t", operation_column="o", key="k")
    assert [(c.entity_type, c.key, c.operation.name, c.body) for c in changes(path)] == [
        ("a", "1", "UPSERT", {"k": "1", "v": 1}), ("b", "2", "REMOVE", None), ("a", "3", "UPSERT", {"k": "3", "v": 3}),
    ]  # fmt: skip


def test_all_rows_may_be_removals(path):
    """F152."""
    write(path, NUMBERS.slice(0, 2), entity_type="n", key="id", operation="remove")
    assert [(c.operation.name, c.body) for c in changes(path)] == [("REMOVE", None)] * 2


ROME = timezone(timedelta(hours=1))
VALUES = [
    (pa.string(), "a/%", "a%2F%25"),
    (pa.int64(), -(2**60), f"{-(2**60)}"),
    (pa.bool_(), True, "true"),
    (pa.decimal128(38, 8), Decimal("1E-8"), "0.00000001"),
    (pa.date32(), date(2024, 2, 29), "2024-02-29"),
    (pa.timestamp("us", "UTC"), datetime(2024, 1, 1, 1, tzinfo=ROME), "2024-01-01T00:00:00.000000Z"),
    (pa.timestamp("us"), datetime(2024, 1, 1, 1), "2024-01-01T01:00:00.000000"),  # noqa: DTZ001 - of no zone
    (pa.binary(), b"\x00?", "AD8="),
]


@pytest.mark.parametrize(("dtype", "value", "text"), VALUES, ids=str)
def test_keys_are_the_texts_that_a_sink_makes(path, dtype, value, text):
    """F152."""
    rows = pa.record_batch({"a": pa.array([value], dtype), "b": [1]})
    write(path, rows, entity_type="n", key="a, b", body="b")
    assert [change.key for change in changes(path)] == [f"{text}/1"]


def test_times_in_any_depth_are_told_in_utc(path):
    """F152."""
    moment = pa.timestamp("us", "Europe/Rome")
    dtype = pa.struct([("list", pa.list_(moment)), ("map", pa.map_(pa.date32(), moment)), ("n", pa.int64())])
    at = datetime(2024, 1, 1, 1, tzinfo=ROME)
    value = {"list": [at, None], "map": [(date(2024, 1, 1), at), (date(2024, 1, 2), None)], "n": 1}
    write(
        path,
        pa.record_batch({"k": ["1", "2"], "v": pa.array([value, None], dtype)}),
        entity_type="n",
        key="k",
        body="v",
    )
    told = "2024-01-01T00:00:00Z"
    assert [change.body["v"] for change in changes(path)] == [
        {"list": [told, None], "map": {"2024-01-01": told, "2024-01-02": None}, "n": 1}, None,
    ]  # fmt: skip


def test_a_log_that_is_open_is_busy_before_and_after_the_job(path):
    """F152."""
    made, messages = writer(path, NUMBERS, entity_type="n", key="id")
    with ChangeLog.open(path) as log:
        with pytest.raises(LogBusy, match="is being written by"):
            writer(path, NUMBERS, entity_type="n", key="id")
        with pytest.raises(LogBusy):
            made.commit(messages)
        assert log.history().changes == ()


def test_a_commit_deletes_no_history(path):
    """F152: that is for the owner of the log to decide."""
    with ChangeLog.open(path, segment_bytes=64 * 1024, retain_bytes=None, retain_age=None) as log:
        for _ in range(6):
            log.commit([upsert("n", "1", {"text": "x" * 50_000})])
    write(path, NUMBERS, entity_type="n", key="id")
    with ChangeLog.open(path, retain_bytes=None, retain_age=None) as log:
        assert (log.oldest.version, log.head.version) == (1, 8)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"key": "id"}, InvalidOption, "entity_type is None, but must be given"),
        ({"entity_type": "n"}, InvalidOption, "key is .*, but must be a column name"),
        ({"entity_type": "n", "key": "id", "operation": "merge"}, InvalidOption, "'upsert' or 'remove'"),
        ({"entity_type": "n", "key": "id", "tell_schema": "yes"}, InvalidOption, "tell_schema is 'yes', but must be 'true'"),
        ({"entity_type": "n", "key": "id", "keys": "id"}, InvalidOption, "the options are path, entity_type"),
        ({"entity_type": "n", "key": "what"}, SchemaRefused, "column 'what' is not in the batch"),
        ({"entity_type": "n", "key": "half"}, SchemaRefused, "cast it to a string"),
        ({"entity_type": "n", "key": "id", "overwrite": True}, InvalidOption, "nothing is taken out of a log"),
    ],
)  # fmt: skip
def test_options_that_are_wrong_are_refused_before_anything_is_computed(path, options, error, text):
    """F152."""
    rows = NUMBERS.slice(0, 1).append_column("half", pa.array([0.5]))
    with pytest.raises(error, match=text):
        writer(path, rows, **options)


def test_a_column_of_decimals_floats_and_bytes_is_told_without_loss(path):
    """F152: by the rules of ``publishers.lossless``."""
    rows = pa.record_batch({"k": ["1"], "d": [Decimal("1.10")], "f": [0.1], "b": [b"\x00"], "n": [2**63 - 1]})
    write(path, rows, entity_type="n", key="k")
    assert changes(path)[0].body_bytes == b'{"k":"1","d":"1.10","f":0.1,"b":"AA==","n":9223372036854775807}'

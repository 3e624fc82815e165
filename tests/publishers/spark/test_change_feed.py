import pytest

from publishers import Operation
from publishers.spark import CHANGE_FEED, ChangeSink, RowRefused, SchemaRefused, change_feed

pytestmark = pytest.mark.timeout(600)
COLUMNS = "id BIGINT, total STRING, _change_type STRING, _commit_version BIGINT"
DELTA = f"{COLUMNS}, _commit_timestamp TIMESTAMP"


def committed(spark, log, rows, schema=DELTA, **named):
    frame = change_feed(spark.createDataFrame(rows, schema).repartition(2), "id")
    ChangeSink(log, entity_type="order", key="id", producer="p", **CHANGE_FEED, **named)(frame, 0)


def told(changes):
    return [(c.key, c.operation, c.body, c.before) for c in changes]


def test_the_two_rows_of_an_update_become_one_change_with_the_image_before(spark, log, stored):
    one, two, three = ({"id": 1, "total": total} for total in ("1.00", "2.00", "3.00"))
    rows = [
        (1, "3.00", "delete", 4, None),
        (1, "2.00", "update_postimage", 2, None),
        (1, "1.00", "update_preimage", 2, None),
        (1, "3.00", "update_postimage", 3, None),
        (1, "1.00", "insert", 1, None),
        (2, None, "insert", 2, None),
    ]
    committed(spark, log, rows)
    found = told(stored(log))
    assert [change for change in found if change[0] == "1"] == [
        ("1", Operation.UPSERT, one, None),
        ("1", Operation.UPSERT, two, one),
        ("1", Operation.UPSERT, three, None),  # which came without an image before
        ("1", Operation.REMOVE, None, three),
    ]
    assert ("2", Operation.UPSERT, {"id": 2, "total": None}, None) in found


def test_a_row_that_was_replaced_in_one_version_is_removed_first(spark, log, stored):
    committed(spark, log, [(1, "2.00", "insert", 7, None), (1, "1.00", "delete", 7, None)])
    assert [change.operation for change in stored(log)] == [Operation.REMOVE, Operation.UPSERT]


def test_an_image_before_without_its_update_is_a_bad_row(spark, log, stored):
    rows = [(1, "1.00", "update_preimage", 2, None), (2, "1.00", "update_postimage", 2, None)]
    with pytest.raises(RowRefused, match="'_change_type' names 'update_preimage'"):
        committed(spark, log, rows)
    committed(spark, log, rows, on_bad_row="skip")
    assert [change.key for change in stored(log)] == ["2"]


def test_rows_of_an_entity_of_another_log_are_taken_in_their_order(spark, log, stored):
    """As ``format("penstock")`` makes them with ``schema=entity``."""
    rows = [
        (1, "2.00", "update_preimage", 5, "1", 2),
        (1, "3.00", "update_postimage", 5, "1", 2),
        (1, "1.00", "update_preimage", 5, "1", 1),
        (1, "2.00", "update_postimage", 5, "1", 1),
        (None, None, "truncate", 5, None, 3),
    ]
    committed(spark, log, rows, f"{COLUMNS}, _key STRING, _index BIGINT")
    assert [
        (c.operation, c.before and c.before["total"], c.body and c.body["total"]) for c in stored(log)
    ] == [
        (Operation.UPSERT, "1.00", "2.00"),
        (Operation.UPSERT, "2.00", "3.00"),
        (Operation.TRUNCATE, None, None),
    ]


@pytest.mark.parametrize(
    ("schema", "key", "text"),
    [
        ("id BIGINT, _change_type STRING", "id", "'_commit_version' is not in the frame"),
        (COLUMNS, "number", "'number' is not in the frame"),
        (f"{COLUMNS}, _before STRING", "id", "'_before' is in the frame, but is added to it"),
    ],
)
def test_a_frame_that_is_no_feed_is_refused(spark, schema, key, text):
    with pytest.raises(SchemaRefused, match=text):
        change_feed(spark.createDataFrame([], schema), key)


KEYS = {
    "BIGINT": ("7", "7"), "STRING": ("a/b%2F", "a%2Fb%252F"), "DECIMAL(10,2)": ("1.50", "1.50"), "DATE": ("2024-02-29", "2024-02-29"),
    "TIMESTAMP": ("2024-02-29T01:02:03.000004Z",) * 2, "TIMESTAMP_NTZ": ("2024-02-29T01:02:03.000000",) * 2, "BOOLEAN": ("true", "true"),
    "BINARY": ("AP8=", "AP8="), "DOUBLE": ("1.0E21", "1.0E21"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KEYS)
def test_a_removal_without_an_image_keeps_its_key(spark, log, stored, kind):
    """F152: the recipe from log to log, whose rows of removals have no columns but the key."""
    single, part = KEYS[kind]
    rows = [(None, None, None, "delete", 1, single, 1), (None, None, None, "truncate", 1, None, 2)]
    schema = f"id {kind}, n BIGINT, total STRING, _change_type STRING, _commit_version BIGINT, _key STRING, _index BIGINT"
    sink = ChangeSink(log, entity_type="order", key="id", producer="p", **CHANGE_FEED)
    sink(change_feed(spark.createDataFrame(rows, schema), "id"), 0)
    two = ChangeSink(log, entity_type="pair", key=["id", "n"], producer="two", **CHANGE_FEED)
    two(change_feed(spark.createDataFrame([(*rows[0][:5], f"{part}/9", 1)], schema), ["id", "n"]), 0)
    assert [(c.key, c.operation, c.before) for c in stored(log)] == [
        (single, Operation.REMOVE, None), (None, Operation.TRUNCATE, None), (f"{part}/9", Operation.REMOVE, None),
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["07", "x", " 7", "7.5"])
def test_a_removal_whose_key_is_no_text_of_its_column_is_a_bad_row(spark, log, key):
    """F152: it would remove another entity."""
    schema = "id BIGINT, _change_type STRING, _commit_version BIGINT, _key STRING"
    frame = change_feed(spark.createDataFrame([(None, "delete", 1, key)], schema), "id")
    with pytest.raises(RowRefused, match="column 'id' is null in 1 of 1 rows"):
        ChangeSink(log, entity_type="order", key="id", producer="p", **CHANGE_FEED)(frame, 0)

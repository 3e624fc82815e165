"""F152: rows typed by the schema of their entity type, tried in this process and without Spark's."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from penstock_cdc.errors import InvalidOption
from penstock_cdc.mutations import expire, schema
from publishers import ChangeLog, Position, remove, truncate, upsert
from publishers.spark import SchemaRefused, ValueRefused
from publishers.spark.source import ChangeSource
from publishers.spark.source_entities import FEED_SCHEMA, typed_schema
from publishers.spark.source_images import EntityImages
from publishers.spark.source_reader import FilteringReader

FEED = FEED_SCHEMA.names


def struct(**types):
    fields = [{"name": name, "type": kind, "nullable": False, "metadata": {}} for name, kind in types.items()]
    return {"type": "struct", "fields": fields}


ORDER = struct(id="long", name="string", price="decimal(10,2)", at="timestamp")
FIRST = {"id": 1, "name": "é", "price": "1.10", "at": "2024-02-29T01:02:03.000004Z"}
AT = datetime(2024, 2, 29, 1, 2, 3, 4, UTC)


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "log", sync="os") as opened:
        yield opened


def source(log, **options):
    texts = {name: str(value) for name, value in options.items()}
    return ChangeSource(
        CaseInsensitiveDict({"path": str(log.path), "schema": "entity", "entity_type": "order", **texts})
    )


def rows_of(made, chosen=None):
    reader = made.reader(chosen or made.schema())
    return [row for one in reader.partitions() for batch in reader.read(one) for row in batch.to_pylist()]


def read(log, **options):
    return rows_of(source(log, **options))


def test_rows_have_the_columns_of_the_entity_and_those_of_a_change_feed(log):
    """F152: an image before comes ahead of the row that it belongs to, and null is allowed everywhere."""
    log.commit([schema("order", ORDER), upsert("order", "1", FIRST), upsert("flight", "f", {"id": 7})])
    log.commit([upsert("order", "1", {**FIRST, "price": "2.00"}, before=FIRST), remove("order", "2")])
    log.commit([remove("order", "1", before=FIRST), expire("order", "3"), truncate("order")])
    first = {"id": 1, "name": "é", "price": Decimal("1.10"), "at": AT}
    nothing = dict.fromkeys(first)
    want = [
        (first, "1", "update_postimage", 1, 2),
        (first, "1", "update_preimage", 2, 1),
        ({**first, "price": Decimal("2.00")}, "1", "update_postimage", 2, 1),
        (nothing, "2", "delete", 2, 2),
        (first, "1", "delete", 3, 1),
        (nothing, "3", "delete", 3, 2),
        (nothing, None, "truncate", 3, 3),
    ]
    found = read(log)
    times = {row["_commit_version"]: row.pop("_commit_timestamp") for row in found}
    assert found == [
        {**entity, "_key": key, "_change_type": kind, "_commit_version": version, "_index": index}
        for entity, key, kind, version, index in want
    ]
    told = {change.version: change.timestamp for change in log.history().changes}
    assert times == told
    assert source(log).schema()["id"].nullable


def test_every_type_that_a_schema_may_tell_is_read_back(log):
    """F152: also in lists, maps and structs, and what only Python tells."""
    inner = struct(d="date", x="decimal(5,1)")
    told = struct(
        flag="boolean", b="byte", s="short", i="integer", l="long", f="float", d="double", t="string", v="varchar(9)",
        raw="binary", day="date", at="timestamp", local="timestamp_ntz", many={"type": "array", "elementType": "decimal(5,1)", "containsNull": False},
        named={"type": "map", "keyType": "string", "valueType": "timestamp", "valueContainsNull": False}, nested=inner, u="uuid", span="duration",
    )  # fmt: skip
    body = {
        "flag": True, "b": 1, "s": -2, "i": 3, "l": 2**62, "f": 0.5, "d": "NaN", "t": "x", "v": "y", "raw": "AAH/", "day": "2024-02-29",
        "at": "2024-02-29T01:02:03.000004Z", "local": "2024-02-29T01:02:03", "many": ["1.5", None], "named": {"k": "2024-02-29T01:02:03.000004Z"},
        "nested": {"d": "2024-01-01", "x": "2.5"}, "u": "0d6e7c1c-0000-4000-8000-000000000000", "span": "P1D",
    }  # fmt: skip
    log.commit(
        [
            schema("order", told),
            upsert("order", "1", body),
            upsert("order", "2", {"more": 1}),
            upsert("order", "3", {"nested": {}}),
        ]
    )
    full, empty, part = ({name: row[name] for name in body} for row in read(log))
    assert str(full.pop("d")) == "nan"
    assert full == {
        "flag": True, "b": 1, "s": -2, "i": 3, "l": 2**62, "f": 0.5, "t": "x", "v": "y", "raw": b"\x00\x01\xff", "day": date(2024, 2, 29),
        "at": AT, "local": AT.replace(tzinfo=None, microsecond=0), "many": [Decimal("1.5"), None], "named": [("k", AT)],
        "nested": {"d": date(2024, 1, 1), "x": Decimal("2.5")}, "u": body["u"], "span": "P1D",
    }  # fmt: skip
    assert empty == dict.fromkeys(body)
    assert part["nested"] == {"d": None, "x": None}


def test_the_newest_schema_counts_and_a_given_one_stands_for_none(log):
    """F152."""
    log.commit([upsert("order", "1", {"id": 1, "name": "a"})])
    with pytest.raises(InvalidOption, match="was told no schema of 'order'"):
        source(log).schema()
    given = StructType(
        [StructField("name", StringType()), *FEED_SCHEMA.fields[:2], StructField("id", IntegerType())]
    )
    assert rows_of(source(log), given) == [
        {"name": "a", "_key": "1", "_change_type": "update_postimage", "id": 1}
    ]
    log.commit([schema("order", struct(id="long"))])
    assert source(log).schema().names == ["id", *FEED]
    log.commit([schema("order", struct(id="long", name="string", more="date"))])
    assert read(log, columns="more, name,_index") == [{"more": None, "name": "a", "_index": 1}]
    assert read(log, columns="_index") == [{"_index": 1}]


def test_a_stream_is_typed_and_goes_on_where_it_was(log):
    """F152: with limits, by offsets that are the same as those of changes."""
    log.commit([schema("order", struct(id="long"))])
    for number in range(5):
        log.commit([upsert("order", f"{number}", {"id": number})])
    made = source(log, since="earliest", maxVersionsPerBatch=2)
    offset, found = None, []
    while True:
        reader = made.streamReader(made.schema())
        offset = offset or reader.initialOffset()
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        if end == offset:
            reader.stop()
            break
        found.append(
            [
                row["id"]
                for one in reader.partitions(offset, end)
                for batch in reader.read(one)
                for row in batch.to_pylist()
            ]
        )
        reader.stop()
        offset = end
    assert found == [[0], [1, 2], [3, 4]]


def test_changes_of_one_field_and_reads_are_no_rows_of_their_own(log):
    """F152: the change of the whole entity stands before them."""
    log.commit([schema("order", struct(id="long", a=struct(b="long")))])
    log.commit(
        [upsert("order", "1", {"id": 1, "a": {"b": 2}}, before={"id": 1, "a": {"b": 1}}, changes="auto")]
    )
    assert len(log.history(since=2).changes) == 3
    assert [(row["_change_type"], row["a"]) for row in read(log)] == [
        ("update_preimage", {"b": 1}),
        ("update_postimage", {"b": 2}),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"id": "x"},
        {"id": 2**70},
        b"[1]",
        {"id": 1, "price": "many"},
        {"id": 1, "at": "2024-01-01T00:00:00"},
    ],
)
def test_what_is_not_as_the_schema_says_is_named_and_not_made_up(log, body):
    """F152: by its place, wherever it is in a frame."""
    log.commit(
        [
            schema("order", ORDER),
            *(upsert("order", f"{n}", FIRST) for n in range(99)),
            upsert("order", "bad", body),
            upsert("order", "x", FIRST),
        ]
    )
    with pytest.raises(ValueRefused, match="change 1:101 is not what the schema") as refused:
        read(log)
    assert (refused.value.version, refused.value.index) == (1, 101)
    assert len(read(log, columns="_key,name" if isinstance(body, dict) else "_key")) == 101


def test_filters_on_versions_go_by_the_column_of_the_feed(log):
    """F152: a column of the entity that has their name is another thing."""
    log.commit([schema("order", struct(version="long"))])
    for number in range(4):
        log.commit([upsert("order", f"{number}", {"version": 2})])
    made = source(log)
    reader = FilteringReader(made.reader(made.schema())._options, made.schema())
    assert list(reader.pushFilters([EqualTo(("version",), 2), EqualTo(("_commit_version",), 4)])) == []
    (planned,) = reader.partitions()
    assert (planned.start.position, planned.end.position) == (Position(4), Position(5))
    assert [row["_key"] for batch in reader.read(planned) for row in batch.to_pylist()] == ["2"]


def test_record_batches_stay_within_bounds(log):
    """F152."""
    log.commit(
        [
            schema("order", struct(text="string")),
            *(upsert("order", f"{n}", {"text": "x" * 2_000}) for n in range(20_000)),
        ]
    )
    made = source(log)
    reader = made.reader(made.schema())
    sizes = [batch.num_rows for one in reader.partitions() for batch in reader.read(one)]
    assert sum(sizes) == 20_000
    assert max(sizes) < 10_000


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"schema": "typed"}, InvalidOption, "schema is 'typed', but must be change or entity"),
        ({"entity_type": "a,b"}, InvalidOption, "entity_type is 'a,b', but must be one entity type"),
        ({"entity_type": ""}, InvalidOption, "entity_type is '', but must be one entity type"),
        ({"area": "SCHEMA"}, InvalidOption, "area is 'SCHEMA', but must be DATA"),
        ({"content": "HEADER"}, InvalidOption, "content is 'HEADER', but must be BODY"),
        ({"operation": "READ"}, InvalidOption, "operation is 'READ', but must be one of UPSERT, REMOVE, EXPIRE, TRUNCATE"),
        ({"criteria": "[]"}, InvalidOption, "left out where there is entity_type"),
        ({"columns": "id,what"}, SchemaRefused, "column 'what' is none of id, name, price, at, _key"),
    ],
)  # fmt: skip
def test_options_that_contradict_a_typed_source_are_refused(log, options, error, text):
    """F152: in one line."""
    log.commit([schema("order", ORDER)])
    with pytest.raises(error, match=text):
        source(log, **options).schema()


def test_the_operations_of_rows_are_chosen_by_an_option(log):
    """F152."""
    log.commit([schema("order", struct(id="long")), upsert("order", "1", {"id": 1}), remove("order", "2")])
    assert [row["_key"] for row in read(log, operation="REMOVE")] == ["2"]


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (struct(_key="string"), "column '_key' is one of the source"),
        (struct(x="variant(1)"), "told by a schema that is no struct"),
        ({"type": "enum"}, "is no type"),
        ("string", "no struct"),
        (None, "no struct"),
        ({"fields": []}, "no struct"),
    ],
)
def test_a_schema_that_has_no_columns_in_spark_is_refused(told, text):
    """F152."""
    with pytest.raises(SchemaRefused, match=text):
        typed_schema(told)


def test_a_given_schema_that_cannot_be_is_refused(log):
    """F152."""
    log.commit([upsert("order", "1", {"id": 1})])
    with pytest.raises(SchemaRefused, match="column '_key' is bigint, but must be string"):
        rows_of(source(log), StructType([StructField("_key", LongType())]))


VALUES = {
    "l": st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats() | st.integers(),
    "t": st.text() | st.integers(),
    "d": st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "-Infinity", 1, "1"]),
    "p": st.decimals(allow_nan=False, allow_infinity=False).map(str)
    | st.sampled_from(["1.234", "1E-8", "0.10", 1.5, " 1"]),
    "at": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
    | st.datetimes().map(datetime.isoformat)
    | st.sampled_from(
        [
            "2024-02-29",
            "2024-02-29T01:02:03+02:00",
            "2024-02-29T01:02:03.123456789Z",
            "+12024-01-01T00:00:00Z",
        ]
    ),
    "local": st.datetimes().map(datetime.isoformat) | st.just("2024-02-29T01:02:03Z"),
    "day": st.dates().map(date.isoformat) | st.sampled_from(["2024-2-9", "2024-02-29T00:00:00", "x"]),
}
BODIES = st.fixed_dictionaries({}, optional={name: st.none() | values for name, values in VALUES.items()})


@given(st.lists(st.none() | BODIES, max_size=3))
def test_the_fast_parser_says_what_the_exact_one_says_or_nothing(bodies):
    """F152: for values of every type, good and bad."""
    told = struct(
        l="long", t="string", d="double", p="decimal(10,2)", at="timestamp", local="timestamp_ntz", day="date"
    )
    images = EntityImages(StructType(typed_schema(told).fields[: len(VALUES)]))
    texts = [
        None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        for body in bodies
    ]
    found = images._by_arrow(pa.array(texts, pa.binary()).view(pa.string()))
    if found is not None:
        exact = images._exactly(texts, 0, lambda _, error: error).flatten()
        assert [column.to_pylist() for column in found] == [column.to_pylist() for column in exact]


def test_a_whole_number_that_a_double_cannot_hold_is_left_to_the_exact_parser():
    """F192: the fast one rounds it without a word."""
    images = EntityImages(StructType(typed_schema(struct(d="double")).fields[:1]))
    for number, fast in ((2**53 - 1, True), (2**53 + 1, False), (-(2**53) - 1, False)):
        found = images._by_arrow(pa.array([b'{"d":%d}' % number], pa.binary()).view(pa.string()))
        assert (found is not None) is fast

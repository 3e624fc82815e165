import json

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StructType

from publishers.lossless import key_text
from publishers.model.change import Operation
from publishers.spark.errors import SchemaRefused
from publishers.spark.schema import Encoding, key_column

# SQL of a value, the JSON it becomes, its text in a key (None: it cannot be one).
VALUES = [
    ("'a \"b\" ü/%'", '"a \\"b\\" ü/%"', 'a "b" ü/%'),
    ("true", "true", "true"),
    ("cast(7 as tinyint)", "7", "7"),
    ("cast(9007199254740993 as bigint)", "9007199254740993", "9007199254740993"),
    ("cast(1.10 as decimal(4,2))", '"1.10"', "1.10"),
    ("cast('0.00000001' as decimal(38,18))", '"0.000000010000000000"', "0.000000010000000000"),
    ("cast(0 as decimal(38,18))", '"0.000000000000000000"', "0.000000000000000000"),
    ("cast('NaN' as double)", '"NaN"', "NaN"),
    ("cast('-Infinity' as double)", '"-Infinity"', "-Infinity"),
    ("1e21D", "1.0E21", "1.0E21"),
    ("-0.0D", "-0.0", "-0.0"),
    ("cast(0.1 as float)", "0.1", "0.1"),
    (
        "timestamp'2024-02-29 10:11:12.123456Z'",
        '"2024-02-29T10:11:12.123456Z"',
        "2024-02-29T10:11:12.123456Z",
    ),
    ("timestamp_ntz'2024-02-29 10:11:12.1'", '"2024-02-29T10:11:12.100000"', "2024-02-29T10:11:12.100000"),
    ("date'2024-02-29'", '"2024-02-29"', "2024-02-29"),
    ("time'10:11:12.123456'", '"10:11:12.123456"', "10:11:12.123456"),
    ("x'00ff'", '"AP8="', "AP8="),
    ("cast(null as string)", "null", None),
    ("cast(null as struct<a:int>)", "null", None),
    ("array(1, null)", "[1,null]", None),
    ("struct(cast(null as int) as a, 'x' as b)", '{"a":null,"b":"x"}', None),
    ("array(struct(cast(2 as decimal(10,8)) as d), null)", '[{"d":"2.00000000"},null]', None),
    ("map('k', cast(null as int))", '{"k":null}', None),
    ("map(cast(1.5 as decimal(10,2)), cast(2 as decimal(3,1)))", '{"1.50":"2.0"}', None),
    ("map(date'2024-01-01', 1)", '{"2024-01-01":1}', None),
    ("map(timestamp'2024-02-29 10:11:12Z', 1)", '{"2024-02-29T10:11:12.000000Z":1}', None),
    ("map(x'00ff', 1)", '{"AP8=":1}', None),
    ("map(10, true)", '{"10":true}', None),
    ("interval '1-2' year to month", "\"INTERVAL '1-2' YEAR TO MONTH\"", None),
    ('parse_json(\'{"b":1.50,"a":null}\')', '{"a":null,"b":1.5}', None),
]


@pytest.fixture(params=["true", "false"], ids=["ansi", "legacy"])
def session(request, spark):
    """A session of the least favourable settings: another time zone, and both ways of casting."""
    made = spark.newSession()
    made.conf.set("spark.sql.ansi.enabled", request.param)
    made.conf.set("spark.sql.session.timeZone", "Europe/Prague")
    return made


def test_every_type_is_told_without_loss_whatever_the_settings(session):
    frame = session.sql(
        "select 'k' as id, " + ", ".join(f"{sql} as c{place}" for place, (sql, *_) in enumerate(VALUES))
    )
    encoding = Encoding(key=("id",))
    encoding.check(frame.schema)
    body = encoding.select(frame).collect()[0].body
    expected = ['"id":"k"', *(f'"c{place}":{told}' for place, (_, told, _) in enumerate(VALUES))]
    assert body == "{" + ",".join(expected) + "}"
    json.loads(body)


def test_every_single_value_can_be_a_key_and_reads_as_in_the_body(session):
    keys = {f"c{place}": (sql, text) for place, (sql, _, text) in enumerate(VALUES) if text is not None}
    frame = session.sql("select " + ", ".join(f"{sql} as {name}" for name, (sql, _) in keys.items()))
    found = frame.select(*(key_column(frame.schema, (name,)).alias(name) for name in keys))
    assert list(found.collect()[0]) == [text for _, text in keys.values()]


def test_the_key_of_a_value_is_the_same_from_spark_and_from_python(session):
    """F192: whatever the time zone that the value is shown in."""
    told = [
        (value, key)
        for value, _, key in VALUES
        if key is not None and not value.startswith(("time'", "1e", "-0"))
    ]
    values = [(value, key) for value, key in told if "as double" not in value and "as float" not in value]
    table = session.sql(
        f"SELECT {', '.join(f'{value} AS c{n}' for n, (value, _) in enumerate(values))}"
    ).toArrow()
    assert [key_text(column[0].as_py()) for column in table.columns] == [key for _, key in values]


def test_a_key_of_several_columns_is_their_texts_joined(spark):
    frame = spark.sql("select 'B6' as carrier, 725 as number, date'2013-01-01' as date, 'JFK' as origin")
    encoding = Encoding(key=("carrier", "number", "date", "origin"))
    assert encoding.select(frame).collect()[0].key == "B6/725/2013-01-01/JFK"


def test_different_rows_never_meet_in_one_key(spark):
    frame = spark.sql("select * from values ('a/b', 'c'), ('a', 'b/c'), ('a%2Fb', 'c') as t(x, y)")
    keys = {row.key for row in Encoding(key=("x", "y")).select(frame).collect()}
    assert keys == {"a%2Fb/c", "a/b%2Fc", "a%252Fb/c"}


def test_a_null_in_any_key_column_is_a_null_key(spark):
    frame = spark.sql("select 'a' as x, cast(null as int) as y")
    assert Encoding(key=("x", "y")).select(frame).collect()[0].key is None


def test_names_with_dots_and_backticks_are_names(spark):
    frame = spark.sql("select 1 as `a.b`, struct(cast(1 as decimal(10,8)) as `c.d`) as `e``f`")
    row = Encoding(key=("a.b",)).select(frame).collect()[0]
    assert row.body == '{"a.b":1,"e`f":{"c.d":"1.00000000"}}'


def test_operation_type_and_order_columns_are_not_in_the_body(spark):
    frame = spark.sql("select 1 as id, 'upsert' as op, 'n' as kind, 5 as seq, 'x' as name")
    encoding = Encoding(key=("id",), operation_column="op", entity_type_column="kind", order_by=("seq",))
    row = encoding.select(frame).collect()[0]
    assert row.body == '{"id":1,"name":"x"}'
    assert (row.operation, row.entity_type, row.order_0) == ("upsert", "n", 5)


def test_named_body_columns_come_in_the_order_of_their_names(spark):
    frame = spark.sql("select 1 as id, 2 as a, 3 as b")
    assert Encoding(key=("id",), body=("b", "a")).select(frame).collect()[0].body == '{"b":3,"a":2}'


def test_removed_rows_have_no_body(spark):
    frame = spark.sql("select * from values (1, 'UPSERT'), (2, 'Delete'), (3, 'remove') as t(id, op)")
    by_column = Encoding(key=("id",), operation_column="op", body=("id",)).select(frame).collect()
    assert [row.body is None for row in by_column] == [False, True, True]
    always = Encoding(key=("id",), operation=Operation.REMOVE).select(frame).collect()
    assert [row.body for row in always] == [None] * 3


@pytest.mark.parametrize(
    ("schema", "encoding", "message"),
    [
        ("a INT", Encoding(key=("id",)), "column 'id' is not in the batch, which has a"),
        ("id INT", Encoding(key=("id",), order_by=("seq",)), "column 'seq' is not in the batch"),
        ("id INT", Encoding(key=("id",), body=("x",)), "column 'x' is not in the batch"),
        ("id INT", Encoding(key=("id",), operation_column="op"), "column 'op' is not in the batch"),
        (
            "id INT, op INT",
            Encoding(key=("id",), operation_column="op"),
            "'op' is of type int, but must be a string",
        ),
        ("id ARRAY<INT>", Encoding(key=("id",)), "'id' is of type array<int>, which has no single text"),
        (
            "id INT, s DOUBLE",
            Encoding(key=("id",), order_by=("s",)),
            "'s' is of type double, which has no order",
        ),
        ("id INT, s STRUCT<x: INT, x: INT>", Encoding(key=("id",)), r"'s\.x' is there twice"),
        ("id INT, s ARRAY<STRUCT<x: INT, x: INT>>", Encoding(key=("id",)), r"'s\.x' is there twice"),
        (
            "id INT, m MAP<STRUCT<x: INT>, INT>",
            Encoding(key=("id",)),
            "'m' is a map with keys of type struct<x:int>",
        ),
        (
            "id INT, m ARRAY<MAP<ARRAY<INT>, INT>>",
            Encoding(key=("id",)),
            r"map_entries\(\) to make it an array",
        ),
        ("id INT", Encoding(key=("id",), body=("id",), order_by=("id",)), None),
    ],
)
def test_what_would_lose_something_is_refused_by_name(schema, encoding, message):
    parsed = StructType.fromDDL(schema)
    if message is None:
        encoding.check(parsed)
        return
    with pytest.raises(SchemaRefused, match=message):
        encoding.check(parsed)


def test_two_columns_of_one_name_are_refused(spark):
    frame = spark.range(1).select("id", F.col("id"))
    with pytest.raises(SchemaRefused, match="'id' is there twice"):
        Encoding(key=("id",)).check(frame.schema)

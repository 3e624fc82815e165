"""Which values are read as which type, judged by Spark: it casts each to the type, and back to the type that it was written as.

A value is readable if it comes back equal. Text, numbers, booleans and bytes never turn into each other, nor do moments into the
times of a clock somewhere. What is readable is read as Spark's cast says; what is not is refused with its column and its value.
"""

import json
from decimal import Decimal
from functools import partial
from itertools import product
from typing import NamedTuple

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock_cdc.errors import ValueRefused
from publishers.lossless import mistakable, reader
from publishers.spark import debezium
from publishers.spark.envelopes import EnvelopeParser
from publishers.spark.schema import body_column
from publishers.spark.source_arrow import array_of, chosen_schema
from publishers.spark.source_entities import CHANGE_COLUMNS, TypedBatches
from publishers.spark.source_images import EntityImages
from publishers.spark.source_log import TokenPrefixes
from tests.harness.scale import LONG
from tests.publishers.spark.test_debezium import kafka

pytestmark = pytest.mark.timeout(600)

NUMBERS = ("0", "1", "-1", "7", "127", "128", "32768", "16777216", "16777217", "2147483647", "9007199254740992", "9007199254740993",
    "1152921504606846976", "9223372036854775807", "-9223372036854775808", "1.5", "-0.5", "0.1", "10.00", "1e2", "1e11", "1e18", "9.3e18", "1e30", "3.4e38", "1e300",
    "0.123456789012345678", "1.17549435e-38", "5e-324")  # fmt: skip
TEXTS = ("''", "'7'", "'1.5'", "'10.00'", "'true'", "'NaN'", "'AP8='", "'2024-02-29'", "'2024-02-29 01:02:03'", "'2024-02-29T01:02:03Z'", "'x'")  # fmt: skip
TIMES = ("'2024-02-29'", "'2024-02-29 01:02:03'", "'2024-02-29 01:02:03.000004'", "'1969-12-31 23:59:59.999999'", "'0001-01-01'", "'9999-12-31'")  # fmt: skip
VALUES = {
    **dict.fromkeys(
        ("tinyint", "smallint", "int", "bigint", "decimal(10,2)", "decimal(38,18)", "decimal(20,0)"), NUMBERS
    ),
    **dict.fromkeys(("float", "double"), (*NUMBERS, "-0.0", "'NaN'", "'Infinity'", "'-Infinity'")),
    "boolean": ("true", "false"),
    "string": TEXTS,
    "binary": ("X'00FF'", "X''", "X'37'", "X'746573'"),
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), TIMES),
}
"""Literals of each type, which Spark casts to it; what does not fit is null."""
GROUPS = {
    **dict.fromkeys(
        ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(38,18)", "decimal(20,0)"), "number"
    ),
    **dict.fromkeys(("date", "timestamp_ntz"), "clock"),
}  # fmt: skip
SHAPES = {
    "array<{}>": (b'{"v":[%b]}', "v[0]"),
    "struct<a: {}>": (b'{"v":{"a":%b}}', "v.a"),
    "map<string, {}>": (b'{"v":{"k":%b}}', "v['k']"),
}
"""Types around others, with the JSON of such a value and the place in it."""


def group(kind):
    return GROUPS.get(kind, kind)


def never(written, read):
    """Whether values of the two types are different things, although Spark may cast one to the other."""
    ours, theirs = group(read), group(written)
    if theirs == "timestamp" and ours == "string":
        return False  # the text of a moment has its offset
    return ours != theirs and bool({ours, theirs} & {"number", "boolean", "binary", "timestamp"})


def ddl(kind):
    return StructType.fromDDL(f"v {kind}")


def plain(array):
    """The values of an Arrow array, comparable; times as numbers, as Python has none beyond the year 9999."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if pa.types.is_string(array.type):
        array = array.cast(pa.binary())  # Spark casts any bytes to text
    return [repr(value) for value in array.to_pylist()]


class Judged(NamedTuple):
    """The JSON of a value, whether it is readable as a type, and Spark's cast to that."""

    body: bytes
    readable: bool
    cast: str


@pytest.fixture(scope="module")
def judged(spark):
    """By pair of types: Spark's word on reading each value of the first one as the second one.

    Spark folds constants when it plans, so the table of all pairs takes no job.
    """
    cast = spark._jvm.org.apache.spark.sql.catalyst.expressions.Cast
    types = {kind: spark._jvm.org.apache.spark.sql.types.DataType.fromDDL(kind) for kind in VALUES}
    found = {}
    for written, literals in VALUES.items():
        rows = ", ".join(f"(try_cast({literal} AS {written}))" for literal in dict.fromkeys(literals))
        values = spark.sql(f"SELECT * FROM VALUES {rows} AS t(v) WHERE v IS NOT NULL")
        into = [read for read in VALUES if cast.canTryCast(types[written], types[read])]
        table = values.select(
            body_column(values.schema, ["v"]).alias("body"),
            *(F.expr(f"try_cast(v AS {read})").alias(read) for read in into),
            *(F.expr(f"v <=> try_cast(try_cast(v AS {read}) AS {written})").alias(f"{read} same") for read in into),
        ).toArrow().combine_chunks()  # fmt: skip
        bodies = [body.encode() for body in table["body"].to_pylist()]
        for read in VALUES:
            same = table[f"{read} same"].to_pylist() if read in into else [False] * len(bodies)
            casts = table[read] if read in into else pa.nulls(len(bodies))
            casts = plain(casts)
            found[written, read] = [
                Judged(body, one and not never(written, read) and not saturated(body, read, value), value)
                for body, one, value in zip(bodies, same, casts, strict=True)
            ]
    assert len(found) == len(VALUES) ** 2
    return found


def saturated(body, read, cast):
    """Whether a value comes back equal only as Spark cuts what is beyond a bigint to its bound, on the way there or back."""
    most = str(2**63 - 1)
    return (
        (most in body.decode())
        if read in ("float", "double")
        else (cast == most and most not in body.decode())
    )


def equal(written, read, found, cast):
    """Whether two values of a type are one. The digits of a double as a decimal depend on the version of Java."""
    if written in ("float", "double") and read.startswith("decimal"):
        return float(Decimal(found[9:-2])) == float(Decimal(cast[9:-2]))
    return found == cast


def told(kind):
    return ddl(kind).jsonValue()


def outcome(read, body):
    """What a way makes of a body: the value, or its error."""
    try:
        return read(body), None
    except ValueRefused as error:
        return None, error


def check(name, values, read):
    """Compares what one way makes of the values of a pair of types with Spark's word."""
    written, kind = name
    for body, readable, cast in values:
        found, error = outcome(read, body)
        if error is not None:
            assert not readable, f"{written} {body} is refused as {kind}, but Spark reads {cast}"
            assert error.column == "v"
            assert "'v'" in str(error)
            assert error.value is not None
            continue
        assert readable, f"{written} {body} is read as {kind}: {found}"
        text = kind == "string" and written != "string"  # a time: in the form of the log, not of Spark
        right = repr(json.loads(body)["v"].encode()) if text else cast
        assert equal(written, kind, found, right), f"{written} {body} is read as {kind}: {found}"


def test_rows_of_an_entity_have_the_values_that_spark_casts_to_or_are_refused(judged):
    """F152: changes are read by the schema that they are stamped with, whatever schema the rows have."""
    for (written, read), one in judged.items():
        typed = TypedBatches(ddl(read), TokenPrefixes(), lambda _, kind=written: told(kind))
        check((written, read), one, lambda body, typed=typed: plain(typed.typed(stamped(body))["v"])[0])


def stamped(body):
    """A change with a body and a schema version, as the columns that a source reads."""
    values = {
        "key": b"k", "operation": "UPSERT", "version": 1, "timestamp": 0, "index": 1, "body": body, "before": None,
        "attached": b'{"schema_version":1}',
    }  # fmt: skip
    fields = to_arrow_schema(chosen_schema(CHANGE_COLUMNS), timezone="UTC")
    return pa.record_batch([array_of([values[field.name]], field) for field in fields], schema=fields)


def test_values_in_python_are_those_that_spark_casts_to_or_are_refused(judged):
    """F24: by the type that was written, and without it as far as JSON tells one from the other."""
    for (written, read), one in judged.items():
        kind = to_arrow_schema(ddl(read), timezone="UTC").field("v").type
        ways = [reader(told(read), written=told(written))]
        if not mistakable(told(read), told(written)):
            ways.append(reader(told(read)))
        for way in ways:
            column = partial(column_of, way, kind)
            check((written, read), one, column)


def column_of(way, kind, body):
    return plain(pa.array([way(json.loads(body))["v"]], kind))[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_within_others_are_read_as_those_of_their_own(judged, shape):
    """F152: in lists, structs and maps; the error names the place."""
    around, place = SHAPES[shape]
    pairs = [pair for number, pair in enumerate(judged) if LONG or number % 3 == 0]
    for written, read in pairs:
        ways = [EntityImages(ddl(shape.format(read)), told(shape.format(written)))]
        if not mistakable(told(shape.format(read)), told(shape.format(written))):
            ways.append(EntityImages(ddl(shape.format(read))))
        for images, (body, readable, cast) in product(ways, judged[written, read]):
            text = around % body.removeprefix(b'{"v":').removesuffix(b"}")
            found, error = outcome(partial(within, images), text)
            if error is not None:
                assert (readable, error.column) == (False, place)
                continue
            assert readable, f"{written} {text} is read as {read}"
            assert read == "string" or equal(written, read, found, cast)


def within(images, text):
    """The only value in the only column of an image."""
    (column,) = images.read(pa.array([text.decode()]), pa.array([1]), pa.array([1])).values()
    struct, mapping = pa.types.is_struct(column.type), pa.types.is_map(column.type)
    return plain(column.field("a") if struct else column.items if mapping else column.values)[0]


def test_values_from_debezium_are_those_that_spark_casts_to_or_bad_rows(judged, spark):
    """F192: without the envelope's schema, as far as JSON tells one type from the other; two jobs for all pairs."""
    pairs = [pair for pair in judged if not mistakable(told(pair[1]), told(pair[0]))]
    parsers = {read: EnvelopeParser(ddl(read)) for read in VALUES}
    columns = {read: f"c{place}" for place, read in enumerate(VALUES)}
    found, rows = [], {}
    for written, read in pairs:
        for body, readable, cast in judged[written, read]:
            value = body.removeprefix(b'{"v":').removesuffix(b"}")
            flaw = parsers[read](b'{"op":"c","after":%b}' % body).flaw
            assert (flaw is None) == readable, f"{written} {body} as {read}: {flaw}"
            if flaw is not None:
                assert flaw.column == "v"
                assert json.dumps(json.loads(value))[:5] in flaw.why or b"E" in value
            else:
                rows.setdefault(value, []).append(b'"%b":%b' % (columns[read].encode(), value))
                found.append((value, written, read, cast))
    envelopes = [b'{"op":"c","after":{%b}}' % b",".join(dict.fromkeys(members)) for members in rows.values()]
    # Columns of Arrow, and those that Spark parses.
    direct = [read for read in VALUES if parsers[read].direct]
    assert 0 < len(direct) < len(VALUES)
    read_by = {}
    for kinds in ([*VALUES], direct):
        fields = ", ".join(f"{columns[read]} {read}" for read in kinds)
        table = debezium(kafka(spark, *envelopes), fields).orderBy("_offset").toArrow().combine_chunks()
        assert table["_flaw"].null_count == len(envelopes)
        for read in kinds:
            read_by.setdefault(read, []).append(plain(table[columns[read]]))
    places = {value: place for place, value in enumerate(rows)}
    for value, written, read, cast in found:
        if read != "string" or written == "string":
            for one in read_by[read]:
                said = one[places[value]]
                assert equal(written, read, said, cast), f"{written} {value} is read as {read}: {said}"


def test_values_for_the_columns_of_a_database_are_those_that_spark_casts_to_or_do_not_fit(judged):
    """F192: by the types of PostgreSQL; a body has no type, so this is as far as JSON tells one from the other."""
    sa = pytest.importorskip("sqlalchemy")
    values = pytest.importorskip("transports.sinks.sql_table")
    columns = {
        "smallint": sa.SmallInteger(), "int": sa.Integer(), "bigint": sa.BigInteger(), "float": sa.REAL(), "double": sa.Double(),
        "decimal(10,2)": sa.Numeric(10, 2), "decimal(38,18)": sa.Numeric(38, 18), "decimal(20,0)": sa.Numeric(20, 0),
        "boolean": sa.Boolean(), "binary": sa.LargeBinary(), "date": sa.Date(), "timestamp": sa.DateTime(timezone=True),
        "timestamp_ntz": sa.DateTime(),
    }  # fmt: skip
    for (written, read), one in judged.items():
        # A column of text takes any value, and one of times without a zone takes moments as those of UTC.
        if (
            mistakable(told(read), told(written))
            or read not in columns
            or (written, read) == ("timestamp", "timestamp_ntz")
        ):
            continue
        convert = values.converter(sa.Column("v", columns[read]), postgres=True)
        kind = to_arrow_schema(ddl(read), timezone="UTC").field("v").type
        for body, readable, cast in one:
            value = json.loads(body, parse_float=Decimal)["v"]
            if readable:
                assert equal(written, read, plain(pa.array([convert(value)], kind))[0], cast), (
                    f"{written} {body} as {read}"
                )
            else:
                with pytest.raises(values.Unfit, match="does not fit column v"):
                    convert(value)

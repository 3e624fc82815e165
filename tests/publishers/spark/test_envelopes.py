"""An envelope that is read as a whole says the same as one that is read value by value."""

import itertools
import json
from decimal import Decimal

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import StructType

from publishers.spark.envelopes import EnvelopeParser, Parsed

DIRECT = (
    "byte",
    "short",
    "integer",
    "long",
    "double",
    "string",
    "boolean",
    "float",
    "decimal(10,2)",
    "binary",
)
OTHERS = ("date", "timestamp", "variant", {"type": "array", "elementType": "integer", "containsNull": True})
HELD = "__debezium_unavailable_value"
TEXTS = [
    "null", "true", "false", "0", "-0", "7", "-128", "128", "32768", "2147483648", "9007199254740992", "9007199254740993",
    "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1" * 1100, "1.0", "1.5", "-0.0", "1e3", "1e400", "1E-400",
    "0.1000000000000000055511151231257827", "1.1e16", '""', '"7"', '"yes"', '"é\\n\\""', '"\\u00e9"', '"\\ud83d\\ude00"', '"NaN"',
    f'"{HELD}"', '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="', '"\\u005f_debezium_unavailable_value"', f'["{HELD}"]', "[1]", "{}",
    '"' + "x" * 1100 + '"', "[" * 600 + "]" * 600, "01", "NaN", '"\\ud800"', "1 ",
]  # fmt: skip


def parser(*kinds):
    fields = [
        {"name": f"c{at}", "type": kind, "nullable": True, "metadata": {}} for at, kind in enumerate(kinds)
    ]
    return EnvelopeParser(StructType.fromJson({"type": "struct", "fields": fields}))


def compare(made, value):
    """Whether the value was read as a whole; if so, it says the same."""
    whole, each = made._whole and made._whole.row(value), made.of_any(value)
    assert repr(made(value)) == repr(Parsed(*(whole or each)))
    if not whole:
        return False
    assert repr(Parsed(*whole)) == repr(each)  # 1 is not 1.0, nor is 0.0 -0.0
    return True


def arrow(made, *values):
    """The values as Spark gets them."""
    return made.columns(pa.array(values, pa.binary())).to_pylist()


@pytest.mark.parametrize("kind", DIRECT + OTHERS, ids=str)
def test_every_value_of_a_type_says_the_same_both_ways(kind):
    """F192: also with fields that are not declared, names that come twice, and in each image of each operation."""
    made, taken = parser(kind, "long"), 0
    for text, op in itertools.product(TEXTS, ("c", "u", "d", "t", "x")):
        for image in (f'{{"c0": {text}, "c1": 1}}', f'{{"c1":1,"c0":{text}}}', f'{{"more":{text}}}', f'{{"c0":1,"c0":{text}}}'):  # fmt: skip
            for before, after in ((image, "null"), ("null", image), ('{"c0": null}', image)):
                value = f'{{"op":"{op}","before":{before},"after":{after},"source":{{"table":"t"}}}}'.encode()
                taken += compare(made, value)
                taken += compare(made, b'{"payload":' + value + b"}")
    assert (taken > 0) is made.direct is (kind in DIRECT)


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"null", b"{}", b"[]", b"not json", b'{"op":1}', b'{"op":"c","source":7}', b'{"op":"c","source":{"table":7}}',
        b'{"op":"c","after":[]}', b'{"op":"c","after":7}', b'{"payload":7,"op":"c"}', b'{"payload":{},"op":"c"}',
        b'{"schema":7,"payload":{"op":"c"}}', b'{"payload": {"payload": {"op": "c"}}}', b'{"op":"c","payload":null,"after":{"c0":1}}',
        b'{"schema":{"fields":[{"field":"after","fields":[{"field":"c0","name":"io.debezium.time.Date"}]}]},"payload":{"op":"c","after":{"c0":1}}}',
        b'{"schema":{"fields":[{"field":"after","fields":[{"field":"c9","name":"io.debezium.time.Date"}]}]},"payload":{"op":"c","after":{"c0":1}}}',
    ],
)  # fmt: skip
def test_every_form_of_an_envelope_says_the_same_both_ways(value):
    """F152, F192."""
    for kind in ("string", "long"):
        compare(parser(kind), value or b"{}")
        assert parser(kind)(value) == parser(kind)(value or b"")


def test_tables_of_usual_types_are_read_as_a_whole():
    """F152: it costs a third of the other way."""
    row = {"c0": 12345, "c1": "é", "c2": 1.5, "c3": True, "c4": "7.50", "c5": "AP8=", "undeclared": [1]}
    value = json.dumps(
        {"op": "u", "before": row, "after": row, "source": {"table": "t"}, "ts_ms": 1}, ensure_ascii=False
    )
    made = parser("long", "string", "double", "boolean", "decimal(10,2)", "binary")
    assert compare(made, value.encode())
    read = {"c0": 12345, "c1": "é", "c2": 1.5, "c3": True, "c4": Decimal("7.50"), "c5": b"\x00\xff"}
    assert arrow(made, value.encode(), b"{}", None) == [
        {"op": "u", "table": "t", "shown": read, "before": read, "flaw": None},
        *[dict.fromkeys(("op", "table", "shown", "before", "flaw"))] * 2,
    ]
    assert arrow(made) == []


def described(values, **names):
    """An envelope with a schema that says by which rule each column is written."""
    fields = [{"field": name, **kind} for name, kind in names.items()]
    schema = {"fields": [{"field": image, "fields": fields} for image in ("before", "after")]}
    return json.dumps({"schema": schema, "payload": {"op": "u", "before": values, "after": values}}).encode()


@pytest.mark.parametrize("kind", DIRECT)
def test_the_rules_of_an_envelopes_schema_say_the_same_both_ways(kind):
    """F192: also if envelopes with several schemas follow each other."""
    made = parser(kind, "long")
    scaled = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    day, other = {"name": "io.debezium.time.Date"}, {"name": "x"}
    for value, rule in itertools.product(("E4g=", 20454, None, "7", 1.5, HELD), (scaled, day, other)):
        compare(made, described({"c0": value, "c1": 1}, c0=rule, c1=other))
        compare(made, described({"c0": value, "c1": 1}, c0=other, c1=rule))
        compare(made, json.dumps({"op": "c", "after": {"c0": value}}).encode())
    whole = compare(made, described({"c0": None, "c1": 20454}, c0=scaled, c1=day))
    assert whole is (kind not in ("double", "string", "boolean"))


def test_a_value_that_the_database_has_not_told_is_decoded_as_that_of_the_image_before():
    """F192: by the schema of that image; and it is never null where there is none."""
    told = {"field": "before", "fields": [{"field": "c0", "name": "io.debezium.time.Date"}]}
    untold = {"c0": "__debezium_unavailable_value"}
    for before, shown in (({"c0": 1}, {"c0": "1970-01-02"}), ({}, {})):
        payload = {"op": "u", "before": before, "after": untold, "source": {"table": "t"}}
        found = parser("date")(json.dumps({"schema": {"fields": [told]}, "payload": payload}).encode())
        assert json.loads(found.shown) == shown
        assert (found.flaw is None) == bool(shown)

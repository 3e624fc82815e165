"""An envelope that is given to Spark as it is says the same as one that is read value by value."""

import itertools
import json

import pytest

pytest.importorskip("pyspark")

from publishers.spark.envelopes import EnvelopeParser

PLAIN = ("byte", "short", "integer", "long", "double", "string", "boolean")
OTHERS = ("float", "decimal(10,2)", "binary", "date", "timestamp", "variant")
HELD = "__debezium_unavailable_value"
TEXTS = [
    "null", "true", "false", "0", "-0", "7", "-128", "128", "32768", "2147483648", "9007199254740992", "9007199254740993",
    "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1" * 1100, "1.0", "1.5", "-0.0", "1e3", "1e400", "1E-400",
    "0.1000000000000000055511151231257827", "1.1e16", '""', '"7"', '"yes"', '"é\\n\\""', '"\\u00e9"', '"\\ud83d\\ude00"', '"NaN"',
    f'"{HELD}"', '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="', '"\\u005f_debezium_unavailable_value"', f'["{HELD}"]', "[1]", "{}",
    '"' + "x" * 1100 + '"', "[" * 600 + "]" * 600, "01", "NaN", '"\\ud800"', "1 ",
]  # fmt: skip


def parser(*kinds):
    return EnvelopeParser({"fields": [{"name": f"c{at}", "type": kind} for at, kind in enumerate(kinds)]})


def columns(text, names):
    found = None if text is None else json.loads(text)
    return found if found is None else {name: found[name] for name in names if name in found}


def compare(made, value, names):
    """Whether the value was taken as it is; if so, it says the same."""
    whole, each = made._of_plain(value), made._of_any(value)
    assert made(value) == (whole or each)
    if whole is None:
        return False
    assert (whole.op, whole.table, whole.flaw) == (each.op, each.table, each.flaw)
    for one, other in ((whole.shown, each.shown), (whole.before, each.before)):
        assert columns(one, names) == columns(other, names)
    return True


@pytest.mark.parametrize("kind", PLAIN + OTHERS)
def test_every_value_of_a_type_says_the_same_both_ways(kind):
    """F192: also with fields that are not declared, names that come twice, and in each image of each operation."""
    made, taken = parser(kind, "long"), 0
    for text, op in itertools.product(TEXTS, ("c", "u", "d", "t", "x")):
        for image in (f'{{"c0": {text}, "c1": 1}}', f'{{"c1":1,"c0":{text}}}', f'{{"more":{text}}}', f'{{"c0":1,"c0":{text}}}'):  # fmt: skip
            for before, after in ((image, "null"), ("null", image), ('{"c0": null}', image)):
                value = f'{{"op":"{op}","before":{before},"after":{after},"source":{{"table":"t"}}}}'.encode()
                taken += compare(made, value, ("c0", "c1"))
                taken += compare(made, b'{"payload":' + value + b"}", ("c0", "c1"))
    assert (taken > 0) is (kind in PLAIN)


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
        compare(parser(kind), value or b"", ("c0",))
        assert parser(kind)(value) == parser(kind)(value or b"")


def test_the_plain_way_is_taken_by_plain_tables():
    """F152: it costs a third of the other one."""
    row = {"c0": 12345, "c1": "é", "c2": 1.5, "c3": True, "undeclared": [1]}
    value = json.dumps(
        {"op": "u", "before": row, "after": row, "source": {"table": "t"}, "ts_ms": 1}, ensure_ascii=False
    )
    assert compare(parser("long", "string", "double", "boolean"), value.encode(), ("c0", "c1", "c2", "c3"))


def test_a_value_that_the_database_has_not_told_is_decoded_as_that_of_the_image_before():
    """F192: by the schema of that image; and it is never null where there is none."""
    told = {"field": "before", "fields": [{"field": "c0", "name": "io.debezium.time.Date"}]}
    untold = {"c0": "__debezium_unavailable_value"}
    for before, shown in (({"c0": 1}, {"c0": "1970-01-02"}), ({}, {})):
        payload = {"op": "u", "before": before, "after": untold, "source": {"table": "t"}}
        found = parser("date")(json.dumps({"schema": {"fields": [told]}, "payload": payload}).encode())
        assert json.loads(found.shown) == shown
        assert (found.flaw is None) == bool(shown)

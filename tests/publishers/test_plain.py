"""What msgspec reads from text by `plain_type` is what `reader` makes of the parsed JSON, or msgspec refuses it."""

from decimal import Decimal
from itertools import product

import msgspec
import pytest

from penstock_cdc.errors import ValueRefused
from penstock_cdc.lossless import reader
from publishers.lossless.plain import plain_type

TYPES = ("byte", "short", "integer", "long", "float", "double", "string", "boolean", "decimal(10,2)", "decimal(38,18)", "date",
    "timestamp", "timestamp_ntz", "binary")  # fmt: skip
OTHERS = ("variant", "duration", "interval year", "uuid", "time", "char(3)", "void")
VALUES = ("null", "true", "0", "-0", "-0.0", "1", "127", "128", "-129", "32768", "2147483648", "16777216", "16777217", "9007199254740992",
    "9007199254740993", "9223372036854775807", "9223372036854775808", "1.0", "1e2", "1.5", "0.1", "1.17549435e-38", "3.5e38", "1e400",
    "1000000060", "9" * 400, '""', '"7"', '"1.5"', '"NaN"', '"-Infinity"', '"10.00"', '"1e2"', '"AP8="', '"AP8"', '"2024-02-29"',
    '"2023-02-29"', '"2024-02-29T00:00:00"', '"2024-02-29T01:02:03.1234567Z"', '"2024-02-29T01:02:03.5+02:00"', '"+12024-01-01"',
    '"9223372036854775807"', '"stra\u00dfe \\u0000"', "[]", "[1]", "{}", '{"a":1}')  # fmt: skip
SHAPES = {
    "itself": (lambda kind: kind, "%s"),
    "a struct": (lambda kind: {"type": "struct", "fields": [{"name": "a b", "type": kind}]}, '{"a b":%s}'),
    "a struct with more": (
        lambda kind: {
            "type": "struct",
            "fields": [{"name": "", "type": kind}, {"name": "x", "type": "long"}],
        },
        '{"":%s,"y":[2]}',
    ),
    "an array": (lambda kind: {"type": "array", "elementType": kind}, "[%s,null,%s]"),
    "a map": (lambda kind: {"type": "map", "keyType": "string", "valueType": kind}, '{"k":%s,"":null}'),
    "a map of structs": (
        lambda kind: {
            "type": "map",
            "keyType": "string",
            "valueType": {
                "type": "struct",
                "fields": [{"name": "l", "type": {"type": "array", "elementType": kind}}],
            },
        },
        '{"k":{"l":[%s]},"n":{"l":null},"m":{},"o":null}',
    ),
}
exact = msgspec.json.Decoder(float_hook=Decimal).decode


def known(value):
    """What a schema says of a value; `plain_type` leaves out what it does not."""
    if isinstance(value, dict):
        return {name: known(one) for name, one in value.items() if name != "y"}
    return [*map(known, value)] if isinstance(value, list) else value


@pytest.mark.parametrize("shape", SHAPES)
def test_a_value_is_read_from_text_as_from_parsed_json_or_refused(shape):
    """F152: each value as each type, in each other type."""
    kind_of, around = SHAPES[shape]
    same = 0
    for kind, value in product(TYPES, VALUES):
        schema, text = kind_of(kind), around.replace("%s", value)
        plain = plain_type(schema, {})
        try:
            found = msgspec.json.decode(text, type=plain.type)
            found = found if plain.read is None else plain.read(found)
        except (msgspec.ValidationError, ValueRefused):
            continue
        right = known(reader(schema)(exact(text)))
        assert (repr(found), type(found)) == (repr(right), type(right)), (kind, text)
        same += 1
    assert same > 3 * len(TYPES)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_type_whose_json_says_less_has_no_such_reading(kind, shape):
    assert plain_type(SHAPES[shape][0](kind), {}) is None


def test_names_that_come_twice_or_are_no_text_have_none_either():
    twice = [{"name": "a", "type": "long"}, {"name": "a", "type": "string"}]
    assert plain_type({"type": "struct", "fields": twice}, {}) is None
    assert plain_type({"type": "map", "keyType": "long", "valueType": "long"}, {}) is None


def test_leaves_turn_what_they_are_given_for():
    read = plain_type("long", {"long": lambda value: value + 1})
    assert read is None
    plain = plain_type({"type": "array", "elementType": "date"}, {"date": str})
    assert plain.read(msgspec.json.decode('["2024-02-29"]', type=plain.type)) == ["2024-02-29"]

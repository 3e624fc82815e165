"""JSON loses nothing: what is written can be read back by its type."""

import dataclasses
import enum
import pickle
import tracemalloc
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import InvalidChange, ValueRefused
from publishers import Content, upsert
from publishers.lossless import NotFinite, encode, flaw_of, reader, text_integers
from tests.publishers.support import opened

ZONES = st.sampled_from(
    [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(minutes=19, seconds=32))]
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
TYPES = {
    "string": TEXT,
    "boolean": st.booleans(),
    "byte": st.integers(-128, 127),
    "long": st.integers(-(2**63), 2**63 - 1),
    "decimal(38,10)": st.decimals(allow_nan=False, allow_infinity=False, places=10),
    "decimal(20,0)": st.decimals(allow_nan=False, allow_infinity=False, places=0),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "binary": st.binary(max_size=9),
    "date": st.dates(),
    "time(6)": st.times(),
    "timestamp": st.datetimes(
        datetime.fromisoformat("0002-01-01"), datetime.fromisoformat("9998-01-01"), timezones=ZONES
    ),
    "timestamp_ntz": st.datetimes(),
    "duration": st.timedeltas(timedelta(days=-9999), timedelta(days=9999)),
    "uuid": st.uuids(),
}


def structs(inner):
    fields = st.lists(
        st.fixed_dictionaries({"name": TEXT, "type": inner, "nullable": st.just(True)}),
        max_size=4,
        unique_by=lambda field: field["name"],
    )
    return st.fixed_dictionaries({"type": st.just("struct"), "fields": fields})


leaf_types = st.sampled_from(sorted(TYPES))
types = st.recursive(
    leaf_types,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "elementType": inner}),
        st.fixed_dictionaries(
            {
                "type": st.just("map"),
                "keyType": st.sampled_from(["string", "long", "date"]),
                "valueType": inner,
            }
        ),
        structs(inner),
    ),
    max_leaves=4,
)


def values_of(schema):
    """Values of a type, null included."""
    if isinstance(schema, str):
        return st.none() | TYPES[schema]
    if schema["type"] == "array":
        return st.none() | st.lists(values_of(schema["elementType"]), max_size=3)
    if schema["type"] == "map":
        return st.none() | st.dictionaries(
            TYPES[schema["keyType"]], values_of(schema["valueType"]), max_size=3
        )
    return st.none() | members_of(schema)


def members_of(schema):
    """Mappings of a struct, some of whose names are not there."""
    fields = {field["name"]: values_of(field["type"]) for field in schema["fields"]}
    return st.fixed_dictionaries({}, optional=fields)


@given(structs(types), st.data())
def test_values_come_back_as_they_were(schema, data):
    """F24: fuzzed over every type, nested, with null and absent kept apart."""
    value = data.draw(members_of(schema))
    back = reader(schema)(msgspec.json.decode(encode(value)))
    assert back == value
    assert repr(back) == repr(reader(schema)(msgspec.json.decode(encode(back)))), "and stay so"


def test_values_pass_through_a_log_and_the_schema_that_it_was_told():
    """F24, F9."""
    schema = {
        "type": "struct",
        "fields": [{"name": "total", "type": "decimal(10,2)"}, {"name": "at", "type": "timestamp"}],
    }
    value = {"total": Decimal("10.00"), "at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC), "more": [1]}
    with opened() as log:
        with log.transaction() as tx:
            tx.schema("order", schema)
            tx.upsert("order", "1", value)
        change = log.history(content=Content.BODY).changes[-1]
        told = log.schema("order", change.schema_version)
        assert told.reader()(change.body) == value
        assert str(told.reader()(change.body)["total"]) == "10.00"


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**63 - 1, b"9223372036854775807"),
        (-(2**200), str(-(2**200)).encode()),
        (Decimal("1E-8"), b'"1E-8"'),
        (Decimal("10.00"), b'"10.00"'),
        (b"\x00\xff", b'"AP8="'),
        (datetime(2024, 2, 29, 1, 2, 3, 4, UTC), b'"2024-02-29T01:02:03.000004Z"'),
        (datetime.fromisoformat("2024-02-29T01:02:03"), b'"2024-02-29T01:02:03"'),
        (date(1, 1, 1), b'"0001-01-01"'),
        (time(1, 2, 3, 4), b'"01:02:03.000004"'),
        (timedelta(days=1, microseconds=5), b'"P1DT0.000005S"'),
        (UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        (Colour.RED, b'"red"'),
        (-0.0, b"-0.0"),
        (1e22, b"1e22"),
        (None, b"null"),
    ],
)
def test_each_kind_of_value_is_written_by_its_rule(value, text):
    """F24."""
    assert encode({"v": value}) == b'{"v":%s}' % text


def test_an_offset_of_old_with_seconds_keeps_its_moment():
    """F24: RFC 3339 has no such offsets, so the moment is told in UTC."""
    zone = timezone(timedelta(minutes=19, seconds=32))
    assert encode([{"at": datetime(1920, 1, 1, tzinfo=zone)}]) == b'[{"at":"1919-12-31T23:40:28Z"}]'
    text = {"at": '2020-01-01T00:00:00+02:00"'}
    assert msgspec.json.decode(encode(text)) == text


def test_whole_numbers_become_text_on_request():
    """F24: beyond 2^53, at every depth, and nothing else changes."""
    raw = b'{"a":[9007199254740993,9007199254740992,1.50,1e400],"b":{"c":-9223372036854775808},"d":"7","e":null}'
    assert text_integers(raw) == (
        b'{"a":["9007199254740993",9007199254740992,1.50,1e400],"b":{"c":"-9223372036854775808"},"d":"7","e":null}'
    )
    schema = {"type": "struct", "fields": [{"name": "n", "type": "long"}]}
    assert reader(schema)({"n": "9007199254740993"}) == {"n": 9007199254740993}


@pytest.mark.parametrize(
    "much", [b'"' + b"\\n" * 200_000 + b'"', b"12," * 200_000 + b"12"], ids=["escapes", "numbers"]
)
def test_much_that_stays_as_it_is_costs_little_more_than_itself(much):
    """F24: what is looked for in a text needs no notes of the way there."""
    data = b"[" + much + b",9007199254740993]"
    tracemalloc.start()
    try:
        told = text_integers(data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told == data.replace(b"9007199254740993", b'"9007199254740993"')
    assert most < 6 * len(data)


def test_what_spark_writes_is_read_by_its_types():
    """F24: numbers that are none, keys of maps, and times that Python lacks."""
    assert reader("double")("NaN") != reader("double")("NaN")
    assert reader("double")("-Infinity") == float("-inf")
    assert reader({"type": "map", "keyType": "boolean", "valueType": "double"})({"true": "Infinity"}) == {
        True: float("inf")
    }
    assert reader("timestamp")("+12024-01-01T00:00:00.000000Z") == "+12024-01-01T00:00:00.000000Z"
    assert reader("date")("+12345-01-01") == "+12345-01-01"
    assert reader("interval day to second")("INTERVAL '1' DAY") == "INTERVAL '1' DAY"
    assert reader({"type": "struct", "fields": []})({"unknown": [1]}) == {"unknown": [1]}


@pytest.mark.parametrize(
    "schema",
    ["money", {"type": "struct"}, {"type": "array"}, {"type": "set"}, {}, {"type": "map", "keyType": "x"}],
)
def test_what_is_no_schema_is_refused(schema):
    with pytest.raises(ValueError, match="type"):
        reader(schema)


def test_what_json_cannot_hold_is_refused_by_its_place():
    with pytest.raises(NotFinite, match=r"\['a'\]\[1\]"):
        encode({"a": [1.0, float("inf")]})
    with pytest.raises(TypeError):
        encode({"a": object()})


@given(st.binary(max_size=20))
def test_bytes_have_no_flaw_exactly_if_they_can_be_parsed(data):
    """F19."""
    try:
        msgspec.json.decode(data.decode())
        sound = True
    except (UnicodeDecodeError, msgspec.DecodeError):
        sound = False
    if sound:
        assert flaw_of(data) is None
    elif flaw_of(data) is None:  # a number out of range, or half of a surrogate pair, is JSON all the same
        assert b"e" in data.lower() or b"\\u" in data


def test_flaws_are_told():
    """F19."""
    assert flaw_of(b'{"a":1}') is None
    assert "truncated" in flaw_of(b'{"a":')
    assert "utf-8" in flaw_of(b'{"a":"\xff"}')
    assert upsert("t", "k", {"a": 1}).body == b'{"a":1}'


@dataclasses.dataclass
class Line:
    price: object


class Item(msgspec.Struct):
    price: object


PLACES = {
    "in a mapping": lambda value: {"a": value},
    "in a list": lambda value: {"a": [1, value]},
    "in a tuple": lambda value: {"a": (value,)},
    "in a dataclass": lambda value: {"a": Line(value)},
    "in a Struct": lambda value: {"a": [Item(value)]},
    "as a name": lambda value: {value: 1},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "value",
    [float("nan"), float("-inf"), Decimal("NaN"), Decimal("sNaN"), Decimal("-NaN"), Decimal("Infinity")],
    ids=str,
)
def test_a_number_that_json_lacks_is_refused_wherever_it_is(value, place):
    """F192: as a float and as a decimal, which would become null, or text that reads as a number."""
    if place == "as a name" and str(value) == "sNaN":
        pytest.skip("no mapping can have it")
    with pytest.raises(NotFinite):
        encode(PLACES[place](value))
    assert encode(PLACES[place](str(value))), "text is text"


@pytest.mark.parametrize(
    "names",
    [(1, "1"), (1.5, "1.5"), (Colour.RED, "red"), (UUID(int=1), str(UUID(int=1))), (date(2024, 1, 1), "2024-01-01"),
     (Decimal("1.50"), "1.50"), (Decimal(1), 1)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(
    "place",
    [lambda one: one, lambda one: {"a": one}, lambda one: {"a": [{}, one]}, lambda one: {"a": Line(one)}],
)
def test_two_names_with_one_text_are_refused(names, place):
    """F192: readers keep one of two members of a name."""
    twins = dict.fromkeys(names)
    if len(twins) > 1:
        with pytest.raises(ValueError, match="have the same text"):
            encode(place(twins))
        with pytest.raises(InvalidChange, match="have the same text"):
            upsert("order", "1", {"more": place(twins)})
    assert encode(place({names[0]: 1, "other": 2}))


def test_a_value_that_a_type_would_change_is_refused_with_its_place():
    """F192: the error can be pickled, as Spark's workers do."""
    kind = {"type": "struct", "fields": [{"name": "lines", "type": {"type": "array", "elementType": {
        "type": "map", "keyType": "string", "valueType": {"type": "struct", "fields": [{"name": "n", "type": "long"}]}}}}]}  # fmt: skip
    with pytest.raises(
        ValueRefused, match=r"column \"lines\[1\]\['k'\].n\" is 1.5, which cannot be read as long"
    ) as refused:
        reader(kind)({"lines": [{}, {"k": {"n": 1.5}}]})
    again = pickle.loads(pickle.dumps(refused.value))
    assert (again.column, again.value, again.kind) == ("lines[1]['k'].n", 1.5, "long")
    assert str(again) == str(refused.value)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [("long", "7", 7), ("double", "1.5", 1.5), ("boolean", "true", True), ("decimal(3,1)", "1.50", None), ("long", "07", None),
     ("long", " 7", None), ("boolean", "yes", None), ("double", "nan", None), ("string", "07", "07")],
)  # fmt: skip
def test_names_of_maps_are_read_by_the_type_of_their_keys(kind, key, value):
    """F192: two names never become one key."""
    read = reader({"type": "map", "keyType": kind, "valueType": "long"})
    if value is None and key != "1.50":
        with pytest.raises(ValueRefused):
            read({key: 1})
    elif key == "1.50":
        assert read({key: 1}) == {Decimal("1.5"): 1}
        with pytest.raises(ValueRefused, match="two of its keys are equal"):
            read({key: 1, "1.5": 2})
    else:
        assert read({key: 1}) == {value: 1}


def test_a_number_of_any_exponent_costs_nothing_to_refuse():
    for text in ("1e999999999", "1e-999999999", "-1E999999999"):
        for kind in ("long", "decimal(10,2)", "double"):
            found = Decimal(text)
            if kind != "double" or found > 1:
                with pytest.raises(ValueRefused):
                    reader(kind)(found)
        with pytest.raises(ValueRefused):
            reader("long", written="decimal(10,2)")(text)

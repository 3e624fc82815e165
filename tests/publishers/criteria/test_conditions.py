"""Conditions on values: what they take, when two are the same, and what they hold of."""

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import InvalidCriteria
from publishers.criteria.conditions import ABSENT, Comparison, Image, Where, find
from publishers.criteria.facts import parse

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)


def holds(where, text):
    document = parse(text.encode() if isinstance(text, str) else text)
    return where.test()(find(document, where.path))


@given(st.sampled_from(["==", "!="]), scalars)
def test_a_condition_survives_its_way_through_json(sign, value):
    """F58: numbers too."""
    one = Where("a.b", sign, value)
    travelled = msgspec.json.decode(msgspec.json.encode(one.to_json()))
    assert Where.from_json(travelled) == one
    assert hash(Where.from_json(travelled)) == hash(one)
    body = msgspec.json.encode({"a": {"b": value}})
    assert holds(one, body) is (sign == "==")


@pytest.mark.parametrize(
    "same",
    [
        [
            Where("n", "==", 1),
            Where(["n"], "EQ", 1.0),
            Where(("n",), Comparison.EQ, Decimal("1.00")),
            Where("n", "in", [1]),
        ],
        [Where("a.b", "in", [2, 1, 1.0]), Where(["a", "b"], "IN", {1, 2}), Where.parse("a.b in [1,2]")],
        [Where("x", "exists"), Where("x", "EXISTS", value=True), Where.parse("x exists")],
        [Where("x", "is null", value=False), Where.parse("x is not null"), Where("x", "IS_NULL", False)],
        [Where("n", "==", 0.0), Where("n", "=", -0.0), Where("n", "==", 0)],
        [Where("lines.0.n", "==", 1), Where(["lines", 0, "n"], "==", 1)],
        [
            Where("n", ">", 1, image="BEFORE"),
            Where.parse("before:n > 1"),
            Where("n", "GT", 1, image=Image.BEFORE),
        ],
    ],
)
def test_one_wish_in_several_spellings_is_one_object(same):
    """F57, F58."""
    assert len(set(same)) == 1
    assert len({one.text for one in same}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Where("n", "==", 1), Where("n", "==", True)),
        (Where("n", "==", 0), Where("n", "==", False)),
        (Where("n", "==", 1), Where("n", "==", "1")),
        (Where("n", "==", None), Where("n", "is null", value=False)),
        (Where(["a.b"], "==", 1), Where("a.b", "==", 1)),
        (Where("n", "==", 1), Where("n", "==", 1, image="BEFORE")),
        (Where("n", "==", 9007199254740992), Where("n", "==", 9007199254740993)),
    ],
)
def test_different_wishes_are_different_objects(one, other):
    """F58."""
    assert one != other


@pytest.mark.parametrize(
    ("expression", "body", "expected"),
    [
        # Numbers compare exactly, whatever their length and spelling.
        ("n == 9007199254740993", '{"n":9007199254740993}', True),
        ("n == 9007199254740993", '{"n":9007199254740992}', False),
        ("n > 9007199254740992", '{"n":9007199254740993}', True),
        ("n == 0.1", '{"n":0.1}', True),
        ("n == 0.1", '{"n":0.1000000000000000055}', False),
        ("n == 10", '{"n":1e1}', True),
        ("n < 1e300", '{"n":1e400}', False),
        ("n > 18446744073709551615", '{"n":18446744073709551616}', True),
        # Decimals that were written as text are text, and so are times.
        ("n == 10", '{"n":"10"}', False),
        ('n == "10.00"', '{"n":"10.00"}', True),
        ('n > "2026-01-01"', '{"n":"2026-03-01T00:00:00.000000Z"}', True),
        ("n > 1", '{"n":"2"}', False),
        ('n < "2"', '{"n":1}', False),
        # True is not one, and nothing but numbers and text has an order.
        ("n == 1", '{"n":true}', False),
        ("n == true", '{"n":true}', True),
        ("n >= 0", '{"n":true}', False),
        ("n in [0, false]", '{"n":false}', True),
        ("n in [0]", '{"n":false}', False),
        # Null is a value; what is absent is not.
        ("n == null", '{"n":null}', True),
        ("n == null", "{}", False),
        ("n is null", "{}", False),
        ("n is not null", "{}", False),
        ("n is not null", '{"n":0}', True),
        ("n != 1", "{}", False),
        ("n != 1", '{"n":null}', True),
        ("n != 1", '{"n":[1]}', True),
        ("n not exists", "{}", True),
        ("n not exists", '{"n":null}', False),
        ("n exists", '{"n":null}', True),
        # Paths lead through objects and lists.
        ("a.b == x", '{"a":{"b":"x"}}', True),
        ("a.b == x", '{"a.b":"x"}', False),
        ("a.0 == x", '{"a":["x"]}', True),
        ("a.0 == x", '{"a":{"0":"x"}}', True),
        ("a.1 not exists", '{"a":["x"]}', True),
        ("a.b not exists", '{"a":"b"}', True),
        ("n prefix ab", '{"n":"abc"}', True),
        ("n prefix ab", '{"n":"a"}', False),
        ("n prefix 1", '{"n":"1"}', None),
    ],
)
def test_truth_table_of_conditions(expression, body, expected):
    """F58."""
    if expected is None:
        with pytest.raises(InvalidCriteria, match="text with PREFIX"):
            Where.parse(expression)
    else:
        assert holds(Where.parse(expression), body) is expected


def test_names_with_dots_are_given_as_a_list_or_with_a_backslash():
    """F58: written as in projections."""
    one = Where(["a.b", "c\\d"], "==", 1)
    assert one.to_json()["path"] == r"a\.b.c\\d"
    assert Where(r"a\.b.c\\d", "==", 1) == one == Where.from_json(one.to_json())
    assert holds(one, r'{"a.b":{"c\\d":1}}')


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("", "==", 1), "path"),
        (("a..b", "==", 1), "path"),
        (([], "==", 1), "path"),
        ((["a"] * 33, "==", 1), "path"),
        (([1.5], "==", 1), "path"),
        ((["a", ""], "==", 1), "path"),
        (("a\\", "==", 1), "path"),
        ((["\ud800"], "==", 1), "path"),
        ((7, "==", 1), "path"),
        (("a", "~", 1), "comparison"),
        (("a", 7, 1), "comparison"),
        (("a", "=="), "value"),
        (("a", "==", [1]), "value"),
        (("a", "==", {"b": 1}), "value"),
        (("a", "==", b"x"), "value"),
        (("a", "==", float("nan")), "value"),
        (("a", "==", float("inf")), "value"),
        (("a", "==", 10**30), None),
        (("a", "==", 2**64), "value"),
        (("a", "==", 2**64 + 1), "value"),
        (("a", "==", 10**400), "value"),
        (("a", "==", Decimal("0.1000000000000000055")), "value"),
        (("a", "==", Decimal("NaN")), "value"),
        (("a", "==", "\ud800"), "value"),
        (("a", "==", "x" * 65_537), "value"),
        (("a", "<", None), "value"),
        (("a", "<", True), "value"),
        (("a", "in", []), "value"),
        (("a", "in", "abc"), "value"),
        (("a", "in", range(10_001)), "value"),
        (("a", "prefix", 1), "value"),
        (("a", "exists", 1), "value"),
        (("a", "is null", "yes"), "value"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_by_name(arguments, path):
    """E11: a number beyond 64 bits is taken if the text of a double says all of it."""
    if path is None:
        assert holds(Where(*arguments), '{"a":1000000000000000000000000000000}')
        return
    with pytest.raises(InvalidCriteria) as caught:
        Where(*arguments)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "expression",
    [
        *("", "total", "> 10", "x exists y", "x is nothing", "in [1]", "a b == 1", 7),
        *("total >", "total = ", "name prefix", "total >> 5", "total =< 5", "total === 5", "total <> 5"),
    ],
)
def test_what_is_no_expression_is_refused(expression):
    """E11. A slip of the fingers is not taken for a text that nothing equals."""
    with pytest.raises(InvalidCriteria, match=r"an expression such as|nothing after|a value after"):
        Where.parse(expression)


@pytest.mark.parametrize(
    ("expression", "value"), [('a == ""', ""), ('a > "> 5"', "> 5"), ("a=" * 500 + "=", "a=" * 499 + "=")]
)
def test_what_stands_behind_a_sign_is_a_value_however_odd_it_looks(expression, value):
    """E11."""
    assert Where.parse(expression).value == value


@pytest.mark.parametrize(
    ("wish", "path"),
    [
        (7, ""),
        ({}, "path"),
        ({"path": "a"}, "compare"),
        ({"path": "a", "compare": "~", "value": 1}, "compare"),
        ({"path": "a", "compare": "EQ"}, "value"),
        ({"path": "a", "compare": "EQ", "value": 1, "image": "NOW"}, "image"),
        ({"path": "a", "compare": "EQ", "value": 1, "colour": 1}, "colour"),
    ],
)
def test_a_malformed_condition_from_the_wire_is_refused_with_its_place(wish, path):
    with pytest.raises(InvalidCriteria) as caught:
        Where.from_json(wish)
    assert caught.value.path == path


def test_absent_is_told_from_null():
    assert find({"a": None}, ("a",)) is None
    assert find({"a": None}, ("b",)) is ABSENT
    assert repr(ABSENT) == "ABSENT"

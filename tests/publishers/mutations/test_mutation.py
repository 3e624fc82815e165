"""What a writer may ask for, and what it is told when it may not."""

import math
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import InvalidChange
from publishers import Mutation, rekey, remove, truncate, upsert
from publishers.mutations.mutation import REMOVE, UPSERT, columns_of, encode_json, expire

json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def test_an_upsert_stores_what_it_was_given():
    """F5, F6, F11, F17, F18: images, versions and origin."""
    made = upsert(
        "order",
        "42",
        {"a": 1},
        before=b'{"a":0}',
        changed=["a"],
        meta={"by": "ann"},
        schema_version=3,
        entry_version=2**62,
        origin="here",
    )
    assert (made.operation, made.entity_type, made.key) == (UPSERT, "order", b"42")
    assert (made.body, made.before, made.changed) == (b'{"a":1}', b'{"a":0}', b'["a"]')
    assert made.meta is not None
    assert msgspec.json.decode(made.meta) == {
        "schema_version": 3,
        "entry_version": 2**62,
        "origin": "here",
        "meta": {"by": "ann"},
    }


def test_a_removal_has_no_body():
    made = remove("order", b"\xff", before={"a": 1}, entry_version=0)
    assert (made.operation, made.key, made.body, made.changed) == (REMOVE, b"\xff", None, None)
    assert made.before == b'{"a":1}'
    assert made.meta == b'{"entry_version":0}'


@given(st.dictionaries(st.text(max_size=4), json, max_size=4))
def test_json_bytes_are_kept_as_they_are(value):
    """F24."""
    raw = msgspec.json.format(msgspec.json.encode(value), indent=2)
    made = upsert("t", "k", raw)
    assert made.body == raw
    assert msgspec.json.decode(upsert("t", "k", value).body) == value


def test_decimals_are_told_from_floats():
    """F24."""
    assert upsert("t", "k", {"total": Decimal("10.00"), "f": 10.0}).body == b'{"total":"10.00","f":10.0}'


def test_integers_beyond_two_to_the_53_keep_every_digit():
    """F24."""
    assert upsert("t", "k", {"n": 2**63 - 1}).body == b'{"n":9223372036854775807}'


def test_bytes_keys_and_text_keys_meet():
    assert upsert("t", "ü", {}).key == upsert("t", "ü".encode(), {}).key
    assert upsert("t", b"\x80".decode("utf-8", "surrogateescape"), {}).key == b"\x80"


NESTED: dict = {}
NESTED["self"] = NESTED


@pytest.mark.parametrize(
    ("parameter", "arguments"),
    [
        ("entity_type", {"entity_type": ""}),
        ("entity_type", {"entity_type": "x" * 1025}),
        ("entity_type", {"entity_type": b"order"}),
        ("key", {"key": 42}),
        ("key", {"key": None}),
        ("key", {"key": ""}),
        ("key", {"key": b""}),
        ("body", {"body": None}),
        ("body", {"body": "{}"}),
        ("body", {"body": b"{"}),
        ("body", {"body": b"{} {}"}),
        ("body", {"body": b'"\xff"'}),
        ("body", {"body": b""}),
        ("body", {"body": {"x": object()}}),
        ("body", {"body": NESTED}),
        ("before", {"before": 1}),
        ("changed", {"changed": "name"}),
        ("changed", {"changed": [1]}),
        ("meta", {"meta": b"["}),
        ("schema_version", {"schema_version": -1}),
        ("schema_version", {"schema_version": True}),
        ("entry_version", {"entry_version": 2**63}),
        ("entry_version", {"entry_version": "1"}),
        ("origin", {"origin": 7}),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(parameter, arguments):
    with pytest.raises(InvalidChange) as caught:
        upsert(**{"entity_type": "order", "key": "1", "body": {}, **arguments})
    assert caught.value.parameter == parameter
    assert str(caught.value).startswith(parameter)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("bad", ["\ud800", "a\udfff"])
def test_text_that_is_no_utf_8_is_refused(bad):
    with pytest.raises(InvalidChange):
        upsert("order", bad, {})
    with pytest.raises(InvalidChange):
        upsert(bad, "1", {})
    with pytest.raises(InvalidChange):
        upsert("order", "1", {}, origin=bad)
    with pytest.raises(InvalidChange):
        upsert("order", "1", {"a": bad})
    with pytest.raises(InvalidChange):
        upsert("order", "1", {}, changed=[bad])


def test_columns_share_types_and_leave_out_what_nobody_has():
    columns = columns_of([upsert("a", "1", {}), remove("b", "2"), upsert("a", "3", {})])
    assert columns.entity_types == ("a", "b")
    assert list(columns.type_ids) == [0, 1, 0]
    assert columns.before is columns.changed is columns.meta is None
    assert [columns.body[n] for n in range(3)] == [b"{}", None, b"{}"]
    assert columns_of([upsert("a", "1", {})]).type_ids is None
    assert columns_of([]).count == 0
    assert columns_of(iter([upsert("a", "1", {})])).count == 1


def test_only_mutations_become_columns():
    with pytest.raises(InvalidChange, match="mutations"):
        columns_of([{"entity_type": "order"}])


def test_more_entity_types_than_a_transaction_can_tell_apart_are_refused():
    rows = [Mutation(UPSERT, str(n), b"") for n in range(65_537)]
    assert columns_of(rows[:-1]).count == 65_536
    with pytest.raises(InvalidChange, match="65536"):
        columns_of(rows)


def test_json_of_other_kinds_is_refused():
    with pytest.raises(InvalidChange, match="body"):
        encode_json("body", [1])


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"a": math.nan}, "body['a']"),
        ({"a": [1.0, {"b": -math.inf}]}, "body['a'][1]['b']"),
        ({"a": None, "b": (math.inf,)}, "body['b'][0]"),
    ],
)
def test_a_number_that_json_does_not_have_is_refused_and_never_becomes_null(body, where):
    with pytest.raises(InvalidChange) as refused:
        upsert("order", "1", body)
    assert refused.value.parameter == where


def test_null_stays_null():
    assert upsert("order", "1", {"a": None, "b": [1.5, None]}).body == b'{"a":null,"b":[1.5,null]}'


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda said: upsert("order", "1", {}, **said), "upsert"),
        (lambda given: remove("order", "1", **given), "remove"),
        (lambda given: expire("order", "1", **given), "expire"),
        (lambda given: truncate("order", **given), "truncate"),
        (lambda given: rekey("order", "1", "2", {}, **given), "rekey"),
    ],
)
def test_what_is_no_field_for_writers_is_refused_as_any_unknown_argument(make, name):
    """Also a field of a change that only the product itself writes."""
    for wrong in ("colour", "linked"):
        with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument '{wrong}'$"):
            make({"origin": "rome", wrong: "x"})
    assert make({"origin": None, "entry_version": None}).meta == make({}).meta

"""Masks: what stands in place of values, and what never does."""

import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers import Drop, Hash, Mask, Partial, Redact, View
from publishers.errors import InvalidOption

KEY = "sixteen bytes or more"
CARD = "4111111111111234"


def masked(body: object, **rules: object) -> object:
    return json.loads(
        Mask.of({path.replace("__", "."): rule for path, rule in rules.items()}).image(text(body))
    )


def text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def test_redact_puts_one_text_in_place_of_anything():
    """F59."""
    for value in (CARD, 1, None, True, [1], {"x": CARD}):
        assert masked({"card": value, "n": 1}, card="***") == {"card": "***", "n": 1}


def test_hash_is_the_hmac_of_the_text():
    """F59: anybody with the key can compute it, and nobody without."""
    expected = hmac.new(KEY.encode(), CARD.encode(), hashlib.sha256).hexdigest()
    assert masked({"card": CARD}, card=Hash(KEY)) == {"card": expected}
    assert masked({"card": CARD}, card=Hash(KEY + "x")) != {"card": expected}
    number = hmac.new(KEY.encode(), b"1.50", hashlib.sha256).hexdigest()
    assert json.loads(Mask.of({"n": Hash(KEY)}).image(b'{"n": 1.50}')) == {"n": number}


def test_hash_is_the_same_for_equal_objects_however_they_are_written():
    rules = Mask.of({"o": Hash(KEY)})
    assert rules.image(b'{"o":{"a":1,"b":[true,null]}}') == rules.image(b'{"o": {"b": [true, null], "a": 1}}')
    assert rules.image(b'{"o":{"a":1}}') != rules.image(b'{"o":{"a":true}}')


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (CARD, "***1234"),
        ("12345678", "***5678"),
        ("1234567", "***"),
        ("", "***"),
        (4111111111111234, "***1234"),
        (None, "***"),
        (True, "***"),
        ([1, 2], "***"),
        ({"a": CARD}, "***"),
        ("äöü€äöü€", "***äöü€"),
    ],
)
def test_partial_shows_the_end_if_as_much_stays_hidden(value, shown):
    """F59."""
    assert masked({"card": value}, card=Partial()) == {"card": shown}
    assert CARD not in repr(masked({"card": value}, card=Partial(2)))


def test_drop_takes_the_name_too():
    assert masked({"card": CARD, "n": 1}, card=Drop()) == {"n": 1}
    assert masked({"a": [{"card": CARD}, [{"card": 1, "n": 2}], 3]}, a__card=Drop()) == {
        "a": [{}, [{"n": 2}], 3]
    }


def test_inner_rules_come_first_so_an_outer_hash_is_no_oracle():
    """F59: a hash of an object that holds a masked value is made of the mask."""
    rules = Mask.of({"customer": Hash(KEY), "customer.card": "***"})
    assert rules.image(b'{"customer":{"card":"1"}}') == rules.image(b'{"customer":{"card":"2"}}')


def test_a_name_that_occurs_twice_is_masked_both_times():
    """F59."""
    assert b"first" not in Mask.of({"card": "***"}).image(b'{"card":"first","card":"second"}')
    assert b"second" not in Mask.of({"card": "***"}).image(b'{"c\\u0061rd":"first","card":"second"}')


def test_equal_masks_are_equal_objects():
    one = Mask.of({"a": "x", "b.c": Drop(), "b.c.d": "y", "$key": Hash(KEY)})
    other = Mask.of({"$key": {"rule": "HASH", "key": KEY}, "b.c": {"rule": "DROP"}, "a": Redact("x")})
    assert one == other
    assert hash(one) == hash(other)
    assert Mask.of(one.to_json()) == one
    assert one != Mask.of({"a": "x", "b.c": Drop(), "$key": Hash(KEY + "x")})


def test_a_hash_key_is_in_no_repr():
    """F59."""
    view = View.of(mask={"card": Hash(KEY)})
    assert KEY not in repr(view) + str(view.lenses)


@pytest.mark.parametrize(
    "rules",
    [
        "card",
        ["card"],
        {"": "x"},
        {"$other": "x"},
        {"$key.x": "x"},
        {1: "x"},
        {"a": 1},
        {"a": None},
        {"a": {}},
        {"a": {"rule": "HASH"}},
        {"a": Hash("SECRET")},
        {"a": {"rule": "HASH", "key": "SECRET", "more": 1}},
        {"a": Partial(0)},
        {"a": Partial(True)},
        {"a": {"rule": "PARTIAL", "last": 65}},
        {"a": {"rule": "NONE"}},
    ],
)
def test_what_is_no_mask_is_refused_without_repeating_it(rules):
    """F59."""
    with pytest.raises(InvalidOption) as caught:
        Mask.of(rules)
    assert "SECRET" not in str(caught.value)


def test_keys_and_attachments_have_roots_of_their_own():
    """F59: keys if asked; a field of such a name is written with a backslash."""
    rules = Mask.of({"$key": Partial(), "$meta.user": "***", "\\$key": Drop()})
    assert rules.key(CARD) == "***1234"
    assert rules.meta(b'{"user":"ann","n":1}') == b'{"user":"***","n":1}'
    assert rules.image(b'{"$key":1,"user":"ann"}') == b'{"user":"ann"}'
    assert Mask.of({"$key": Drop()}).key("1") is None
    assert Mask.of({"$meta": Drop()}).meta(b"{}") is None
    assert Mask.of({"$key": Hash(KEY)}).key("\udcff") != Mask.of({"$key": Hash(KEY)}).key("\udcfe")


SECRET = "S3CRET"
entities = st.recursive(
    st.just(SECRET) | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


def hidden(value: object, path: tuple[str, ...]) -> object:
    """The reference: what lies at a path becomes None, through arrays."""
    if not path:
        return None
    if isinstance(value, list):
        return [hidden(item, path) for item in value]
    if isinstance(value, dict):
        return {name: hidden(item, path[1:]) if name == path[0] else item for name, item in value.items()}
    return value


@given(entities, st.lists(st.sampled_from("abc"), min_size=1, max_size=3))
def test_nothing_of_a_masked_value_is_left(value, path):
    """F59: the same as a plain walk over the parsed value, whatever its shape."""
    wanted = json.loads(json.dumps(hidden(value, tuple(path))).replace("null", '"***"'))
    assert json.loads(Mask.of({".".join(path): "***"}).image(text(value))) == wanted

"""Projections: equal wishes are equal, order does not matter, and nothing but the paths is left."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers.errors import InvalidOption
from publishers.views.paths import parse_path, path_text
from publishers.views.projection import Projection

BODY = b'{"total": 1.50, "customer": {"name": "Ann", "zip": "1", "tags": []}, "items": [{"p": 1, "q": 2}, [{"p": 3}], 4]}'


def trimmed(*paths: str, body: bytes = BODY) -> object:
    return json.loads(Projection.of(paths).trim(body))


@pytest.mark.parametrize(
    ("paths", "left"),
    [
        (["total"], {"total": 1.5}),
        (["customer.name", "total"], {"total": 1.5, "customer": {"name": "Ann"}}),
        (["customer.name", "customer"], {"customer": {"name": "Ann", "zip": "1", "tags": []}}),
        (["items.p"], {"items": [{"p": 1}, [{"p": 3}]]}),
        (["total.deeper"], {}),
        (["nothing"], {}),
    ],
)
def test_what_is_left_is_what_the_paths_name(paths, left):
    """F59: through objects and arrays; a value that is no object has nothing below it."""
    assert trimmed(*paths) == left
    assert trimmed(*reversed(paths)) == left


def test_fields_keep_their_order_and_their_digits():
    """F24."""
    assert Projection.of(["items", "total"]).trim(b'{"total":1.10, "x":1, "items":1e999}') == (
        b'{"total":1.10,"items":1e999}'
    )


def test_of_an_array_or_a_plain_value_at_the_top_no_more_is_shown():
    assert trimmed("a", body=b'[{"a":1,"b":2},{"b":3}, 4]') == [{"a": 1}, {}]
    assert trimmed("a", body=b'"secret"') is None


def test_equal_wishes_in_any_order_are_equal_objects():
    """F59: they are part of the key under which bytes are shared."""
    one = Projection.of(["a.b", "c", "a.b.d"])
    assert one == Projection.of(("c", "a.b")) == Projection.of({"c", "a.b", "\\a.b"})
    assert hash(one) == hash(Projection.of(["c", "a.b"]))
    assert one != Projection.of(["a", "b", "c"])
    assert one.to_json() == ["a.b", "c"]


@pytest.mark.parametrize(
    "paths", ["a", [], b"a", 1, [""], ["a."], [".a"], ["a\\"], ["$key"], [1], ["a" * 2000]]
)
def test_what_is_no_path_is_refused(paths):
    with pytest.raises(InvalidOption):
        Projection.of(paths)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


@given(st.lists(names, min_size=1, max_size=4))
def test_every_path_survives_its_text(path):
    text = path_text(tuple(path))
    assert parse_path("fields", text) == ("", tuple(path))


def test_a_path_is_shown_wholly_partly_or_not_at_all():
    one = Projection.of(["a.b", "c"])
    assert one.shows(("a",))
    assert not one.shows(("a",), wholly=True)
    assert one.shows(("a", "b", "x"), wholly=True)
    assert not one.shows(("a", "x"))
    assert not one.shows(("d",))
    assert not Projection(()).shows(("a",))
    assert not Projection(()).shows(("a",), wholly=True)

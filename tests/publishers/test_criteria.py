"""Wishes: what they take, what they refuse, and when two of them are the same."""

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers import Area, Criteria, Criterion, InvalidCriteria, Operation

texts = st.text(max_size=4)
criterions = st.builds(
    Criterion,
    areas=st.sets(st.sampled_from([Area.DATA, Area.SCHEMA]), max_size=2),
    entity_types=st.sets(texts, max_size=3),
    keys=st.sets(texts, max_size=3),
    key_globs=st.sets(texts, max_size=3),
    operations=st.sets(st.sampled_from([Operation.UPSERT, Operation.REMOVE]), max_size=2),
)


@given(st.lists(criterions, max_size=5), st.randoms())
def test_equal_wishes_in_any_order_are_equal_objects(wishes, chance):
    """F57."""
    shuffled = wishes * 2
    chance.shuffle(shuffled)
    first, second = Criteria.of(wishes), Criteria.of(*shuffled)
    assert first == second
    assert hash(first) == hash(second)
    assert len({first, second}) == 1


@given(st.lists(criterions, max_size=5))
def test_criteria_survive_their_way_through_json(wishes):
    criteria = Criteria.of(wishes)
    travelled = criteria.to_json()
    if travelled:
        assert Criteria.from_json(travelled) == criteria
    else:
        assert criteria.unconditional
    assert Criteria.of(*reversed(wishes)).to_json() == travelled


@pytest.mark.parametrize("nothing", [(), (None,), ([],), (Criteria.of(),), (Criterion(),)])
def test_no_wish_and_an_empty_wish_mean_everything(nothing):
    """E10, F53."""
    assert Criteria.of(*nothing) == Criteria.of()
    assert Criteria.of(*nothing).unconditional


def test_an_unconditional_wish_swallows_the_others():
    assert Criteria.of(Criterion(keys={"a"}), Criterion()) == Criteria.of()


def test_null_and_an_empty_list_mean_everything_on_the_wire():
    assert Criteria.from_json(None) == Criteria.from_json([]) == Criteria.from_json([{}]) == Criteria.of()


def test_one_value_and_a_list_of_one_behave_alike():
    assert Criterion(keys=["a"]) == Criterion(keys={"a"}) == Criterion(keys=("a", "a"))
    assert Criterion(areas=["DATA"]) == Criterion(areas={Area.DATA})
    assert Criterion(operations=["UPSERT"]) == Criterion(operations=frozenset({Operation.UPSERT}))


def test_a_criterion_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Criterion().keys = frozenset()  # type: ignore[misc]  # that is the point


SITES = [("entity_types", {"order"}), ("keys", {"1"}), ("key_globs", {"1*"})]


@pytest.mark.parametrize(("field", "values"), SITES)
def test_an_area_without_entities_takes_no_site(field, values):
    """E11: the parameter, the value and what would be right are named."""
    with pytest.raises(InvalidCriteria) as caught:
        Criterion(areas={Area.INFRASTRUCTURE}, **{field: values})
    assert caught.value.path == field
    assert caught.value.value == sorted(values)
    assert field in str(caught.value)
    assert repr(sorted(values)) in str(caught.value)
    assert "INFRASTRUCTURE" in str(caught.value)


@pytest.mark.parametrize(("field", "values"), SITES)
def test_transaction_events_take_no_site(field, values):
    """E11."""
    with pytest.raises(InvalidCriteria, match="TRANSACTION") as caught:
        Criterion(operations={Operation.TRANSACTION}, **{field: values})
    assert caught.value.path == field


@pytest.mark.parametrize("areas", [{Area.DATA}, {Area.SCHEMA}, {Area.DATA, Area.SCHEMA, Area.ENGINE}])
def test_transaction_events_are_of_no_other_area(areas):
    """E11."""
    with pytest.raises(InvalidCriteria, match="INFRASTRUCTURE") as caught:
        Criterion(operations={Operation.TRANSACTION}, areas=areas)
    assert caught.value.path == "areas"


def test_pairs_that_fit_are_taken():
    """E11."""
    for area, (field, values) in itertools.product([Area.DATA, Area.SCHEMA], SITES):
        assert getattr(Criterion(areas={area}, **{field: values}), field) == frozenset(values)
    assert Criterion(areas={Area.INFRASTRUCTURE}, operations={Operation.TRANSACTION})
    assert Criterion(areas={Area.DATA, Area.INFRASTRUCTURE}, entity_types={"order"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("areas", {"NOWHERE"}),
        ("areas", {1.5}),
        ("areas", "DATA"),
        ("operations", {"upsert"}),
        ("operations", [None]),
        ("entity_types", "order"),
        ("entity_types", [1]),
        ("keys", 7),
        ("keys", b"a"),
        ("keys", [["a"]]),
        ("keys", ["\ud800"]),
        ("key_globs", ["\ud800*"]),
        ("key_globs", ["*" * 1025]),
        ("keys", [str(n) for n in range(10_001)]),
    ],
)
def test_a_value_that_the_field_does_not_take_is_refused_by_name(field, value):
    """E11."""
    with pytest.raises(InvalidCriteria) as caught:
        Criterion(**{field: value})
    assert caught.value.path == field
    assert str(caught.value).startswith(field)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("wishes", "path"),
    [
        ({}, "criteria"),
        ("all", "criteria"),
        ([1], "criteria[0]"),
        ([{}, {"colour": []}], "criteria[1].colour"),
        ([{"keys": "a"}], "criteria[0].keys"),
        ([{"areas": ["DATA"]}, {"areas": ["X"]}], "criteria[1].areas"),
        ([{"areas": ["INFRASTRUCTURE"], "keys": ["a"]}], "criteria[0].keys"),
    ],
)
def test_a_malformed_wish_from_the_wire_is_refused_with_its_place(wishes, path):
    with pytest.raises(InvalidCriteria) as caught:
        Criteria.from_json(wishes)
    assert caught.value.path == path


@pytest.mark.parametrize("wish", [7, "order", b"x", {"keys": ["a"]}, [Criterion(), 7], [Criteria.of()]])
def test_what_is_no_wish_is_refused(wish):
    with pytest.raises(InvalidCriteria):
        Criteria.of(wish)

"""Wishes: what they take, what they refuse, and when two of them are the same."""

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import InvalidCriteria
from publishers import Area, Criteria, Criterion, Operation
from publishers.criteria.conditions import Transition, Where
from tests.publishers.criteria.plain_filter import criterions


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


SITES = [
    ("entity_types", {"order"}),
    ("keys", {"1"}),
    ("key_globs", {"1*"}),
    ("key_patterns", {"1.*"}),
    ("changed", {"total"}),
]


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


FITTING = {
    "DATA": ["UPSERT", "REMOVE", "TRUNCATE", "EXPIRE", "READ"],
    "SCHEMA": ["UPSERT", "REMOVE"],
    "INFRASTRUCTURE": ["TRANSACTION"],
    "ENGINE": ["UPSERT", "REMOVE"],
    "HOST": ["UPSERT", "REMOVE"],
}


@pytest.mark.parametrize("area", FITTING)
@pytest.mark.parametrize("operation", Operation.__members__)
def test_an_area_takes_its_own_operations_only(area, operation):
    """E11: each wrong pair."""
    if operation in FITTING[area]:
        assert Criterion(areas={area}, operations={operation})
        return
    with pytest.raises(InvalidCriteria) as caught:
        Criterion(areas={area}, operations={operation})
    assert caught.value.path in ("operations", "areas")
    assert area in str(caught.value) or "INFRASTRUCTURE" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "path", "right"),
    [
        ({"areas": {"INFRASTRUCTURE"}, "where": "bytes > 10"}, "where", "INFRASTRUCTURE has none"),
        ({"operations": {"TRANSACTION"}, "where": "bytes > 10"}, "where", "TRANSACTION events have none"),
        ({"transitions": {"ENTERED"}}, "transitions", "no conditions"),
        ({"operations": {"TRUNCATE"}, "key_globs": {"*"}}, "key_globs", "TRUNCATE has none"),
        ({"operations": {"TRUNCATE"}, "changed": {"a"}}, "changed", "TRUNCATE has none"),
        ({"where": "before:n > 1", "transitions": {"LEFT"}}, "where", "both images"),
        ({"where": [f"n > {n}" for n in range(65)]}, "where", "at most 64"),
        ({"where": {"path": "n"}}, "where", "set or list"),
        ({"where": [7]}, "where", "a Where"),
        ({"where": "n"}, "where", "an expression"),
        ({"annotations": [f"n > {n}" for n in range(65)]}, "annotations", "at most 64"),
        ({"annotations": "before:n > 1"}, "annotations", "without an image"),
        ({"annotations": "n"}, "annotations", "an expression"),
        ({"annotations": [7]}, "annotations", "a Where"),
        ({"transitions": {"GONE"}, "where": "n > 1"}, "transitions", "ENTERED, LEFT, STAYED, MAYBE_LEFT"),
        ({"key_patterns": {"(a"}}, "key_patterns", "closing parenthesis"),
        ({"key_patterns": {f"a{n}" for n in range(101)}}, "key_patterns", "at most 100"),
        ({"key_patterns": {"a" * 1025}}, "key_patterns", "1024"),
        ({"changed": [1]}, "changed", "text"),
        ({"areas": {"SCHEMA", "ENGINE"}, "operations": {"UPSERT", "READ"}}, "operations", "REMOVE, UPSERT"),
    ],
)
def test_fields_that_contradict_each_other_are_refused_by_name(fields, path, right):
    """E11, F55, F58: the parameter, the value and what would be right are named."""
    with pytest.raises(InvalidCriteria, match=right) as caught:
        Criterion(**fields)
    assert caught.value.path == path


def test_conditions_in_any_spelling_are_one_wish():
    """F57, F58."""
    one = Criterion(where=Where("total", ">", 10), transitions=["ENTERED"])
    assert one == Criterion(where="total > 10.0", transitions={Transition.ENTERED})
    assert one == Criterion(where=[Where(["total"], "GT", 10)], transitions=("ENTERED", "ENTERED"))
    assert len({one, Criterion(where={"total>10"}, transitions={"ENTERED"})}) == 1


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ({"keys": {"a"}}, {"keys": {"a", "b"}}),
        ({"keys": {"a"}, "entity_types": {"order"}}, {"keys": {"a"}}),
        ({"where": ["a > 1", "b > 1"]}, {"where": ["a > 1"]}),
        ({"where": "a > 1", "transitions": {"LEFT"}}, {"where": "a > 1", "transitions": {"LEFT", "ENTERED"}}),
        ({"where": "a > 1", "keys": {"a"}}, {"keys": {"a"}}),
        ({"annotations": ["a > 1", "b > 1"]}, {"annotations": "b > 1"}),
        ({"annotations": "a > 1", "keys": {"a"}}, {"keys": {"a"}}),
    ],
)
def test_a_wish_that_another_implies_is_left_out(narrow, wide):
    """F57: so that more spellings share one publisher."""
    assert Criteria.of(Criterion(**narrow), Criterion(**wide)) == Criteria.of(Criterion(**wide))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"where": "a > 1", "transitions": {"LEFT"}}, {"where": "a > 1"}),
        ({"where": ["a > 1", "b > 1"], "transitions": {"LEFT"}}, {"where": "a > 1", "transitions": {"LEFT"}}),
        ({"keys": {"a"}}, {"entity_types": {"order"}}),
        ({"annotations": "a > 1"}, {"annotations": "b > 1"}),
        ({"keys": {"a"}}, {"annotations": "b > 1"}),
    ],
)
def test_wishes_that_do_not_imply_each_other_are_kept(one, other):
    """F57."""
    assert len(Criteria.of(Criterion(**one), Criterion(**other)).criterions) == 2


def test_criteria_without_any_wish_mean_nothing_and_stay_so():
    """E14: only nothing said at all means everything."""
    nothing = Criteria(frozenset())
    assert not nothing.unconditional
    assert Criteria.of(nothing) == nothing
    assert Criteria.of(nothing, Criterion(keys={"a"})) == Criteria.of(Criterion(keys={"a"}))
    assert Criteria.of() != nothing


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
        ([{"where": "total > 10"}], "criteria[0].where"),
        ([{"where": [7]}], "criteria[0].where[0]"),
        ([{"annotations": [{"path": "a"}]}], "criteria[0].annotations[0].compare"),
        ([{}, {"where": [{"path": "a", "compare": "EQ", "value": [1]}]}], "criteria[1].where[0].value"),
        ([{"where": [{"path": "a", "compare": "EXISTS"}], "transitions": ["IN"]}], "criteria[0].transitions"),
        ([{"key_patterns": ["("]}], "criteria[0].key_patterns"),
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

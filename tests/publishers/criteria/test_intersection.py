"""Criteria of which both must hold: exactly the changes that fulfil the one and the other, however they are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers import Area, Criteria, Criterion, Operation
from publishers.criteria import intersection
from publishers.criteria.cost import weigh
from publishers.criteria.index import MatchingIndex, prepare
from publishers.criteria.intersection import both
from publishers.criteria.predicate import Predicate
from publishers.errors import InvalidCriteria
from tests.harness.constants import set_constant
from tests.publishers.criteria.plain_filter import block, criterions, plain, rows_of, told_of

several = st.lists(criterions, max_size=3)


def matched(criteria, one, direct):
    index = MatchingIndex()
    index.enter(prepare(Predicate(criteria), direct=direct), criteria)
    return [index for _, indices in index.match(one) for index in indices]


@given(
    rows_of,
    several,
    several,
    several,
    st.booleans(),
    st.sampled_from([256, 0]),
    st.sampled_from([256, 1]),
    told_of,
)
def test_both_hold_where_each_of_them_does(rows, mine, theirs, third, leads, direct, pairs, told):
    """F140: by the predicate and by the index, of two and of three, also where there are too many pairs to meet."""
    one, two, three = map(Criteria.of, (mine, theirs, third))
    expected = [
        index
        for index in plain(one, rows, leads=leads, told=told)
        if index in plain(two, rows, leads=leads, told=told)
    ]
    with pytest.MonkeyPatch.context() as patch:
        set_constant(patch, intersection, "_PAIRS", pairs)
        found = both(one, two)
        more = both(found, three), both(three, found)
    assert list(Predicate(found).select(block(rows, leads=leads, told=told))) == expected
    assert plain(found, rows, leads=leads, told=told) == expected
    assert matched(found, block(rows, leads=leads, told=told), direct) == expected
    expected = [index for index in expected if index in plain(three, rows, leads=leads, told=told)]
    for narrowed in more:
        assert list(Predicate(narrowed).select(block(rows, leads=leads, told=told))) == expected
        assert matched(narrowed, block(rows, leads=leads, told=told), direct) == expected
    assert weigh(found).weight >= 0


@pytest.mark.parametrize(
    ("wanted", "widest", "comes_to"),
    [
        ({}, {"keys": ["a"]}, [{"keys": ["a"]}]),
        ({"keys": ["a"]}, {}, [{"keys": ["a"]}]),
        ({"keys": ["a", "b"]}, {"keys": ["b", "c"]}, [{"keys": ["b"]}]),
        ({"keys": ["a"]}, {"keys": ["c"]}, []),
        ({"areas": ["DATA"]}, {"areas": ["SCHEMA"]}, []),
        (
            {"areas": ["SCHEMA"]},
            {"operations": ["UPSERT", "TRUNCATE"]},
            [{"areas": ["SCHEMA"], "operations": ["UPSERT"]}],
        ),
        ({"areas": ["SCHEMA"]}, {"operations": ["TRUNCATE"]}, []),
        ({"areas": ["INFRASTRUCTURE"]}, {"entity_types": ["order"]}, []),
        ({"operations": ["TRANSACTION"]}, {"keys": ["a"]}, []),
        ({"key_globs": ["a*"]}, {"key_globs": ["a*", "b*"]}, [{"key_globs": ["a*"]}]),
        ({"key_globs": ["a*", "b*"]}, {"key_globs": ["a*"]}, [{"key_globs": ["a*"]}]),
        (
            {"key_globs": ["a*"]},
            {"key_globs": ["*z"], "entity_types": ["order"]},
            [
                {
                    "key_globs": ["a*"],
                    "entity_types": ["order"],
                    "also": [{"key_globs": ["*z"], "entity_types": ["order"]}],
                }
            ],
        ),
        ({"where": ["a == 1"]}, {"where": ["b == 2"]}, [{"where": ["a == 1", "b == 2"]}]),
        (
            {"annotations": ["a == 1"]},
            {"annotations": ["b == 2"], "keys": ["k"]},
            [{"annotations": ["a == 1", "b == 2"], "keys": ["k"]}],
        ),
        (
            {"where": ["a == 1"], "transitions": ["ENTERED"]},
            {"where": ["a == 1"], "transitions": ["ENTERED"]},
            [{"where": ["a == 1"], "transitions": ["ENTERED"]}],
        ),
        (
            {"where": ["a == 1"], "transitions": ["ENTERED"]},
            {"where": ["b == 2"]},
            [{"where": ["a == 1"], "transitions": ["ENTERED"], "also": [{"where": ["b == 2"]}]}],
        ),
    ],
)
def test_what_one_wish_can_tell_is_one_wish(wanted, widest, comes_to):
    """F140: so the matching index looks it up; equal results in whatever way share one publisher."""

    def wish(told):
        return Criterion(**{**told, "also": [wish(one) for one in told.get("also", ())]})

    found = both(Criteria.of(wish(wanted)), Criteria.of(wish(widest)))
    assert found.criterions == {wish(one) for one in comes_to}
    if comes_to:
        assert found == Criteria.of([wish(one) for one in comes_to])


def test_what_no_change_can_fulfil_stays_nothing():
    """F140: an empty set of wishes must not come to mean everything."""
    nothing = both(Criteria.of(Criterion(keys=["a"])), Criteria.of(Criterion(keys=["b"])))
    assert nothing == Criteria(frozenset())
    assert Criteria.of(nothing) == nothing
    mixed = Criteria.of(Criterion(key_globs=["*a"], also=[Criterion(keys=["a"])]))
    assert both(mixed, Criteria.of(Criterion(keys=["b"], key_globs=["z*"]))) == nothing


def test_conditions_beyond_those_of_one_wish_are_asked_afterwards():
    """F140."""
    many = Criteria.of(Criterion(where=[f"a{number} == 1" for number in range(64)]))
    (found,) = both(many, Criteria.of(Criterion(where=["b == 2"]))).criterions
    assert (len(found.where), found.also) == (64, {Criterion(where=["b == 2"])})


def test_what_a_client_and_a_grant_come_to_is_bounded():
    """F140: a wish for keys costs nothing but itself; wishes for entity types are met with each other."""
    many = Criteria.of(Criterion(annotations=[f"a{number} == 1" for number in range(64)]))
    with pytest.raises(InvalidCriteria, match="annotations is '65 conditions', but must be at most 64"):
        both(many, Criteria.of(Criterion(annotations="b == 2")))
    theirs = Criteria.of([Criterion(entity_types=[f"t{n}"]) for n in range(40)])
    keys = Criteria.of([Criterion(keys=[f"k{n}"]) for n in range(100)])
    assert len(both(keys, theirs).criterions) == 100
    assert len(both(theirs, keys).criterions) == 100
    with pytest.raises(InvalidCriteria, match="fewer criterions"):
        both(Criteria.of([Criterion(entity_types=[f"t{n}"]) for n in range(70)]), theirs)


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"keys": ["a"], "also": ["x"]}, "a set of Criterion"),
        ({"keys": ["a"], "also": 1}, "a set or list"),
        ({"areas": [Area.DATA], "also": [Criterion()]}, "left out where a criterion asks for no keys"),
        ({"operations": [Operation.UPSERT], "also": [Criterion()]}, "left out where a criterion"),
    ],
)
def test_further_wishes_are_checked(given_, says):
    """F140."""
    with pytest.raises(InvalidCriteria, match=says):
        Criterion(**given_)


def test_further_wishes_do_not_travel():
    """F140: what a client asks afterwards is nobody's to send."""
    told = Criterion(keys=["a"], also=[Criterion(key_globs=["*"])]).to_json()
    assert told == {"keys": ["a"], "also": [{"key_globs": ["*"]}]}
    with pytest.raises(InvalidCriteria, match="also"):
        Criterion.from_json(told)

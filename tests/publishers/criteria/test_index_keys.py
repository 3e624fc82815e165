"""Where wishes stand in the index, and what is left to ask of a change that leads there."""

import pytest

from publishers import Criterion
from publishers.criteria.index_keys import Slot, places_of, rest_of
from publishers.criteria.predicate import Wish


@pytest.mark.parametrize(
    ("fields", "slots", "asks"),
    [
        ({}, [Slot.EVERY], False),
        ({"operations": {"UPSERT"}}, [Slot.EVERY], False),
        ({"entity_types": {"a", "b"}}, [Slot.EVERY] * 2, False),
        ({"keys": {"1", "2"}}, [Slot.KEYS] * 2, False),
        ({"keys": {"1"}, "key_globs": {"*"}}, [Slot.KEYS], True),
        ({"keys": {"1"}, "changed": {"a"}}, [Slot.KEYS], True),
        ({"key_globs": {"a*"}}, [Slot.HEADS], False),
        ({"key_globs": {"a*b", "a*"}}, [Slot.HEADS], True),
        ({"key_globs": {"*ab*"}}, [Slot.GRAMS], True),
        ({"key_globs": {"??"}}, [Slot.SCANS], False),
        ({"key_patterns": {"ab.*"}}, [Slot.HEADS], True),
        ({"key_patterns": {".*ab"}}, [Slot.SCANS], False),
        ({"key_globs": {"a*"}, "key_patterns": {".*ab"}}, [Slot.HEADS], True),
        ({"changed": {"a", "b"}}, [Slot.NAMES] * 2, False),
        ({"changed": {"a"}, "where": "n == 1"}, [Slot.NAMES], True),
        ({"where": "n == 1"}, [Slot.VALUES], False),
        ({"where": ["n in [1,2]"]}, [Slot.VALUES] * 2, False),
        ({"where": ["n == 1", "m > 1"]}, [Slot.VALUES], True),
        ({"where": "n == 1", "transitions": {"ENTERED"}}, [Slot.VALUES], True),
        ({"where": "n == 1", "transitions": {"LEFT"}}, [Slot.VALUES], True),
        ({"where": "n == 1", "transitions": {"LEFT", "ENTERED"}}, [Slot.TESTS], False),
        ({"where": "n > 1"}, [Slot.TESTS], False),
    ],
)
def test_a_wish_stands_where_the_cheapest_question_leads(fields, slots, asks):
    """E18."""
    wish = Wish(Criterion(**fields))
    places = list(places_of(wish))
    assert [place.slot for place in places] == slots
    rest, questions = rest_of(wish, places)
    assert (rest is not None, questions > 0) == (asks, asks)
    assert list(places_of(wish)) == places or slots[0] in (Slot.SCANS, Slot.TESTS)

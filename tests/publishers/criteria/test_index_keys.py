"""Where wishes stand in the index, and what is left to ask of a change that leads there."""

import pytest

from publishers import Criterion
from publishers.criteria.index_keys import Question, places_of, rest_of
from publishers.criteria.predicate import CompiledCriterion


@pytest.mark.parametrize(
    ("fields", "questions", "asks"),
    [
        ({}, [Question.EVERY], False),
        ({"operations": {"UPSERT"}}, [Question.EVERY], False),
        ({"entity_types": {"a", "b"}}, [Question.EVERY] * 2, False),
        ({"keys": {"1", "2"}}, [Question.KEYS] * 2, False),
        ({"keys": {"1"}, "key_globs": {"*"}}, [Question.KEYS], True),
        ({"keys": {"1"}, "changed": {"a"}}, [Question.KEYS], True),
        ({"key_globs": {"a*"}}, [Question.HEADS], False),
        ({"key_globs": {"a*b", "a*"}}, [Question.HEADS], True),
        ({"key_globs": {"*ab*"}}, [Question.GRAMS], True),
        ({"key_globs": {"??"}}, [Question.SCANS], False),
        ({"key_patterns": {"ab.*"}}, [Question.HEADS], True),
        ({"key_patterns": {".*ab"}}, [Question.SCANS], False),
        ({"key_globs": {"a*"}, "key_patterns": {".*ab"}}, [Question.HEADS], True),
        ({"changed": {"a", "b"}}, [Question.NAMES] * 2, False),
        ({"changed": {"a"}, "where": "n == 1"}, [Question.NAMES], True),
        ({"where": "n == 1"}, [Question.VALUES], False),
        ({"where": ["n in [1,2]"]}, [Question.VALUES] * 2, False),
        ({"where": ["n == 1", "m > 1"]}, [Question.VALUES], True),
        ({"where": "n == 1", "transitions": {"ENTERED"}}, [Question.VALUES], True),
        ({"where": "n == 1", "transitions": {"LEFT"}}, [Question.VALUES], True),
        ({"where": "n == 1", "transitions": {"LEFT", "ENTERED"}}, [Question.TESTS], False),
        ({"where": "n == 1", "transitions": {"LEFT", "STAYED"}}, [Question.VALUES], True),
        ({"where": "n == 1", "transitions": {"LEFT", "MAYBE_LEFT"}}, [Question.TESTS], False),
        ({"where": "n > 1"}, [Question.TESTS], False),
        ({"annotations": "n > 1"}, [Question.GATES], False),
        ({"annotations": "n > 1", "entity_types": {"a", "b"}}, [Question.GATES] * 2, False),
        ({"annotations": "n > 1", "keys": {"1"}}, [Question.KEYS], True),
        ({"annotations": "n > 1", "where": "n > 1"}, [Question.TESTS], False),
    ],
)
def test_a_wish_stands_where_the_cheapest_question_leads(fields, questions, asks):
    """E18."""
    wish = CompiledCriterion(Criterion(**fields))
    places = list(places_of(wish))
    assert [place.question for place in places] == questions
    rest, asked = rest_of(wish, places)
    assert (rest is not None, asked > 0) == (asks, asks)
    assert list(places_of(wish)) == places or questions[0] in (Question.SCANS, Question.GATES, Question.TESTS)

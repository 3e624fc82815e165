"""What criteria weigh, before anything of them is compiled."""

import pytest
from hypothesis import given

from publishers import Criteria, Criterion
from publishers.criteria import patterns as patterns_module
from publishers.criteria.cost import weigh, weigh_json
from publishers.criteria.index import prepare
from publishers.criteria.predicate import Predicate
from tests.publishers.criteria.plain_filter import criterions


def weight(**fields):
    return weigh(Criteria.of(Criterion(**fields))).weight


def test_a_wish_for_everything_weighs_next_to_nothing():
    """F147."""
    assert weigh(Criteria.of()).weight == 25
    assert weigh_json([], 99).weight == 0
    assert weigh_json(None, 99).weight == 0


@pytest.mark.parametrize(
    ("fields", "dearest"),
    [
        ({"keys": {str(n) for n in range(1_000)}}, "keys"),
        ({"keys": {"k" * 100_000}}, "keys"),
        ({"keys": {"a", "b"}, "entity_types": {str(n) for n in range(1_000)}}, "entity_types"),
        ({"key_globs": {"*" + "?*" * 500}}, "key_globs"),
        ({"key_globs": {f"a{n}*b*c" for n in range(500)}}, "key_globs"),
        ({"key_patterns": {".*a.{100}"}}, "key_patterns"),
        ({"key_patterns": {"order-(a|b){100}"}}, "key_patterns"),
        ({"changed": {f"field{n}" for n in range(600)}}, "changed"),
        ({"where": {f"f{n} > 1" for n in range(64)}, "keys": {"a"}}, "where"),
        ({"annotations": {f"f{n} > 1" for n in range(64)}}, "annotations"),
        ({"where": "f in [" + ",".join(map(str, range(900))) + "]"}, "where"),
    ],
)
def test_what_costs_weighs_and_the_dearest_field_is_named(fields, dearest):
    """F147."""
    cost = weigh(Criteria.of(Criterion(**fields)))
    assert cost.weight > 500
    assert cost.dearest == dearest
    assert cost.cheaper


def test_places_of_a_pattern_weigh_with_their_repetitions_written_out_and_its_literal_head_hardly():
    """F147."""
    assert weight(key_patterns={"order-[0-9]+"}) < 80
    assert weight(key_patterns={"order-[0-9]{50}"}) > 1_500
    assert weight(key_patterns={"([a-z]{10}){20}"}) > 6_000
    assert weight(key_patterns={"a" * 200}) < 250


@given(criterions)
def test_nothing_is_entered_that_was_not_weighed(criterion):
    """F147: the weight is never below the places that the index gets."""
    criteria = Criteria.of(criterion)
    assert prepare(Predicate(criteria)).size <= weigh(criteria).weight


def test_to_weigh_compiles_nothing(monkeypatch):
    """F147: neither automata, nor questions."""
    monkeypatch.setattr(patterns_module, "_Automaton", None)
    wish = {
        "key_patterns": ["weighed.*a{99}"],
        "key_globs": ["*?*"],
        "where": [{"path": "a", "compare": "GT", "value": 1}],
    }
    assert weigh_json([wish], 10**6).weight < weigh(Criteria.from_json([wish])).weight


@pytest.mark.parametrize(
    "wishes",
    [
        None,
        7,
        "text",
        [None, 7, "x"],
        [{"keys": 7}],
        [{"keys": [None, {}, []]}],
        [{"where": [{"value": [1]}]}],
    ],
)
def test_what_is_malformed_is_weighed_without_an_error(wishes):
    """F147: it is refused by name when it is read."""
    assert weigh_json(wishes, 99).weight < 100


def test_the_lengths_of_a_message_are_what_is_weighed_first():
    """F147: of keys by their number, of patterns by their characters, of lists in conditions by their values."""
    assert weigh_json([{"keys": ["a"] * 70_000}], 10**6).weight > 70_000
    assert weigh_json([{"key_patterns": ["a" * 900] * 100}], 10**6).weight > 90_000
    assert (
        weigh_json([{"where": [{"path": "a", "compare": "IN", "value": [1] * 9_000}] * 8}], 10**6).weight
        > 72_000
    )
    assert weigh_json([{}] * 20_000, 10**6).weight == 480_000


@pytest.mark.parametrize("field", ["keys", "key_patterns", "where"])
def test_of_a_large_message_no_more_is_counted_than_shows_that_it_is_large(field):
    """F147: to count a megabyte value by value would hold the loop up by itself."""
    seen = []

    class Long(list):
        def __iter__(self):
            seen.append(len(self))
            return super().__iter__()

    small, large = [{field: Long(["a"] * 400)} for _ in range(100)], {field: Long(["a"] * 200_000)}
    assert weigh_json([*small, large], 5_000).weight > 5_000
    assert sum(seen) <= 5_000
    assert weigh_json([large, *small], 5_000).weight > 5_000
    assert sum(seen) <= 5_000

"""Regular expressions over keys: the same language as Python's, without its explosions."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers import Criteria, Criterion
from publishers.criteria import patterns as patterns_module
from publishers.criteria.index import MatchingIndex
from publishers.criteria.patterns import Pattern, PatternError
from publishers.criteria.predicate import Predicate

ATOMS = [
    "a",
    "b",
    "ü",
    ".",
    "[ab]",
    "[^a]",
    "[a-c-]",
    r"\d",
    r"\W",
    r"\.",
    r"[\d_]",
    "1",
    "",
    r"\n",
    "[]a]",
    "-",
]


def _compound(inner):
    return st.one_of(
        st.builds("({})".format, inner),
        st.builds("(?:{})".format, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds("{}{}".format, inner, inner),
        st.builds(
            "(?:{}){}".format,
            inner,
            st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "{,2}", "*?", "{0}"]),
        ),
    )


patterns = st.recursive(st.sampled_from(ATOMS), _compound, max_leaves=8)
keys = st.text("abcü1_.-\n", max_size=8) | st.binary(max_size=6).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)


@given(patterns, keys)
def test_it_matches_what_a_backtracking_engine_matches(pattern, key):
    """F55: also keys that are not UTF-8, of which a byte that is none counts as a character."""
    wanted = re.fullmatch(pattern, key, re.DOTALL | re.ASCII) is not None
    one = Pattern(pattern)
    assert one.matches(key.encode("utf-8", "surrogateescape")) is wanted
    if wanted:
        assert key.encode("utf-8", "surrogateescape").startswith(one.head)


@pytest.mark.parametrize(
    ("pattern", "head"),
    [
        ("order-[0-9]+", b"order-"),
        ("a*b", b""),
        ("(ab)c", b""),
        ("ab|cd", b""),
        (r"a\.b.*", b"a.b"),
        ("ü", "ü".encode()),
    ],
)
def test_the_literal_head_is_what_an_index_looks_up(pattern, head):
    """F55, E18."""
    assert Pattern(pattern).head == head


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("(a+)+b", "a" * 20_000),
        ("(a*)*(a*)*b", "a" * 20_000),
        ("(a|a)*b", "a" * 20_000),
        ("(a?){100}a{100}", "a" * 99),
        ("(.*a){20}b", "a" * 20_000),
        ("([a-z]|[a-y])*!", "abcdefghij" * 2_000),
        (".*a.{100}", "a" * 2_000 + "b"),
    ],
)
def test_hostile_patterns_end_soon(pattern, key):
    """F55: a step a character, where a backtracking engine needs more than the age of the universe."""
    one = Pattern(pattern)
    expected = pattern == ".*a.{100}"
    assert one.matches(key.encode()) is expected


@pytest.mark.parametrize(
    ("pattern", "right"),
    [
        ("(", "closing parenthesis"),
        ("a)", "opening parenthesis"),
        ("[a", r"closing \]"),
        ("*a", "something to repeat"),
        ("a**", "through a group"),
        ("a{2", "backslash before {"),
        ("a{3,2}", "backslash before {"),
        ("a{}", "backslash before {"),
        ("[b-a]", "lower character to a higher"),
        (r"[\d-z]", "lower character to a higher"),
        (r"(a)\1", "backslash before a sign"),
        (r"\bword\b", "backslash before a sign"),
        ("a\\", "backslash before a sign"),
        ("(?=a)", "nothing else that begins"),
        ("(?i)a", "nothing else that begins"),
        ("^a", "whole key must match"),
        ("a$", "whole key must match"),
        ("a{257}", "at most 256"),
        ("(a{99}){99}", "at most 256"),
        ("(" * 31 + ")" * 31, "30 groups"),
    ],
)
def test_what_is_malformed_or_not_regular_is_refused(pattern, right):
    """F55."""
    with pytest.raises(PatternError, match=right):
        Pattern(pattern)


def test_repetitions_of_nothing_cost_nothing():
    """F55: nested repetitions that hold no character, which written out would be a hundred million."""
    assert Pattern("((((){99}){99}){99}){99}x").matches(b"x")


def test_what_needs_too_many_places_is_refused_before_anything_is_written_out(monkeypatch):
    """F147: places are counted in the parsed pattern; the automaton of what is refused is never begun."""
    begun = []
    monkeypatch.setattr(patterns_module, "_Automaton", begun.append)
    for pattern in ("((a{999}){999}){999}", "(a|b){129}", "(a?){257}", "a{257,}", "(" + "a" * 250 + ")+b{7}"):
        with pytest.raises(PatternError, match="at most 256"):
            Pattern(pattern)
    assert (Pattern("(a{16}){16}").places, Pattern("(ab|c)*d{2,3}").places, Pattern("(){999}").places) == (
        256,
        6,
        0,
    )
    assert not begun


def test_a_pattern_is_parsed_and_made_into_an_automaton_once_for_all_who_ask(monkeypatch):
    """F147: by criteria, predicate and index, in any number of wishes."""
    parsed, made = [], []
    parser, automaton = patterns_module._Parser, patterns_module._Automaton
    monkeypatch.setattr(patterns_module, "_Parser", lambda text: parsed.append(text) or parser(text))
    monkeypatch.setattr(patterns_module, "_Automaton", lambda tree: made.append(tree) or automaton(tree))
    index = MatchingIndex()
    for number in range(3):
        wish = Criterion(key_patterns={"once[0-9]+a{200}", "[x]once"}, entity_types={str(number)})
        index.add(Predicate(Criteria.of(wish)), number)
        index.remove(Criteria.of(wish))
    assert sorted(parsed) == ["[x]once", "once[0-9]+a{200}"]
    assert len(made) == 2


def test_the_patterns_that_are_kept_have_a_bound():
    """F147."""
    for number in range(400):
        Pattern.of(f"bounded-{number}")
    assert Pattern.of.cache_info().currsize <= Pattern.of.cache_info().maxsize == 256


def test_what_an_automaton_remembers_has_a_bound_and_a_step_costs_few_unions(monkeypatch):
    """F147: a key that leads to ever new sets of places, through a pattern whose sets are many."""
    pattern = Pattern(".*a.{250}")
    pattern.prepare()
    automaton = pattern._automaton
    steps = []
    after = automaton._after
    monkeypatch.setattr(type(automaton), "_after", lambda _, places: steps.append(1) or after(places))
    chance = Random(7)
    for _ in range(20):
        pattern.matches("".join(chance.choice("ab") for _ in range(1_024)).encode())
    assert 0 < len(steps) <= 20 * 1_024
    assert len(automaton._followers) <= 512
    assert [len(union) for union in automaton._unions] == [16] * 63 + [2]

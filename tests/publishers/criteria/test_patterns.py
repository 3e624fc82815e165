"""Regular expressions over keys: the same language as Python's, without its explosions."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers.criteria.patterns import Pattern, PatternError

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

"""Which changes match: truth tables, hostile globs, and the index against a plain filter."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers import Area, Criteria, Criterion, Operation
from publishers.block import Block
from publishers.globs import glob_matcher
from publishers.matching import Predicate
from publishers.matching_index import MatchingIndex
from publishers.mutation import Mutation, columns_of

TYPES = ["order", "item", "person"]
KEYS = ["", "a", "b", "ab", "ba", "aab", "ü", "\udc80"]
GLOBS = ["*", "a*", "*b", "a*b", "?", "a?b", "*a*", "??", "", "ü*"]


def block(rows, *, leads=True, first_index=1):
    mutations = [
        Mutation(int(operation), kind, key.encode("utf-8", "surrogateescape"), area=int(area))
        for area, operation, kind, key in rows
    ]
    return Block(
        columns_of(mutations),
        version=1,
        first_index=first_index,
        leads=leads,
        ends=True,
        transaction_count=first_index + len(rows),
        transaction_bytes=1,
        committed_at=0,
    )


rows_of = st.lists(
    st.tuples(
        st.sampled_from([Area.DATA, Area.SCHEMA]),
        st.sampled_from([Operation.UPSERT, Operation.REMOVE, Operation.TRUNCATE]),
        st.sampled_from(TYPES),
        st.sampled_from(KEYS),
    ),
    max_size=12,
)
criterions = st.builds(
    Criterion,
    areas=st.sets(st.sampled_from([Area.DATA, Area.SCHEMA]), max_size=2),
    entity_types=st.sets(st.sampled_from([*TYPES, "other"]), max_size=2),
    keys=st.sets(st.sampled_from(KEYS), max_size=2),
    key_globs=st.sets(st.sampled_from(GLOBS), max_size=2),
    operations=st.sets(st.sampled_from([Operation.UPSERT, Operation.REMOVE]), max_size=2),
) | st.just(Criterion(areas={Area.INFRASTRUCTURE}))


def plain_glob(glob, key):
    pattern = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in glob)
    raw = pattern.encode("utf-8", "surrogateescape")
    return re.fullmatch(raw, key.encode("utf-8", "surrogateescape"), re.DOTALL) is not None


def fulfils(criterion, row):
    area, operation, kind, key = row
    return (
        (not criterion.areas or area in criterion.areas)
        and (not criterion.operations or operation in criterion.operations)
        and (not criterion.entity_types or kind in criterion.entity_types)
        and (not criterion.keys or key in criterion.keys)
        and (not criterion.key_globs or any(plain_glob(glob, key) for glob in criterion.key_globs))
    )


def plain(criteria, rows, *, leads=True, first_index=1):
    """What a filter without any cleverness finds."""
    found = []
    if leads and any(
        not (c.entity_types or c.keys or c.key_globs)
        and (not c.areas or Area.INFRASTRUCTURE in c.areas)
        and (not c.operations or Operation.TRANSACTION in c.operations)
        for c in criteria.criterions
    ):
        found.append(0)
    return found + [
        first_index + place
        for place, row in enumerate(rows)
        if any(fulfils(criterion, row) for criterion in criteria.criterions)
    ]


@given(rows_of, st.lists(criterions, max_size=4), st.booleans())
def test_a_predicate_selects_what_a_plain_filter_selects(rows, wishes, leads):
    """F53, F54, F56, E10: every field alone and combined, against a plain filter."""
    criteria = Criteria.of(wishes)
    first = 1 if leads else 5
    found = Predicate(criteria).select(block(rows, leads=leads, first_index=first))
    assert list(found) == plain(criteria, rows, leads=leads, first_index=first)


@given(rows_of, st.lists(st.lists(criterions, max_size=3), max_size=8))
def test_the_index_finds_what_every_predicate_alone_would_find(rows, all_wishes):
    """E18: it asks no more predicates than there are, and each at most once."""
    entries = {Criteria.of(wishes) for wishes in all_wishes}
    index = MatchingIndex((Predicate(criteria), criteria) for criteria in entries)
    one = block(rows)
    matches = list(index.match(one))
    found = {criteria: list(indices) for criteria, indices in matches}
    assert len(matches) == len(found)
    expected = {criteria: plain(criteria, rows) for criteria in entries}
    assert found == {criteria: indices for criteria, indices in expected.items() if indices}
    assert index.evaluations <= len(entries)
    assert bool(index) == bool(entries)


ROW = (Area.DATA, Operation.UPSERT, "order", "42")


@pytest.mark.parametrize(
    ("wishes", "matches"),
    [
        # An empty field holds for every change.
        ([{}], True),
        # OR between the values of a field.
        ([{"entity_types": {"order", "item"}}], True),
        ([{"entity_types": {"person", "item"}}], False),
        ([{"operations": {"UPSERT", "REMOVE"}}], True),
        ([{"areas": {"SCHEMA", "DATA"}}], True),
        ([{"keys": {"41", "42"}}], True),
        ([{"key_globs": {"x*", "4?"}}], True),
        # AND between the fields of one.
        ([{"entity_types": {"order"}, "operations": {"UPSERT"}}], True),
        ([{"entity_types": {"order"}, "operations": {"REMOVE"}}], False),
        ([{"entity_types": {"item"}, "operations": {"UPSERT"}}], False),
        ([{"keys": {"42"}, "key_globs": {"4*"}}], True),
        ([{"keys": {"42"}, "key_globs": {"5*"}}], False),
        ([{"areas": {"SCHEMA"}, "keys": {"42"}}], False),
        # OR between criteria.
        ([{"entity_types": {"item"}}, {"operations": {"UPSERT"}}], True),
        ([{"entity_types": {"item"}}, {"operations": {"REMOVE"}}], False),
        # Names are compared whole.
        ([{"entity_types": {"orde"}}], False),
        ([{"entity_types": {"orders"}}], False),
    ],
)
def test_truth_table_of_criteria(wishes, matches):
    """E10, F53."""
    criteria = Criteria.of([Criterion(**wish) for wish in wishes])
    assert (1 in Predicate(criteria).select(block([ROW]))) is matches


@pytest.mark.parametrize(
    ("wishes", "leads"),
    [
        ([{}], True),
        ([{"areas": {"INFRASTRUCTURE"}}], True),
        ([{"operations": {"TRANSACTION"}}], True),
        ([{"areas": {"DATA"}}], False),
        ([{"operations": {"UPSERT"}}], False),
        ([{"entity_types": {"order"}}], False),
        ([{"keys": {"42"}}], False),
        ([{"key_globs": {"*"}}], False),
        ([{"entity_types": {"order"}}, {"areas": {"INFRASTRUCTURE"}}], True),
    ],
)
def test_transaction_events_are_left_out_by_whoever_names_entities(wishes, leads):
    """F15: boundaries can be asked for or left out."""
    criteria = Criteria.of([Criterion(**wish) for wish in wishes])
    assert (0 in Predicate(criteria).select(block([ROW]))) is leads


def test_a_selection_is_found_once_per_block():
    """F57."""
    one = block([ROW] * 3)
    criteria = Criteria.of(Criterion(keys={"42"}))
    assert Predicate(criteria).select(one) is Predicate(Criteria.of(Criterion(keys=["42"]))).select(one)


@given(st.text("ab*?", max_size=10), st.text("ab", max_size=10))
def test_a_glob_matches_what_the_equal_regular_expression_matches(glob, key):
    """F56."""
    assert glob_matcher(glob)(key.encode()) is plain_glob(glob, key)


@given(st.binary(max_size=8))
def test_globs_take_keys_that_are_not_utf_8(key):
    """F56: a question mark is one byte."""
    assert glob_matcher("*")(key)
    assert glob_matcher("?" * len(key))(key)
    assert not glob_matcher("?" * (len(key) + 1))(key)
    text = key.decode("utf-8", "surrogateescape")
    if not set(text) & set("*?"):
        assert glob_matcher(text)(key)
        assert glob_matcher(text + "*")(key + b"\xff\x00")


@pytest.mark.parametrize(
    ("glob", "key"),
    [
        ("*a" * 500, b"a" * 499 + b"b" * 1000),
        ("a*" * 500 + "b", b"a" * 5000),
        ("*" * 1000 + "b", b"a" * 5000),
        ("*?" * 500, b"a" * 499),
        ("?*" * 500 + "b", b"a" * 5000),
    ],
)
def test_hostile_globs_end_soon(glob, key):
    """F56: at worst key times pattern steps, where a naive matcher needs more than the age of the universe."""
    assert not glob_matcher(glob)(key)

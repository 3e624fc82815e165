"""The index finds what every predicate alone would find, and asks nobody else: questions are counted, not timed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import flow
from publishers import Area, Criteria, Criterion
from publishers.criteria import facts as facts_module
from publishers.criteria.conditions import Where
from publishers.criteria.index import MatchingIndex, prepare
from publishers.criteria.patterns import Pattern
from publishers.criteria.predicate import Predicate
from tests.harness.inside import publication_of
from tests.harness.scale import scaled
from tests.publishers.criteria.plain_filter import block, criterions, plain, row, rows_of, told_of
from tests.publishers.support import Probe, opened, order


def indexed(*wishes):
    return MatchingIndex((Predicate(criteria), criteria) for criteria in map(Criteria.of, wishes))


def prepared_each(*wishes, direct):
    """An index in which each predicate with more places than ``direct`` has tables of its own."""
    index = MatchingIndex()
    for criteria in map(Criteria.of, wishes):
        index.enter(prepare(Predicate(criteria), direct=direct), criteria)
    return index


def found(index, one):
    matches = index.match(one)
    told = {criteria: list(indices) for criteria, indices in matches}
    assert len(told) == len(matches)
    return told


@given(rows_of, st.lists(st.lists(criterions, max_size=3), max_size=8), st.booleans(), told_of)
def test_the_index_finds_what_every_predicate_alone_would_find(rows, all_wishes, leads, told):
    """E18, F53, F58: each predicate once, in order, and asked at most once."""
    entries = {Criteria.of(wishes) for wishes in all_wishes}
    index = MatchingIndex((Predicate(criteria), criteria) for criteria in entries)
    first = 1 if leads else 7
    expected = {c: plain(c, rows, leads=leads, first_index=first, told=told) for c in entries}
    one = block(rows, leads=leads, first_index=first, told=told)
    assert found(index, one) == {criteria: indices for criteria, indices in expected.items() if indices}
    assert index.evaluations <= len(entries)
    assert bool(index) == bool(entries)
    assert one.memo_bytes == 0


@given(
    rows_of, st.lists(st.lists(criterions, max_size=3), max_size=8), st.booleans(), st.integers(0, 3), told_of
)
def test_tables_of_their_own_find_the_same(rows, all_wishes, leads, direct, told):
    """F147: however few places a predicate has, and beside others that share tables."""
    entries = {Criteria.of(wishes) for wishes in all_wishes}
    index = prepared_each(*entries, direct=direct)
    expected = {c: plain(c, rows, leads=leads, told=told) for c in entries}
    assert found(index, block(rows, leads=leads, told=told)) == {
        c: indices for c, indices in expected.items() if indices
    }
    assert index.evaluations <= len(entries)
    for criteria in entries:
        index.remove(criteria)
    assert not index._parts
    assert not index._shared.by_type


class IndexAgainstPlainFilters(RuleBasedStateMachine):
    """E18: predicates come and go, and at every moment the index finds what those that are there would find."""

    def __init__(self):
        super().__init__()
        self.index = MatchingIndex()
        self.there = set()

    @rule(wishes=st.lists(criterions, max_size=3))
    def subscribe(self, wishes):
        criteria = Criteria.of(wishes)
        self.index.add(Predicate(criteria), criteria)
        self.there.add(criteria)

    @rule(wishes=st.lists(criterions, max_size=3), direct=st.integers(0, 3))
    def subscribe_apart(self, wishes, direct):
        criteria = Criteria.of(wishes)
        self.index.enter(prepare(Predicate(criteria), direct=direct), criteria)
        self.there.add(criteria)

    @rule(data=st.data())
    def unsubscribe(self, data):
        if self.there:
            criteria = data.draw(st.sampled_from(sorted(self.there, key=lambda one: repr(one.to_json()))))
            self.index.remove(criteria)
            self.there.discard(criteria)

    @rule(rows=rows_of, told=told_of)
    def commit(self, rows, told):
        expected = {criteria: plain(criteria, rows, told=told) for criteria in self.there}
        wanted = {criteria: indices for criteria, indices in expected.items() if indices}
        assert found(self.index, block(rows, told=told)) == wanted

    @invariant()
    def counts(self):
        assert len(self.index) == len(self.there)

    def teardown(self):
        for criteria in self.there:
            self.index.remove(criteria)
        assert not self.index._shared.by_type


TestIndexAgainstPlainFilters = IndexAgainstPlainFilters.TestCase


OTHERS = {
    "by entity type": lambda n: Criterion(entity_types={f"type{n}"}),
    "by key": lambda n: Criterion(keys={f"other/{n}"}),
    "by key and type": lambda n: Criterion(entity_types={"order", "item"}, keys={f"other/{n}"}),
    "by head of a glob": lambda n: Criterion(key_globs={f"other/{n}/*"}),
    "by end of a glob": lambda n: Criterion(key_globs={f"*{n:x}/other"}),
    "by head of a pattern": lambda n: Criterion(key_patterns={f"other/{n}/[a-z]+"}),
    "by changed field": lambda n: Criterion(changed={f"field{n}"}),
    "by value": lambda n: Criterion(where=Where("customer", "==", n + 1000)),
    "by value and more": lambda n: Criterion(where=[Where("customer", "==", n + 1000), "total > 5"]),
    "by transition": lambda n: Criterion(where=Where("customer", "==", n + 1000), transitions={"ENTERED"}),
    "by leaving": lambda n: Criterion(
        where=Where("customer", "==", n + 1000), transitions={"LEFT", "STAYED"}
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_predicates_that_do_not_match_are_not_asked(kind):
    """E18: as many questions with a thousand others as with one; what is asked is counted."""
    rows = [
        row(key=f"mine/{n}", body=b'{"customer":1,"total":9}', before=b'{"customer":2}', changed=b'["total"]')
        for n in range(10)
    ]
    counted = []
    for others in (1, 1000):
        index = indexed(Criterion(key_globs={"mine/*"}), *(OTHERS[kind](n) for n in range(others)))
        assert len(found(index, block(rows))) == 1
        counted.append(index.evaluations)
    assert counted == [1, 1]


def test_a_commit_with_many_others_asks_what_it_asks_with_one():
    """E18: in a log, with 5,000 publishers that do not match, of every kind in turn."""
    with opened() as log:
        probe = Probe(first=10**9)
        log.changes(Criterion(entity_types={"order"})).subscribe(probe, executor=flow.INLINE)
        kinds = list(OTHERS.values())
        for number in range(scaled(5_000)):
            wish = kinds[number % len(kinds)](number)
            log.changes(wish).subscribe(Probe(), executor=flow.INLINE)
        before = publication_of(log).evaluations
        log.commit([order(1), order(2)])
        assert publication_of(log).evaluations - before == 1
        assert len(probe.positions) == 2


def test_subscribing_leaves_the_other_predicates_alone(monkeypatch):
    """E18: a subscription puts its own wishes into the index, and builds nothing anew."""
    put = []
    enter = MatchingIndex.enter
    monkeypatch.setattr(
        MatchingIndex,
        "enter",
        lambda self, prepared, value: put.append(prepared) or enter(self, prepared, value),
    )
    with opened() as log:
        probes = [Probe() for _ in range(200)]
        for number, probe in enumerate(probes):
            log.changes(Criterion(keys={str(number)})).subscribe(probe, executor=flow.INLINE)
            log.commit([order(0)])
        for probe in probes:
            probe.subscription.cancel()
            log.commit([order(0)])
        assert len(put) == 200


def test_bodies_are_parsed_once_for_all_conditions(monkeypatch):
    """F58: at most once per change and image, and only if a condition that may hold asks."""
    parsed = []
    parse = facts_module.parse
    monkeypatch.setattr(facts_module, "parse", lambda stored: parsed.append(stored) or parse(stored))
    index = indexed(
        *(Criterion(entity_types={"order"}, where=f"total > {n}") for n in range(20)),
        *(Criterion(entity_types={"order"}, where=f"customer == {n}") for n in range(20)),
        Criterion(entity_types={"order"}, where="total > 5", transitions={"LEFT"}),
        Criterion(keys={"7"}, where="total > 1"),
    )
    one = block([row(body=b'{"total":%d}' % n, before=b'{"total":6}') for n in range(10)])
    found(index, one)
    assert len(parsed) == 20
    assert not one.memo
    assert one.memo_bytes == 0
    parsed.clear()
    found(index, block([row(kind="item", body=b'{"total":10}')]))
    assert not parsed
    found(indexed(Criterion(changed={"a"}), Criterion()), block([row(body=b"{}", changed=b'["a"]')]))
    assert not parsed


def test_a_key_is_asked_once_by_a_pattern_without_a_head(monkeypatch):
    """F55, E18: however many wishes have the pattern, and however often the key comes."""
    asked = []
    matches = Pattern.matches
    monkeypatch.setattr(Pattern, "matches", lambda self, key: asked.append(key) or matches(self, key))
    index = indexed(
        *(Criterion(entity_types={"order"}, key_patterns={".*7"}, changed={str(n)}) for n in range(5))
    )
    for _ in range(3):
        found(index, block([row(key=key, changed=b'["1"]') for key in ("17", "18", "17")]))
    assert len(asked) == 2


def test_two_wishes_of_a_predicate_give_a_change_once_and_in_order():
    """E10: whichever of them leads to it."""
    wishes = [
        Criterion(keys={"a", "b"}),
        Criterion(key_globs={"a*", "ab*", "*b", "?"}),
        Criterion(changed={"x", "y"}),
        Criterion(entity_types={"item"}),
    ]
    index = indexed(wishes)
    rows = [
        row(key="ab", changed=b'["x","y"]'),
        row(key="a"),
        row(key="cc"),
        row(kind="item", key="cc"),
        row(key="b"),
    ]
    assert found(index, block(rows)) == {Criteria.of(wishes): [1, 2, 4, 5]}


def test_those_who_want_all_of_a_block_get_a_range():
    """A range is what costs least from here to the socket."""
    everything, data, both = (
        Criteria.of(),
        Criteria.of(Criterion(areas={Area.DATA})),
        Criteria.of(Criterion(entity_types={"order"}), Criterion(areas={Area.INFRASTRUCTURE})),
    )
    index = indexed(everything, data, both)
    told = dict(index.match(block([row()] * 9)))
    assert told == {everything: range(10), data: range(1, 10), both: range(10)}


def test_wishes_with_many_types_and_many_keys_cost_no_more_places_than_keys():
    """E18: one wish is never as dear as its types times its keys."""
    many = Criterion(entity_types={f"t{n}" for n in range(1000)}, keys={str(n) for n in range(1000)})
    index = indexed(many)
    assert (
        sum(
            table.size
            for part in index._parts.values()
            for tables in part.by_type.values()
            for table in tables.values()
        )
        == 1000
    )
    rows = [row(kind="t5", key="7"), row(kind="other", key="7")]
    assert found(index, block(rows)) == {Criteria.of(many): [1]}
    index.remove(Criteria.of(many))
    assert not index


def test_an_interrupted_change_of_the_index_can_be_done_again(monkeypatch):
    """Invariant 13: a KeyboardInterrupt inside a subscribe or a cancel leaves nothing behind that matches wrongly."""
    wish = [Criterion(keys={"a", "b", "c"}), Criterion(key_globs={"a*", "*c"})]
    criteria = Criteria.of(wish)
    from publishers.criteria.index_table import Table

    for verb in ("put", "drop"):
        for moment in range(5):
            index = indexed(Criterion(keys={"a"}))
            if verb == "drop":
                index.add(Predicate(criteria), criteria)
            original, left = getattr(Table, verb), moment

            def interrupted(self, place, site, original=original):
                nonlocal left
                if left == 0:
                    left = -1
                    raise KeyboardInterrupt
                left -= 1
                original(self, place, site)

            monkeypatch.setattr(Table, verb, interrupted)
            with pytest.raises(KeyboardInterrupt):
                index.add(Predicate(criteria), criteria) if verb == "put" else index.remove(criteria)
            monkeypatch.setattr(Table, verb, original)
            index.add(Predicate(criteria), criteria)
            assert found(index, block([row(key="ac")])) == {criteria: [1]}
            index.remove(criteria)
            assert found(index, block([row(key="a")])) == {Criteria.of(Criterion(keys={"a"})): [1]}


def test_a_hostile_body_fulfils_nothing_and_stops_nobody():
    """F58: what is no JSON, or beyond all bounds, is as if it were not there."""
    bodies = [
        b"{",
        b"[" * 100_000,
        b'{"n":1e99999999999999999999}',
        b'{"n":' + b"1" * 10_000 + b"}",
        b"\xff",
        b"",
    ]
    index = indexed(
        Criterion(where="n exists"), Criterion(where=Where("n", "exists", value=False)), Criterion()
    )
    rows = [*(row(body=body) for body in bodies), row(body=b'{"n":1}')]
    told = found(index, block(rows))
    assert told[Criteria.of(Criterion(where="n exists"))] == [len(rows)]
    assert len(told) == 2

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from flow import operators as op
from tests.flow.operators.helpers import Upstream, collect, run

NUMBERS = st.lists(st.integers(0, 3), max_size=30)


@given(NUMBERS)
def test_the_operators_do_what_their_equivalents_in_the_standard_library_do(numbers):
    assert run(numbers, op.map(str)).items == list(map(str, numbers))
    assert run(numbers, op.filter(lambda n: n > 1)).items == [n for n in numbers if n > 1]
    assert run(numbers, op.filter(lambda n: n)).items == [n for n in numbers if n]
    assert run(numbers, op.scan(lambda a, b: a + b)).items == list(itertools.accumulate(numbers))
    assert (
        run(numbers, op.scan(lambda a, b: a + b, 7)).items
        == list(itertools.accumulate(numbers, initial=7))[1:]
    )
    assert run(numbers, op.distinct_until_changed()).items == [n for n, _ in itertools.groupby(numbers)]


def test_distinct_until_changed_compares_keys():
    words = ["ant", "ape", "bee", "bat", "ant"]
    assert run(words, op.distinct_until_changed(lambda word: word[0])).items == ["ant", "bee", "ant"]


def test_each_subscriber_has_its_own_state():
    summed = flow.pipe(flow.from_iterable([1, 2, 3]), op.scan(lambda a, b: a + b, 10))
    assert collect(summed).items == collect(summed).items == [11, 13, 16]


def test_demand_passes_straight_through():
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.map(str), op.scan(lambda a, b: a + b)), first=3)
    probe.request(4)
    assert upstream.requests == [3, 4]


def test_a_filter_requests_one_more_for_each_element_that_it_leaves_out():
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.filter(lambda n: n % 2)), first=2)
    upstream.send(0, 1, 2)
    assert upstream.requests == [2, 1, 1]
    assert probe.items == [1]


def test_rule_303_a_hundred_thousand_rejections_do_not_deepen_the_stack():
    depths = set()

    def keep(number):
        depths.add(len(__import__("inspect").stack(0)) if number % 20_000 == 0 else 0)
        return number == 99_999

    probe = run(range(100_000), op.filter(keep), first=1)
    assert probe.items == [99_999]
    assert len(depths) == 2


FAILING = {
    "map": op.map(lambda n: 1 // n),
    "filter": op.filter(lambda n: 1 // n),
    "scan": op.scan(lambda _, n: 1 // n, 1),
    "distinct_until_changed": op.distinct_until_changed(lambda n: 1 // n),
    "take_while": op.take_while(lambda n: 1 // n),
}


@pytest.mark.parametrize("operator", FAILING.values(), ids=FAILING.keys())
def test_rule_104_a_function_that_raises_cancels_upstream_and_ends_the_stream(operator):
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, operator))
    upstream.send(1, 0, 1)
    assert probe.signals == ["subscribe", "next", "error"]
    assert isinstance(probe.error, ZeroDivisionError)
    assert upstream.cancelled == 1
    upstream.complete()
    assert probe.signals[-1] == "error"


@pytest.mark.parametrize("operator", [op.map(lambda _: None), op.scan(lambda _a, _b: None, 1)])
def test_none_is_refused_as_what_a_function_made(operator):
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, operator))
    upstream.send(1)
    assert isinstance(probe.error, TypeError)
    assert upstream.cancelled == 1
